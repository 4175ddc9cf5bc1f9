//! The HTTP face: knows JSON, knows nothing of batches.
//!
//! ```text
//! serve.rs   accept loop: header timeout, write stalls, connection cap, drain
//! mod.rs     routes and layers: request id ▸ count ▸ catch panics ▸ access ▸ route
//! access.rs  who may ask for what; cors.rs  pages of other origins; entrance.rs  addresses, sockets, TLS
//! relay/     requests that another server answers, where there are such
//! extract.rs body, bounded in bytes and time ─▶ openai/, anthropic/ JSON ⇄ RawRequest, Delta ─▶ sse.rs frames
//! measures.rs the server in numbers, now and lately; metrics.rs the same for Prometheus
//! admin/     what the operator sees and changes; openapi/ what all of it looks like; dashboard.rs a page that shows it
//! journey.rs what the log and the spans tell of a request; accompanied.rs bodies that somebody follows to their end
//! inside.rs  the lines of batches, which ask the same routes
//! error.rs   every error's status, object and headers
//! ```
//! A dropped client drops the handler or its body, which drops the `Generation`, which aborts.
//!
//! Runs on a runtime of its own, apart from the engine's: steps occupy neither its threads nor its blocking pool, and no
//! handler computes for long (long prompts are tokenised in its `spawn_blocking`). Probes and `/metrics` read atomics
//! only, so a saturated engine does not delay them.

mod access;
mod accompanied;
mod admin;
mod anthropic;
mod cors;
mod dashboard;
mod entrance;
pub mod error;
mod extract;
pub mod health;
mod inside;
mod journey;
mod measures;
mod metrics;
mod openai;
mod openapi;
mod proxies;
mod relay;
mod replay;
mod request_id;
mod serve;
mod sse;

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRef, Request};
use axum::http::{Method, Uri};
use axum::middleware::from_fn;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get, post};
use tokio::sync::Notify;
use tower_http::catch_panic::CatchPanicLayer;

use crate::generate::Generator;
use error::ApiError;
use forebay_clock::Clock;
use forebay_core::request::RequestError;
use forebay_engine::metrics::Metrics;
use forebay_engine::telemetry::Telemetry;
use forebay_engine::workers::Pool;
use forebay_store::Store;
use forebay_store::keys::Keys;
use relay::Relay;

pub use access::Door;
pub use admin::Access;
pub use admin::advice::Canaries;
pub use admin::live::Feed;
pub use admin::reload::{Refused, Reload, Reloaded, Waits};
pub use cors::Origins;
pub use entrance::Entrance;
pub use extract::BodyLimits;
pub use health::Health;
pub use inside::answerer;
pub use measures::snapshot;
pub use proxies::Proxies;
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
    /// Without them everybody may ask for everything that `admin` lets through.
    pub keys: Option<Keys>,
    /// Pages of other origins that may ask; without them, none.
    pub origins: Option<Origins>,
    pub store: Store,
    /// Told when a batch came, or is to be cancelled.
    pub batches: Arc<Notify>,
    /// Of an upload.
    pub max_file_bytes: usize,
    /// Who may speak for others.
    pub proxies: Proxies,
    /// Told when the operator asks for a drain.
    pub drain: Arc<Notify>,
    /// The strategy on trial.
    pub canaries: Canaries,
    /// What the dashboard is shown.
    pub live: Feed,
    /// This server among those that share a store: its host's name and port.
    pub instance: Arc<str>,
    /// Who reads the configuration again.
    pub reload: Reload,
    /// Whether each request is logged.
    pub access_log: Arc<AtomicBool>,
    /// Who makes spans of requests, if anybody does.
    pub telemetry: Option<Telemetry>,
}

/// What the handlers of the server's own model share. Cheap to clone.
#[derive(Clone)]
pub struct State {
    pub front: Front,
    pub generator: Generator,
    pub replays: Arc<Replays>,
    /// A stream that has no seat says nothing for so long: not even that all is well.
    pub stream_hold: Duration,
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

/// Every route of a server with a model of its own; `/openapi.json` tells of each. What its other workers answer is relayed.
pub fn router(state: State) -> Router {
    let front = state.front.clone();
    let mut openai = of(openai_routes()).with_state(state.clone());
    if front.workers.has_upstreams() {
        let relay = Relay { front: front.clone(), generator: Some(state.generator) };
        openai = openai.layer(from_fn_with_state(relay, relay::layer));
    }
    whole(openai.clone(), openai, front)
}

/// Every route of a server that has no model of its own: whatever is below `/v1` is for those that have one, but for files and
/// batches, whose lines are relayed.
pub fn relay_router(front: Front) -> Router {
    let relay = Relay { front: front.clone(), generator: None };
    let v1 = Router::new().fallback(relay::handle).with_state(relay.clone());
    let bare = openai_routes().into_iter().filter(|(path, _)| !OURS_ALONE.contains(path));
    let bare = bare.fold(Router::new(), |router, (path, _)| router.route(path, any(relay::handle)));
    whole(v1, bare.with_state(relay), front)
}

/// What is kept in this process and at no other server.
const OURS_ALONE: [&str; 1] = ["/stream/{id}"];

/// The routes that need a model: OpenAI's, Anthropic's, and those of other servers. With and without `/v1`.
fn openai_routes() -> Vec<(&'static str, MethodRouter<State>)> {
    vec![
        ("/completions", post(openai::completions::handle)),
        ("/completions/render", post(openai::render::render_completion)),
        ("/chat/completions", post(openai::chat::handle)),
        ("/chat/completions/render", post(openai::render::render)),
        ("/chat/completions/input_tokens", post(openai::render::input_tokens)),
        ("/responses", post(openai::responses::handle)),
        ("/responses/input_tokens", post(openai::responses::input_tokens)),
        ("/messages", post(anthropic::handle)),
        ("/messages/count_tokens", post(anthropic::count_tokens)),
        ("/embeddings", post(openai::embeddings::handle)),
        ("/rerank", post(openai::rerank::handle)),
        ("/tokenize", post(openai::tokenize::tokenize)),
        ("/detokenize", post(openai::tokenize::detokenize)),
        ("/stream/{id}", get(openai::resume::read).delete(openai::resume::delete)),
        ("/models", get(openai::models::list)),
        ("/models/{*id}", get(openai::models::one)),
    ]
}

/// The Batch API, which every server has: its lines ask the routes above, whoever answers them. With and without `/v1`.
fn batch_routes() -> Vec<(&'static str, MethodRouter<Front>)> {
    vec![
        // An upload is bounded by its own limit, as it comes.
        ("/files", get(openai::files::list).merge(post(openai::files::upload).layer(DefaultBodyLimit::disable()))),
        ("/files/{id}", get(openai::files::one).delete(openai::files::delete)),
        ("/files/{id}/content", get(openai::files::content)),
        ("/batches", get(openai::batches::list).post(openai::batches::create)),
        ("/batches/{id}", get(openai::batches::one)),
        ("/batches/{id}/cancel", post(openai::batches::cancel)),
    ]
}

/// Routes for probes, scrapers and readers.
fn plain_routes() -> Vec<(&'static str, MethodRouter<Front>)> {
    vec![
        ("/health/live", get(health::live)),
        ("/health/ready", get(health::ready)),
        ("/health", get(health::ready)),
        ("/ready", get(health::ready)),
        ("/ping", get(health::ready)),
        ("/metrics", get(metrics::text)),
        ("/openapi.json", get(openapi::document)),
        ("/docs", get(openapi::page)),
        ("/dashboard", get(dashboard::page)),
        ("/dashboard/{file}", get(dashboard::file)),
    ]
}

fn of<S: Clone + Send + Sync + 'static>(routes: Vec<(&'static str, MethodRouter<S>)>) -> Router<S> {
    routes.into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods))
}

/// `v1` below that, `bare` without it, and what every server answers.
fn whole(v1: Router, bare: Router, front: Front) -> Router {
    let batches = of(batch_routes()).with_state(front.clone());
    let router = of(plain_routes())
        .nest("/admin", admin::router(&front))
        .merge(admin::guarded(of(measures::routes()), &front))
        .with_state(front.clone())
        .nest("/v1", batches.clone().merge(v1))
        .merge(batches)
        .merge(bare)
        .fallback(no_route)
        .method_not_allowed_fallback(no_method);
    layered(router, front)
}

/// Outermost last.
fn layered(router: Router, front: Front) -> Router {
    let counter = front.metrics.clone();
    let origins = front.origins.as_ref().map(cors::layer);
    let router = router
        .layer(from_fn_with_state(front.clone(), access::layer))
        .layer(CatchPanicLayer::custom(move |panic| caught(&counter, panic)))
        .layer(from_fn_with_state(front.clone(), proxies::layer))
        .layer(from_fn_with_state(front.clone(), metrics::layer))
        .layer(from_fn_with_state(front.clone(), journey::layer))
        .layer(from_fn_with_state(front.clone(), health::layer))
        .layer(from_fn(request_id::layer));
    // Before access: what a browser asks first has no key.
    match origins {
        Some(origins) => router.layer(origins),
        None => router,
    }
}

async fn no_route(request: Request) -> Response {
    const SHOWN: usize = 200;
    let path = request.uri().path();
    refused(path, RequestError::RouteNotFound { path: path.chars().take(SHOWN).collect() })
}

async fn no_method(method: Method, uri: Uri) -> Response {
    refused(uri.path(), RequestError::MethodNotAllowed { method: method.as_str().chars().take(20).collect() })
}

/// An error in the shape that the path's clients know.
fn refused(path: &str, error: RequestError) -> Response {
    let messages = path.strip_prefix("/v1").unwrap_or(path).strip_prefix("/messages");
    match messages {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => anthropic::MessagesError(error).into_response(),
        _ => ApiError(error).into_response(),
    }
}

/// The panic's message stays in the log (the hook has written it): it may hold a prompt's text.
fn caught(metrics: &Metrics, _panic: Box<dyn Any + Send>) -> Response {
    metrics.panicked();
    tracing::error!(event = "handler_panicked", "a request handler panicked");
    ApiError(RequestError::Internal).into_response()
}

#[cfg(test)]
mod access_tests;
#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod entrance_tests;
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
