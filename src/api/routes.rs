//! Every route and the layers in front of it: request id ▸ count ▸ catch panics ▸ host ▸ access ▸ route.

use std::any::Any;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get, post};
use tower_http::catch_panic::CatchPanicLayer;

use crate::api::error::ApiError;
use crate::api::refused::{no_method, no_route};
use crate::api::relay::{self, Relay};
use crate::api::state::{Front, State};
use crate::api::{
    access, anthropic, cors, gateway_headers, health, host_check, openai, openapi, operator, request_id, request_log,
    request_metrics,
};
use forebay_core::request::RequestError;
use forebay_engine::metrics::Metrics;

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
pub fn openai_routes() -> Vec<(&'static str, MethodRouter<State>)> {
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
pub fn batch_routes() -> Vec<(&'static str, MethodRouter<Front>)> {
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
pub fn plain_routes() -> Vec<(&'static str, MethodRouter<Front>)> {
    vec![
        ("/health/live", get(health::live)),
        ("/health/ready", get(health::ready)),
        ("/health", get(health::ready)),
        ("/ready", get(health::ready)),
        ("/ping", get(health::ready)),
        ("/metrics", get(operator::metrics::text)),
        ("/openapi.json", get(openapi::document)),
        ("/docs", get(openapi::page)),
        ("/dashboard", get(operator::dashboard::page)),
        ("/dashboard/", get(operator::dashboard::page_below)),
        ("/dashboard/{file}", get(operator::dashboard::file)),
    ]
}

fn of<S: Clone + Send + Sync + 'static>(routes: Vec<(&'static str, MethodRouter<S>)>) -> Router<S> {
    routes.into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods))
}

/// `v1` below that, `bare` without it, and what every server answers.
fn whole(v1: Router, bare: Router, front: Front) -> Router {
    let batches = of(batch_routes()).with_state(front.clone());
    let router = of(plain_routes())
        .nest("/admin", operator::admin::router(&front))
        .merge(operator::admin::guarded(of(operator::measures::routes()), &front))
        .with_state(front.clone())
        .nest("/v1", batches.clone().merge(v1))
        .merge(batches)
        .merge(bare)
        .fallback(no_route)
        .method_not_allowed_fallback(no_method);
    layered(router, front)
}

/// Outermost last.
pub fn layered(router: Router, front: Front) -> Router {
    let counter = front.metrics.clone();
    let origins = front.origins.as_ref().map(cors::layer);
    let router = router
        .layer(from_fn_with_state(front.clone(), access::layer))
        .layer(from_fn_with_state(front.clone(), host_check::layer))
        .layer(CatchPanicLayer::custom(move |panic| caught(&counter, panic)))
        .layer(from_fn_with_state(front.clone(), gateway_headers::layer))
        .layer(from_fn_with_state(front.clone(), request_metrics::layer))
        .layer(from_fn_with_state(front.clone(), request_log::layer))
        .layer(from_fn_with_state(front.clone(), health::layer))
        .layer(from_fn(request_id::layer));
    // Before access: what a browser asks first has no key.
    match origins {
        Some(origins) => router.layer(origins),
        None => router,
    }
}

/// The panic's message stays in the log (the hook has written it): it may hold a prompt's text.
fn caught(metrics: &Metrics, _panic: Box<dyn Any + Send>) -> Response {
    metrics.panicked();
    tracing::error!(event = "handler_panicked", "a request handler panicked");
    ApiError(RequestError::Internal).into_response()
}
