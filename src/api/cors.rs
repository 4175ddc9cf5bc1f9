//! Pages of other origins: none, unless the operator names them. What they may send and read is the same for all; `/admin`
//! answers none of them (`admin/guard.rs`).

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// Whose pages may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    Any,
    /// Such as `https://example.org`.
    These(Vec<HeaderValue>),
}

impl Origins {
    /// `*`, or origins that the configuration has checked.
    pub fn of(names: &[String]) -> Origins {
        if names.iter().any(|name| name == "*") {
            return Origins::Any;
        }
        Origins::These(names.iter().filter_map(|name| name.parse().ok()).collect())
    }
}

/// A browser may remember what it was told.
const REMEMBERED: Duration = Duration::from_secs(600);

pub fn layer(origins: &Origins) -> CorsLayer {
    let allowed = match origins {
        Origins::Any => AllowOrigin::any(),
        Origins::These(names) => AllowOrigin::list(names.iter().cloned()),
    };
    let told = [
        "x-request-id",
        "retry-after",
        "x-should-retry",
        "x-ignored-params",
        "openai-processing-ms",
        "x-ratelimit-limit-requests",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
        "x-ratelimit-limit-tokens",
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-tokens",
    ];
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        // SDKs send many headers of their own. Keys are no cookies: a page has only those that its user gave it.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(told.map(HeaderName::from_static))
        .max_age(REMEMBERED)
}
