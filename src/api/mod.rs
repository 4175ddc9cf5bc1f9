//! The HTTP face: knows JSON, knows nothing of batches.
//!
//! ```text
//! serve.rs   accept loop: header timeout, write stalls, connection cap, drain
//! mod.rs     routes and layers: request id ▸ count ▸ catch panics ▸ route
//! relay/     requests that another server answers, where there are such
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
mod relay;
mod replay;
mod request_id;
mod serve;
mod sse;

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRef, Request};
use axum::http::Method;
use axum::middleware::from_fn;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use tokio::sync::Notify;
use tower_http::catch_panic::CatchPanicLayer;

use crate::clock::Clock;
use crate::generate::Generator;
use crate::metrics::Metrics;
use crate::request::RequestError;
use crate::workers::Pool;
use error::ApiError;
use relay::Relay;

pub use admin::Access;
pub use admin::advice::Canaries;
pub use extract::BodyLimits;
pub use health::Health;
pub use replay::Replays;
pub use serve::{ServeConfig, serve};

/// What every server has, with a model of its own or without. Cheap to clone.
#[derive(Clone)]
pub struct Front {
    pub metrics: Arc<Metrics>,
    pub health: Arc<Health>,
    pub info: Arc<ServerInfo>,
    pub body: BodyLimits,
    pub clock: Clock,
    /// For `/admin`, traces and relays; completions of the server's own model go through its generator.
    pub workers: Pool,
    pub admin: Access,
    /// Told when the operator asks for a drain.
    pub drain: Arc<Notify>,
    /// The strategy on trial.
    pub canaries: Canaries,
}

/// What the handlers of the server's own model share. Cheap to clone.
#[derive(Clone)]
pub struct State {
    pub front: Front,
    pub generator: Generator,
    pub replays: Arc<Replays>,
}

impl Deref for State {
    type Target = Front;

    fn deref(&self) -> &Front {
        &self.front
    }
}

/// Facts about this server that answers repeat.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// Unix seconds at start: the `created` of the model.
    pub created: u64,
    /// Same fingerprint, same seed: same tokens.
    pub system_fingerprint: String,
}

impl FromRef<Front> for Arc<Metrics> {
    fn from_ref(front: &Front) -> Arc<Metrics> {
        front.metrics.clone()
    }
}

impl FromRef<Front> for Arc<Health> {
    fn from_ref(front: &Front) -> Arc<Health> {
        front.health.clone()
    }
}

/// Every route of a server with a model of its own. What its other workers answer is relayed.
pub fn router(state: State) -> Router {
    let front = state.front.clone();
    let mut openai = openai_routes().with_state(state.clone());
    if front.workers.has_upstreams() {
        let relay = Relay { front: front.clone(), generator: Some(state.generator) };
        openai = openai.layer(from_fn_with_state(relay, relay::layer));
    }
    whole(openai.clone(), openai, front)
}

/// Every route of a server that has no model of its own: whatever is below `/v1` is for those that have one.
pub fn relay_router(front: Front) -> Router {
    let relay = Relay { front: front.clone(), generator: None };
    let v1 = Router::new().fallback(relay::handle).with_state(relay.clone());
    const BARE: [&str; 7] =
        ["/completions", "/chat/completions", "/embeddings", "/tokenize", "/detokenize", "/models", "/models/{*id}"];
    let bare = BARE.into_iter().fold(Router::new(), |router, path| router.route(path, any(relay::handle)));
    whole(v1, bare.with_state(relay), front)
}

/// OpenAI's routes, and those of others that belong to a model.
fn openai_routes() -> Router<State> {
    Router::new()
        .route("/completions", post(openai::completions::handle))
        .route("/chat/completions", post(openai::chat::handle))
        .route("/tokenize", post(openai::tokenize::tokenize))
        .route("/detokenize", post(openai::tokenize::detokenize))
        .route("/stream/{id}", get(openai::resume::read).delete(openai::resume::delete))
        .route("/models", get(openai::models::list))
        .route("/models/{*id}", get(openai::models::one))
}

/// `v1` below that, `bare` without it, and what every server answers.
fn whole(v1: Router, bare: Router, front: Front) -> Router {
    let router = Router::new()
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/health", get(health::ready))
        .route("/ready", get(health::ready))
        .route("/ping", get(health::ready))
        .route("/metrics", get(metrics::text))
        .nest("/admin", admin::router(&front))
        .with_state(front.clone())
        .nest("/v1", v1)
        .merge(bare)
        .fallback(no_route)
        .method_not_allowed_fallback(no_method);
    layered(router, front)
}

/// Outermost last.
fn layered(router: Router, front: Front) -> Router {
    let counter = front.metrics.clone();
    router
        .layer(CatchPanicLayer::custom(move |panic| caught(&counter, panic)))
        .layer(from_fn_with_state(front, metrics::layer))
        .layer(from_fn(request_id::layer))
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
