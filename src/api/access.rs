//! Who may ask for what: the layer in front of every route, and the one table of what needs no key.
//!
//! ```text
//! request ─ class of its path ─┬─ public ─────────────────────────────────────────────▶ route
//!                              └─ key ─ role ─ of a model's work: limits, place in the ledger ─▶ route, held until its body ends
//! ```
//! A path that nobody lists needs a key, whether or not there is such a route; so a new route is covered before anybody thinks
//! of it. Classes follow from the path as it was sent, and so do routes: neither decodes it nor cleans it up.

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Request, State as Extract};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::api::Front;
use crate::api::guarded_body::{BodyGuard, with_guard};
use crate::api::refused::refused;
use crate::api::request_metrics::route;
use forebay_core::request::{Priority, RequestError};
use forebay_engine::metrics::Route;
use forebay_store::keys::{Account, Admission, Holder, Level, Levels, Refused, Role};

/// What a path needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// For probes, scrapers and browsers that have no key yet.
    Public,
    Inference,
    Admin,
}

/// The table.
pub fn class(path: &str) -> Class {
    const PUBLIC: [&str; 7] = ["/health", "/ready", "/ping", "/metrics", "/openapi.json", "/docs", "/dashboard"];
    let below = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    if path == "/admin" || below("/admin") || path == "/metrics/json" || below("/metrics/json") {
        Class::Admin
    } else if PUBLIC.contains(&path) || ((below("/health") || below("/dashboard")) && !path.contains("/.")) {
        Class::Public
    } else {
        Class::Inference
    }
}

/// Which listener a request came through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Door {
    /// The only one.
    #[default]
    Whole,
    /// The operator has one of its own.
    Main,
    /// The operator's.
    Admin,
}

impl Door {
    fn leads_to(self, class: Class) -> bool {
        match class {
            Class::Public => true,
            Class::Admin => self != Door::Main,
            Class::Inference => self != Door::Admin,
        }
    }
}

/// Put into the extensions of requests that the process sends to itself: a batch's lines, and whose the batch is. No client
/// can set it.
#[derive(Clone, Debug)]
pub struct Inside {
    pub owner: Option<String>,
}

/// Who asked; in the extensions of a request that had a key.
#[derive(Clone, Debug)]
pub struct Identity {
    pub holder: Arc<Holder>,
    /// Of requests that are billed.
    pub account: Option<Arc<Account>>,
    /// Asked in the key's name by a batch, which is a tenant of its own.
    pub for_batch: bool,
    /// Of requests that are billed: whoever works for the request holds it as long as that takes.
    pub place: Option<Place>,
}

/// A request's place among those of its key that run at once; given up with the last clone. The answer's body holds it, and so does
/// work that goes on without a body.
#[derive(Clone)]
pub struct Place(Arc<Admission>);

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Place")
    }
}

impl Identity {
    /// The class of a request that asked for this one.
    pub fn priority(&self, stated: Option<Priority>) -> Result<Priority, RequestError> {
        let ceiling = self.holder.key.priority_ceiling;
        match stated {
            Some(stated) if stated < ceiling => {
                let (stated, ceiling) = (stated.name(), ceiling.name());
                let message = format!("the requests of this API key have at most priority {ceiling}, not {stated}");
                Err(RequestError::Forbidden { message })
            }
            Some(stated) => Ok(stated),
            None => Ok(Priority::default().max(ceiling)),
        }
    }
}

/// Whose files and batches a request sees: a key's, or, where there are no keys, everybody's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner(pub Option<String>);

impl Owner {
    /// Whether something of this owner may be seen.
    pub fn sees(&self, owner: Option<&str>) -> bool {
        self.0.is_none() || self.0.as_deref() == owner
    }

    /// A client's name for something, as nobody else's.
    pub fn own(&self, name: &str) -> String {
        // Names have no colon.
        self.0.as_ref().map_or_else(|| name.to_owned(), |owner| format!("{owner}:{name}"))
    }

    pub fn of(extensions: &axum::http::Extensions) -> Owner {
        Owner(extensions.get::<Identity>().map(|identity| identity.holder.key.id.clone()))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Owner {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Owner, Infallible> {
        Ok(Owner::of(&parts.extensions))
    }
}

pub async fn layer(Extract(front): Extract<Front>, mut request: Request, next: Next) -> Response {
    match admit(&front, &mut request) {
        Ok(None) => next.run(request).await,
        Ok(Some(place)) => {
            let mut response = next.run(request).await;
            tell(response.headers_mut(), &place.0.seat.levels);
            with_guard(response, place)
        }
        Err(Refused { error, levels }) => {
            let mut response = refused(request.uri().path(), error);
            tell(response.headers_mut(), &levels);
            response
        }
    }
}

/// Lets a request through, or says why not. What it returns is held until the answer's body has ended.
fn admit(front: &Front, request: &mut Request) -> Result<Option<Place>, Refused> {
    let path = request.uri().path();
    let class = class(path);
    let door = request.extensions().get::<Door>().copied().unwrap_or_default();
    if !door.leads_to(class) {
        const SHOWN: usize = 200;
        return Err(RequestError::RouteNotFound { path: path.chars().take(SHOWN).collect() }.into());
    }
    let Some(keys) = front.keys.as_ref().filter(|_| class != Class::Public) else { return Ok(None) };
    let (holder, for_batch) = match request.extensions().get::<Inside>() {
        // Made while there were no keys.
        Some(Inside { owner: None }) => return Ok(None),
        Some(Inside { owner: Some(id) }) => (keys.holder(id)?, true),
        None => (keys.authenticate(token(request.headers())?)?, false),
    };
    let role = if class == Class::Admin { Role::Admin } else { Role::Inference };
    if !holder.key.roles.has(role) {
        let message = format!("this API key does not have the role {}", role.name());
        return Err(RequestError::Forbidden { message }.into());
    }
    let place = match billed(request.method(), path) {
        Some(route) => Some(Place(Arc::new(keys.admit(&holder, route.label())?))),
        None => None,
    };
    let account = place.as_ref().map(|place| place.0.account.clone());
    request.extensions_mut().insert(Identity { holder, account, for_batch, place: place.clone() });
    Ok(place)
}

/// What a model works for, and for that counts against a key's limits. What nobody knows may be an upstream's.
fn billed(method: &Method, path: &str) -> Option<Route> {
    let route = route(path);
    let works = match route {
        Route::Completions
        | Route::Chat
        | Route::Embeddings
        | Route::Rerank
        | Route::Responses
        | Route::Messages
        | Route::Other => true,
        Route::Models
        | Route::Tokenize
        | Route::Files
        | Route::Batches
        | Route::Admin
        | Route::Health
        | Route::Metrics => false,
    };
    (works && *method == Method::POST).then_some(route)
}

/// The key that a client sent: `Authorization: Bearer KEY`, as OpenAI has it, else `x-api-key: KEY`, as Anthropic does.
fn token(headers: &HeaderMap) -> Result<&str, RequestError> {
    const NONE: RequestError = RequestError::Unauthorized { why: "no API key was sent" };
    const ODD: RequestError = RequestError::Unauthorized { why: "the API key was not sent as one plain header" };
    let only = |name: HeaderName| {
        let mut all = headers.get_all(name).iter();
        match (all.next(), all.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => value.to_str().map(Some).map_err(|_| ODD),
            (Some(_), Some(_)) => Err(ODD),
        }
    };
    let bearer = only(header::AUTHORIZATION)?.and_then(|value| value.split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
    match bearer {
        Some(token) => Ok(token),
        None => only(HeaderName::from_static("x-api-key"))?.map(str::trim).ok_or(NONE),
    }
}

/// OpenAI's headers.
fn tell(headers: &mut HeaderMap, levels: &Levels) {
    for (what, level) in [("requests", levels.requests), ("tokens", levels.tokens)] {
        let Some(Level { limit, remaining, reset }) = level else { continue };
        for (kind, text) in
            [("limit", limit.to_string()), ("remaining", remaining.to_string()), ("reset", spelled(reset))]
        {
            let name = HeaderName::try_from(format!("x-ratelimit-{kind}-{what}"));
            if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(text)) {
                headers.insert(name, value);
            }
        }
    }
}

/// `6m0s`, `1.5s`, `20ms`.
fn spelled(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis < 1_000 {
        return format!("{millis}ms");
    }
    let (minutes, rest) = (millis / 60_000, millis % 60_000);
    let mut text = if minutes > 0 { format!("{minutes}m") } else { String::new() };
    let _ = match rest % 1_000 {
        0 => write!(text, "{}s", rest / 1_000),
        _ => write!(text, "{}s", rest as f64 / 1_000.0),
    };
    text
}

/// Its request counts as running until the answer has been sent or given up.
impl BodyGuard for Place {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_listed_needs_a_key() {
        for (path, expected) in [
            ("/health/live", Class::Public),
            ("/metrics", Class::Public),
            ("/dashboard/app.js", Class::Public),
            ("/metrics/json", Class::Admin),
            ("/metrics/json/history", Class::Admin),
            ("/admin/state", Class::Admin),
            ("/admin", Class::Admin),
            ("/administer", Class::Inference),
            ("/healthy", Class::Inference),
            ("/metrics/", Class::Inference),
            ("/v1/models", Class::Inference),
            ("//health", Class::Inference),
            ("/HEALTH", Class::Inference),
            ("/v1/../health", Class::Inference),
            ("/health/../v1/models", Class::Inference),
            ("/%68ealth", Class::Inference),
            ("/whatever", Class::Inference),
            ("/", Class::Inference),
            ("", Class::Inference),
        ] {
            assert_eq!(class(path), expected, "{path}");
        }
    }

    #[test]
    fn a_key_is_sent_once_and_in_one_of_two_headers() {
        let sent = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            token(&headers).map(str::to_owned).ok()
        };
        let a = Some("a".to_owned());
        assert_eq!(sent(&[("authorization", "Bearer a")]), a);
        assert_eq!(sent(&[("authorization", "bearer  a ")]), a);
        assert_eq!(sent(&[("x-api-key", "a")]), a);
        assert_eq!(sent(&[("authorization", "Basic x"), ("x-api-key", "a")]), a);
        assert_eq!(sent(&[("authorization", "Bearer a"), ("x-api-key", "b")]), a);
        for none in [
            &[][..],
            &[("authorization", "Basic a")],
            &[("authorization", "a")],
            &[("authorization", "Bearer a"), ("authorization", "Bearer a")],
            &[("x-api-key", "a"), ("x-api-key", "a")],
            &[("x-api-key", "ü")],
            &[("cookie", "x-api-key=a")],
        ] {
            assert_eq!(sent(none), None, "{none:?}");
        }
    }

    #[test]
    fn durations_as_openai_writes_them() {
        for (millis, text) in [(0, "0ms"), (20, "20ms"), (1_000, "1s"), (1_500, "1.5s"), (360_000, "6m0s")] {
            assert_eq!(spelled(Duration::from_millis(millis)), text);
        }
    }
}
