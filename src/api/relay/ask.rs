//! What of a request decides who takes it, and how it is sent on.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::{Map, Value};

use super::paths::Target;
use crate::api::access::Identity;
use forebay_core::request::{Payer, Priority, RequestError};
use forebay_core::workers::prefix::Chain;
use forebay_engine::metrics::Route;
use forebay_engine::workers::Upstream;

/// Nobody's list of models has it, and everybody who has a model has it.
const DEFAULT: &str = "default";
/// What is counted of a request's load, whatever it claims.
const MOST_SEQUENCES: i64 = 128;

/// A request that is sent on. Cheap to clone, but for headers.
#[derive(Clone)]
pub struct Ask {
    target: Target,
    headers: HeaderMap,
    body: Bytes,
    model: Option<String>,
    pub sequences: usize,
    /// Of its prompt.
    pub chain: Chain,
    /// Of requests that are billed.
    pub payer: Option<Arc<dyn Payer>>,
}

impl Ask {
    pub fn new(
        target: Target,
        headers: &HeaderMap,
        body: Bytes,
        object: Map<String, Value>,
    ) -> Result<Ask, RequestError> {
        let model = match object.get("model") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) if name == DEFAULT => None,
            Some(Value::String(name)) => Some(name.clone()),
            Some(_) => return Err(RequestError::invalid("model", "must be a string")),
        };
        let sequences = object.get("n").and_then(Value::as_i64).unwrap_or(1).clamp(1, MOST_SEQUENCES) as usize;
        let salt = object.get("cache_salt").and_then(Value::as_str).unwrap_or_default();
        let prompt = match object.get("messages").or(object.get("prompt")).or(object.get("input")) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        Ok(Ask {
            target,
            headers: headers.clone(),
            body,
            model,
            sequences,
            chain: Chain::of_text(salt, &prompt),
            payer: None,
        })
    }

    /// Came with a key: the key itself goes no further, its name and its class do.
    pub fn keyed(&mut self, identity: &Identity, stated: Option<Priority>) -> Result<(), RequestError> {
        let priority = identity.priority(stated)?;
        self.headers.remove(header::AUTHORIZATION);
        self.headers.remove("x-api-key");
        if stated.is_none() && priority != Priority::default() {
            self.headers.insert("x-priority", HeaderValue::from_static(priority.name()));
        }
        if let Ok(tenant) = HeaderValue::from_str(&identity.holder.key.id)
            && !identity.for_batch
        {
            self.headers.insert("x-gateway-inference-fairness-id", tenant);
        }
        self.payer = identity.account.clone().map(|account| account as Arc<dyn Payer>);
        Ok(())
    }

    /// The name that has to be served; `None` where any model will do.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// As much of the name as an error shows.
    pub fn shown_model(&self) -> String {
        const SHOWN: usize = 200;
        self.model.as_deref().unwrap_or(DEFAULT).chars().take(SHOWN).collect()
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    pub fn route(&self) -> Route {
        crate::api::request_metrics::route(&self.target.path)
    }

    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Those of the client that are for the server that answers.
    pub fn headers(&self) -> HeaderMap {
        let ours = [header::HOST, header::CONTENT_LENGTH, header::ACCEPT_ENCODING];
        let theirs = self.headers.iter().filter(|(name, _)| is_end_to_end(name) && !ours.contains(name));
        theirs.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The body with a model's name that `upstream` knows, where none was given that means one.
    pub fn body_for(&self, upstream: &Upstream) -> Bytes {
        let first = upstream.first_model().filter(|_| self.model.is_none());
        let parsed = first.and_then(|name| Some((name, serde_json::from_slice::<Map<_, _>>(&self.body).ok()?)));
        match parsed {
            Some((name, mut object)) => {
                object.insert("model".into(), name.into());
                Value::Object(object).to_string().into()
            }
            None => self.body.clone(),
        }
    }
}

/// Whether a header is for who reads the message, not for who carries it.
pub fn is_end_to_end(name: &HeaderName) -> bool {
    const CARRIED: [&str; 10] = [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
    ];
    !CARRIED.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::paths;
    use super::*;

    fn ask(body: Value) -> Result<Ask, RequestError> {
        let Value::Object(object) = body.clone() else { panic!("an object") };
        let target = paths::target(&"/v1/completions?x=1".parse().expect("a path")).expect("a route");
        Ask::new(target, &HeaderMap::new(), body.to_string().into(), object)
    }

    #[test]
    fn models_by_name_and_without() {
        for (model, expected) in
            [(json!("a"), Some("a")), (json!("default"), None), (json!(null), None), (json!(""), Some(""))]
        {
            assert_eq!(ask(json!({"model": model})).unwrap().model(), expected, "{model}");
        }
        assert!(ask(json!({"model": 5})).is_err());
        assert_eq!(ask(json!({})).unwrap().model(), None);
        assert_eq!(ask(json!({})).unwrap().route(), Route::Completions);
    }

    #[test]
    fn what_is_claimed_is_bounded() {
        for (n, expected) in [(json!(3), 3), (json!(-1), 1), (json!(1u64 << 60), 128), (json!("x"), 1)] {
            assert_eq!(ask(json!({"n": n})).unwrap().sequences, expected, "{n}");
        }
    }

    #[test]
    fn equal_beginnings_have_equal_chains_whatever_comes_after() {
        let long = "x".repeat(300);
        let chain = |body| ask(body).unwrap().chain;
        assert_eq!(chain(json!({"prompt": long, "seed": 1})), chain(json!({"prompt": format!("{long}y")})));
        assert_ne!(chain(json!({"prompt": long})), chain(json!({"prompt": long, "cache_salt": "a"})));
    }
}
