//! The layer that counts requests: each once, when its body has been sent or dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Request, State as Extract};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use crate::api::Front;
use crate::api::error::ErrorCode;
use crate::api::guarded_body::{BodyGuard, with_guard};
use forebay_clock::Clock;
use forebay_core::units::Micros;
use forebay_engine::metrics::{Metrics, Outcome, Route};
use forebay_engine::permit::Connection;

/// Put into the extensions of a streamed response; set when the stream ends with an error frame.
#[derive(Clone, Debug, Default)]
pub struct StreamFault(Arc<AtomicBool>);

impl StreamFault {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

pub fn route(path: &str) -> Route {
    match path.strip_prefix("/v1").unwrap_or(path) {
        "/completions" => Route::Completions,
        "/chat/completions" => Route::Chat,
        "/embeddings" => Route::Embeddings,
        "/rerank" => Route::Rerank,
        "/responses" => Route::Responses,
        "/messages" => Route::Messages,
        "/tokenize"
        | "/detokenize"
        | "/chat/completions/render"
        | "/chat/completions/input_tokens"
        | "/responses/input_tokens"
        | "/messages/count_tokens" => Route::Tokenize,
        "/metrics" | "/metrics/json" | "/metrics/json/history" => Route::Metrics,
        "/ping" | "/ready" => Route::Health,
        path if path == "/files" || path.starts_with("/files/") => Route::Files,
        path if path == "/batches" || path.starts_with("/batches/") => Route::Batches,
        path if path == "/models" || path.starts_with("/models/") => Route::Models,
        path if path.starts_with("/admin/") => Route::Admin,
        path if path == "/health" || path.starts_with("/health/") => Route::Health,
        _ => Route::Other,
    }
}

pub async fn layer(Extract(state): Extract<Front>, request: Request, next: Next) -> Response {
    let began = state.clock.now();
    let route = route(request.uri().path());
    // Dropped with this future when the client leaves before there is an answer.
    let pending = |outcome| {
        let (metrics, clock) = (state.metrics.clone(), state.clock.clone());
        Pending { metrics, clock, began, route, outcome, connection: None }
    };
    let mut unanswered = pending(Some(Outcome::Cancelled));
    unanswered.connection = route.asks_the_model().then(|| state.workers.connect());
    let mut response = next.run(request).await;
    if let Some(ErrorCode(code)) = response.extensions().get() {
        state.metrics.error(code, route);
    }
    let fault = response.extensions().get::<StreamFault>().cloned();
    if fault.is_none() {
        let millis = state.clock.now().since(began).0 / 1_000;
        response.headers_mut().insert("openai-processing-ms", HeaderValue::from(millis));
    }
    unanswered.outcome = None;
    let mut pending = pending(Some(Outcome::Cancelled));
    pending.connection = unanswered.connection.take();
    let success = outcome(response.status());
    with_guard(response, Counting { pending, success, fault })
}

fn outcome(status: StatusCode) -> Outcome {
    if status.is_server_error() {
        Outcome::ServerError
    } else if status.is_client_error() {
        Outcome::ClientError
    } else {
        Outcome::Ok
    }
}

/// Counts a request when dropped, as whatever it has come to by then.
struct Pending {
    metrics: Arc<Metrics>,
    clock: Clock,
    began: Micros,
    route: Route,
    outcome: Option<Outcome>,
    /// Where it asks the model, and so may wait for long.
    connection: Option<Connection>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome {
            self.metrics.request(self.route, outcome, self.clock.now().since(self.began));
        }
    }
}

/// What the request comes to once its answer has been sent.
struct Counting {
    pending: Pending,
    success: Outcome,
    fault: Option<StreamFault>,
}

impl BodyGuard for Counting {
    fn sent(&mut self) {
        let failed = self.fault.as_ref().is_some_and(StreamFault::is_set);
        self.pending.outcome = Some(if failed { Outcome::ServerError } else { self.success });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_map_to_a_bounded_set_of_routes() {
        for (path, expected) in [
            ("/v1/completions", Route::Completions),
            ("/completions", Route::Completions),
            ("/v1/chat/completions", Route::Chat),
            ("/v1/tokenize", Route::Tokenize),
            ("/admin/state", Route::Admin),
            ("/v1/models/org/name", Route::Models),
            ("/health/live", Route::Health),
            ("/v1/files", Route::Files),
            ("/v1/files/file-1/content", Route::Files),
            ("/v1/batches/batch_1/cancel", Route::Batches),
            ("/ping", Route::Health),
            ("/metrics", Route::Metrics),
            ("/metrics/json/history", Route::Metrics),
            ("/v1/modelsX", Route::Other),
            ("/etc/passwd", Route::Other),
        ] {
            assert_eq!(route(path), expected, "{path}");
        }
    }
}
