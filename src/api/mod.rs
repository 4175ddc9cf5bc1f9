//! The HTTP face: knows JSON, knows nothing of batches.
//!
//! ```text
//! serve.rs   accept loop: header timeout, write stalls, connection cap, drain
//! mod.rs     routes and layers: request id ▸ count ▸ catch panics ▸ route
//! extract.rs body, bounded in bytes and time ─▶ openai/ JSON ⇄ RawRequest, Delta ─▶ sse.rs frames
//! admin/     what the operator sees and changes
//! error.rs   every error's status, object and headers
//! ```
//! A dropped client drops the handler or its body, which drops the `Generation`, which aborts.
//!
//! Runs on a runtime of its own, apart from the engine's: steps occupy neither its threads nor its blocking pool, and no
//! handler computes for long (long prompts are tokenised in its `spawn_blocking`). Probes and `/metrics` read atomics
//! only, so a saturated engine does not delay them.

mod admin;
pub mod error;
mod extract;
pub mod health;
mod metrics;
mod openai;
mod replay;
mod request_id;
mod serve;
mod sse;

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRef, Request};
use axum::http::Method;
use axum::middleware::from_fn;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::sync::Notify;
use tower_http::catch_panic::CatchPanicLayer;

use crate::clock::Clock;
use crate::engine::EngineHandle;
use crate::generate::Generator;
use crate::metrics::Metrics;
use crate::request::RequestError;
use error::ApiError;

pub use admin::Access;
pub use admin::advice::Canaries;
pub use extract::BodyLimits;
pub use health::Health;
pub use replay::Replays;
pub use serve::{ServeConfig, serve};

/// What handlers share. Cheap to clone.
#[derive(Clone)]
pub struct State {
    pub generator: Generator,
    pub metrics: Arc<Metrics>,
    pub health: Arc<Health>,
    pub info: Arc<ServerInfo>,
    pub body: BodyLimits,
    pub clock: Clock,
    /// For `/admin` and traces; completions go through the generator.
    pub engine: EngineHandle,
    pub admin: Access,
    pub replays: Arc<Replays>,
    /// Told when the operator asks for a drain.
    pub drain: Arc<Notify>,
    /// The strategy on trial.
    pub canaries: Canaries,
}

/// Facts about this server that answers repeat.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// Unix seconds at start: the `created` of the model.
    pub created: u64,
    /// Same fingerprint, same seed: same tokens.
    pub system_fingerprint: String,
}

impl FromRef<State> for Arc<Metrics> {
    fn from_ref(state: &State) -> Arc<Metrics> {
        state.metrics.clone()
    }
}

impl FromRef<State> for Arc<Health> {
    fn from_ref(state: &State) -> Arc<Health> {
        state.health.clone()
    }
}

/// Every route, with and without `/v1`.
pub fn router(state: State) -> Router {
    let openai = Router::new()
        .route("/completions", post(openai::completions::handle))
        .route("/chat/completions", post(openai::chat::handle))
        .route("/tokenize", post(openai::tokenize::tokenize))
        .route("/detokenize", post(openai::tokenize::detokenize))
        .route("/stream/{id}", get(openai::resume::read).delete(openai::resume::delete))
        .route("/models", get(openai::models::list))
        .route("/models/{*id}", get(openai::models::one));
    let router = Router::new()
        .nest("/v1", openai.clone())
        .merge(openai)
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/health", get(health::ready))
        .route("/ready", get(health::ready))
        .route("/ping", get(health::ready))
        .route("/metrics", get(metrics::text))
        .nest("/admin", admin::router(&state))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method);
    layered(router, state)
}

/// Outermost last.
fn layered(router: Router<State>, state: State) -> Router {
    let counter = state.metrics.clone();
    router
        .layer(CatchPanicLayer::custom(move |panic| caught(&counter, panic)))
        .layer(from_fn_with_state(state.clone(), metrics::layer))
        .layer(from_fn(request_id::layer))
        .with_state(state)
}

async fn no_route(request: Request) -> ApiError {
    const SHOWN: usize = 200;
    ApiError(RequestError::RouteNotFound { path: request.uri().path().chars().take(SHOWN).collect() })
}

async fn no_method(method: Method) -> ApiError {
    ApiError(RequestError::MethodNotAllowed { method: method.as_str().chars().take(20).collect() })
}

/// The panic's message stays in the log (the hook has written it): it may hold a prompt's text.
fn caught(metrics: &Metrics, _panic: Box<dyn Any + Send>) -> Response {
    metrics.panicked();
    tracing::error!(event = "handler_panicked", "a request handler panicked");
    ApiError(RequestError::Internal).into_response()
}

#[cfg(test)]
mod error_docs;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tokenize_tests;
#[cfg(test)]
mod tool_tests;
