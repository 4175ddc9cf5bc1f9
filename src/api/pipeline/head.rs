//! What a request says of itself beside its prompt: whose it is, how urgent, how long it may take.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, Uri};
use serde_json::Value;
use uuid::Uuid;

use super::params::{Fields, wrong};
use crate::api::access::{Identity, Owner, Place};
use crate::api::proxies::{FAIRNESS_IDS, OBJECTIVES, SLO_TPOT, SLO_TTFT};
use crate::api::request_log::RequestLog;
use crate::api::{State, replay};
use crate::generate::RawRequest;
use forebay_core::request::{Origin, Payer, Priority, RequestError};
use forebay_core::units::Micros;

const LONGEST_TENANT: usize = 256;
/// A day, as for the field.
const LONGEST_SLO_MS: f64 = 86_400_000.0;

/// Read before the body is.
#[derive(Clone, Debug)]
pub struct Head {
    /// The id of the answer.
    pub id: String,
    pub traced: bool,
    /// Its stream can be read again under this id.
    pub conversation: Option<String>,
    /// What would be ignored or clamped is refused.
    pub strict: bool,
    pub received: Micros,
    /// The adapter that the body's `model` stands for; the answer names it.
    pub adapter: Option<u32>,
    /// What the log will tell of it.
    pub log: Option<RequestLog>,
    fairness_id: Option<String>,
    priority: Option<Priority>,
    /// Whose key it came with.
    identity: Option<Identity>,
    /// A gateway's word on the priority.
    objective: Option<Priority>,
    /// A gateway's word on the time until the first token, and for each one after, in milliseconds.
    slo: Option<(f64, f64)>,
    /// Headers that could not be acted on.
    ignored: Vec<&'static str>,
}

impl Head {
    /// `prefix` begins the answer's id.
    pub fn read(state: &State, request: &Request, prefix: &str) -> Result<Head, RequestError> {
        let headers = request.headers();
        let owner = Owner::of(request.extensions());
        let log = RequestLog::of(request);
        let text = |name: &str| match headers.get(name).map(|value| value.to_str()) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text.trim().to_owned())),
            Some(Err(_)) => Err(RequestError::invalid(name, "must be plain text")),
        };
        let mut fairness_id = None;
        for name in FAIRNESS_IDS {
            fairness_id = fairness_id.or(checked_tenant(name, text(name)?)?);
        }
        let mut ignored = Vec::new();
        let mut objective = None;
        for name in OBJECTIVES {
            let Some(asked) = text(name)? else { continue };
            match state.proxies.priority(&asked) {
                Some(priority) => objective = objective.or(Some(priority)),
                // The gateway knows objectives that concern only itself.
                None => ignored.push(name),
            }
        }
        let slo = match (millis(SLO_TTFT, text(SLO_TTFT)?)?, millis(SLO_TPOT, text(SLO_TPOT)?)?) {
            (Some(first), Some(each)) => Some((first, each)),
            // By which time all of it must be there, one of them does not tell.
            (first, each) => {
                ignored.extend(first.map(|_| SLO_TTFT).into_iter().chain(each.map(|_| SLO_TPOT)));
                None
            }
        };
        let priority = text("x-priority")?.map(|text| priority("x-priority", &spelled(text))).transpose()?;
        let id = format!("{prefix}{}", Uuid::new_v4().simple());
        log.iter().for_each(|log| log.answers_as(&id));
        Ok(Head {
            id,
            log,
            traced: text("x-forebay-trace")?.is_some_and(|asked| asked == "1" || asked.eq_ignore_ascii_case("true")),
            conversation: replay::conversation(headers)?.map(|id| owner.own(&id)),
            strict: strict(request.uri(), headers)?,
            received: state.clock.now(),
            adapter: None,
            fairness_id,
            priority,
            identity: request.extensions().get().cloned(),
            objective,
            slo,
            ignored,
        })
    }

    /// Completes `raw`, whose `max_tokens` are known, with what the head and these fields of the body say. A gateway's headers
    /// go before `user` and `priority`, the field `priority` before its header. A key is a tenant whatever either says, but for a batch, which is one of its own.
    pub fn complete(&self, fields: &mut Fields, raw: &mut RawRequest) -> Result<(), RequestError> {
        let user = checked_tenant("user", fields.string("user")?)?;
        let tier = service_tier(fields)?;
        let asked = fields.take("priority").map(|value| priority("priority", &value)).transpose()?;
        let stated = self.objective.or(asked).or(self.priority).or(tier);
        raw.parameters.priority = match &self.identity {
            Some(identity) => identity.priority(stated)?,
            None => stated.unwrap_or_default(),
        };
        raw.parameters.timeout_ms = fields.integer("timeout_ms")?;
        raw.parameters.deadline_ms = fields.integer("deadline_ms")?;
        let key = self.identity.as_ref().map(|identity| &identity.holder.key);
        let tenant = match &self.identity {
            Some(identity) if !identity.for_batch => Some(identity.holder.key.id.clone()),
            _ => self.fairness_id.clone().or(user),
        };
        self.ignored.iter().for_each(|name| fields.ignore(*name));
        match (self.slo, raw.parameters.max_tokens) {
            (Some((first, each)), Some(tokens @ 1..)) => {
                // As long as the longest answer may take; out of range is as good as never.
                let whole = (first + each * (tokens - 1) as f64).ceil().clamp(1.0, LONGEST_SLO_MS) as i64;
                raw.parameters.deadline_ms =
                    Some(raw.parameters.deadline_ms.map_or(whole, |deadline| deadline.min(whole)));
            }
            (Some(_), _) => [SLO_TTFT, SLO_TPOT].into_iter().for_each(|name| fields.ignore(name)),
            (None, _) => {}
        }
        raw.parameters.origin = Origin {
            id: self.id.as_str().into(),
            tenant: tenant.unwrap_or_default().into(),
            weight: key.map(|key| key.weight).unwrap_or_default(),
            received: self.received,
            span: self.log.as_ref().and_then(RequestLog::span),
        };
        if raw.parameters.cache_salt.is_none() {
            raw.parameters.cache_salt = key.map(|key| key.cache_salt.clone()).filter(|salt| !salt.is_empty());
        }
        let account = self.identity.as_ref().and_then(|identity| identity.account.clone());
        raw.payer = account.map(|account| account as Arc<dyn Payer>);
        Ok(())
    }
}

impl Head {
    /// The place of the request among those of its key, for work that the answer's body does not hold.
    pub fn place(&self) -> Option<Place> {
        self.identity.as_ref().and_then(|identity| identity.place.clone())
    }

    /// Of routes whose answers cannot be read again.
    pub fn refuse_conversation(&self) -> Result<(), RequestError> {
        match self.conversation {
            None => Ok(()),
            Some(_) => {
                let message = "streams of this route cannot be read again".to_owned();
                Err(RequestError::Unsupported { param: "x-conversation-id".into(), message })
            }
        }
    }
}

/// The class that a request asks for, where its body is read by others.
pub fn stated(headers: &HeaderMap, body: &serde_json::Map<String, Value>) -> Result<Option<Priority>, RequestError> {
    let header = headers.get("x-priority").map(|value| value.to_str().unwrap_or_default().trim().to_owned());
    let header = header.map(|text| priority("x-priority", &spelled(text))).transpose()?;
    let field = body.get("priority").filter(|value| !value.is_null());
    let field = field.map(|value| priority("priority", value)).transpose()?;
    let tier = match body.get("service_tier").and_then(Value::as_str) {
        Some("flex") => Some(Priority::Low),
        Some("priority") => Some(Priority::High),
        _ => None,
    };
    Ok(field.or(header).or(tier))
}

/// `?strict=1`, `?strict` or `x-strict: 1`. Other values than yes and no are an error: who asks for strictness wants to know.
pub fn strict(uri: &Uri, headers: &HeaderMap) -> Result<bool, RequestError> {
    let pairs = uri.query().unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "1")));
    let query = pairs.filter(|(name, _)| *name == "strict").map(|(_, value)| value);
    let header = headers.get("x-strict").map(|value| value.to_str().unwrap_or_default());
    let mut strict = false;
    for asked in query.chain(header) {
        strict |= match asked.to_ascii_lowercase().as_str() {
            "1" | "true" => true,
            "0" | "false" => false,
            _ => return Err(RequestError::invalid("strict", "must be 1 or 0")),
        };
    }
    Ok(strict)
}

/// What a tier means on a server of one's own: how long one is ready to wait.
fn service_tier(fields: &mut Fields) -> Result<Option<Priority>, RequestError> {
    match fields.string("service_tier")?.as_deref() {
        None | Some("auto" | "default" | "scale") => Ok(None),
        Some("flex") => Ok(Some(Priority::Low)),
        Some("priority") => Ok(Some(Priority::High)),
        Some(_) => Err(RequestError::invalid("service_tier", "must be auto, default, flex, scale or priority")),
    }
}

fn checked_tenant(param: &str, tenant: Option<String>) -> Result<Option<String>, RequestError> {
    match tenant {
        Some(tenant) if tenant.len() > LONGEST_TENANT => {
            Err(RequestError::invalid(param, format!("must have at most {LONGEST_TENANT} bytes")))
        }
        other => Ok(other),
    }
}

/// A positive number of milliseconds.
fn millis(name: &str, text: Option<String>) -> Result<Option<f64>, RequestError> {
    let Some(text) = text else { return Ok(None) };
    let number = text.parse::<f64>().ok().filter(|ms| ms.is_finite() && *ms > 0.0);
    number.map(Some).ok_or_else(|| RequestError::invalid(name, "must be a positive number of milliseconds"))
}

/// A header's number is a number.
fn spelled(text: String) -> Value {
    text.parse::<i64>().map_or(Value::String(text), Value::from)
}

/// One of the names, or an integer as vLLM has it.
fn priority(param: &str, value: &Value) -> Result<Priority, RequestError> {
    const EXPECTED: &str = "critical, high, normal, low, batch or an integer";
    let known = match value {
        Value::String(name) => Priority::from_name(name),
        number => number.as_i64().map(Priority::from_integer),
    };
    known.ok_or_else(|| wrong(param, EXPECTED, value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strictness_is_asked_for_once_or_not_at_all() {
        let asked = |uri: &str| strict(&uri.parse().unwrap(), &HeaderMap::new());
        for yes in ["/?strict", "/?strict=1", "/?a=b&strict=TRUE", "/?strict=0&strict=1"] {
            assert_eq!(asked(yes), Ok(true), "{yes}");
        }
        assert_eq!((asked("/"), asked("/?strict=0"), asked("/?stricter=1")), (Ok(false), Ok(false), Ok(false)));
        assert!(asked("/?strict=yes").is_err() && asked("/?strict=").is_err());
    }

    #[test]
    fn priorities_by_name_and_number() {
        for (value, expected) in [
            (json!("critical"), Some(Priority::Critical)),
            (json!("Low"), Some(Priority::Low)),
            (json!(-10), Some(Priority::Critical)),
            (json!(0), Some(Priority::Normal)),
            (json!(10), Some(Priority::Low)),
            (json!("urgent"), None),
            (json!(1.5), None),
            (json!(true), None),
            (json!([]), None),
            (json!(u64::MAX), None),
        ] {
            assert_eq!(priority("priority", &value).ok(), expected, "{value}");
        }
        assert_eq!(priority("x-priority", &spelled("-3".into())), Ok(Priority::High));
    }
}
