//! One HTTP request from its head to the last byte of its answer: its id, what it cost, and then the line in the log and the span
//! that tell of it. No text and no key gets there.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use axum::extract::{MatchedPath, Request, State as Extract};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

use crate::api::Front;
use crate::api::guarded_body::{BodyGuard, with_guard};
use crate::api::request_id::RequestId;
use crate::api::request_metrics::{StreamFault, route};
use forebay_core::request::{FinishReason, SpanParent};
use forebay_core::units::Micros;
use forebay_engine::metrics::{Outcome, Route};
use forebay_engine::telemetry::{Answered, SpanContext};

const TRACEPARENT: &str = "traceparent";

/// In the extensions of each request. Cheap to clone.
#[derive(Clone)]
pub struct RequestLog(Arc<Inner>);

struct Inner {
    began: Micros,
    method: String,
    /// As the router has it: `/v1/models/{*id}`.
    path: String,
    route: Route,
    request_id: String,
    span: Option<SpanContext>,
    tally: Tally,
}

/// What handlers tell.
#[derive(Debug, Default)]
struct Tally {
    id: OnceLock<String>,
    /// One more than the number; 0 is unknown.
    prompt: AtomicU32,
    cached: AtomicU32,
    completion: AtomicU32,
    reason: OnceLock<&'static str>,
}

impl fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestLog({})", self.0.request_id)
    }
}

impl RequestLog {
    fn begin(front: &Front, request: &Request) -> RequestLog {
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let path = request.uri().path();
        let matched = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
        // Where a part of the routes has a fallback, the router has names of its own.
        let matched = matched.filter(|path| !path.contains("__private"));
        let route = route(path);
        RequestLog(Arc::new(Inner {
            began: front.clock.now(),
            method: request.method().as_str().chars().take(20).collect(),
            path: matched.unwrap_or_else(|| route.label().to_owned()),
            route,
            request_id: request.extensions().get::<RequestId>().map(RequestId::text).unwrap_or_default(),
            // Probes and scrapers come many times a second, and nobody follows them.
            span: front
                .telemetry
                .as_ref()
                .filter(|_| !is_probe(route))
                .map(|telemetry| telemetry.enter(header(TRACEPARENT), header("tracestate"))),
            tally: Tally::default(),
        }))
    }

    /// Of the request that a handler has in its hands.
    pub fn of(request: &Request) -> Option<RequestLog> {
        request.extensions().get().cloned()
    }

    /// For the spans inside its own.
    pub fn span(&self) -> Option<SpanParent> {
        self.0.span.as_ref()?.parent_of_others()
    }

    /// The id that the client reads in its answer.
    pub fn answers_as(&self, id: &str) {
        let _ = self.0.tally.id.set(id.to_owned());
    }

    pub fn prompt_tokens(&self, count: usize) {
        self.0.tally.prompt.store(count as u32 + 1, Ordering::Relaxed);
    }

    pub fn cached_tokens(&self, count: usize) {
        self.0.tally.cached.store(count as u32 + 1, Ordering::Relaxed);
    }

    pub fn completion_tokens(&self, count: usize) {
        self.0.tally.completion.store(count as u32 + 1, Ordering::Relaxed);
    }

    /// Of the first choice that finishes.
    pub fn finished(&self, reason: FinishReason) {
        let _ = self.0.tally.reason.set(reason.name());
    }

    fn tell(&self, front: &Front, status: u16, outcome: Outcome) {
        let Inner { began, method, path, route, request_id, span, tally } = &*self.0;
        let known = |count: &AtomicU32| count.load(Ordering::Relaxed).checked_sub(1);
        let (prompt, cached, completion) = (known(&tally.prompt), known(&tally.cached), known(&tally.completion));
        let (id, reason) = (tally.id.get().map(String::as_str), tally.reason.get().copied());
        let ended = front.clock.now();
        if let (Some(telemetry), Some(span)) = (&front.telemetry, span) {
            telemetry.request(
                span,
                &Answered {
                    began: *began,
                    ended,
                    method,
                    route: path,
                    status,
                    request_id,
                    id,
                    prompt_tokens: prompt,
                    completion_tokens: completion,
                    finish_reason: reason,
                    failed: outcome == Outcome::ServerError,
                },
            );
        }
        if !front.access_log.load(Ordering::Relaxed) {
            return;
        }
        let duration_ms = ended.since(*began).0 as f64 / 1e3;
        let outcome = outcome.label();
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    target: "forebay::access",
                    event = "request",
                    method,
                    route = path,
                    status,
                    outcome,
                    duration_ms,
                    request_id,
                    id,
                    prompt_tokens = prompt,
                    cached_tokens = cached,
                    completion_tokens = completion,
                    finish_reason = reason,
                    trace_id = span.as_ref().map(|span| format!("{:032x}", span.trace)),
                    "{method} {path} {status}"
                )
            };
        }
        if is_probe(*route) { line!(debug) } else { line!(info) }
    }
}

fn is_probe(route: Route) -> bool {
    matches!(route, Route::Health | Route::Metrics)
}

pub async fn layer(Extract(front): Extract<Front>, mut request: Request, next: Next) -> Response {
    let log = RequestLog::begin(&front, &request);
    // Other servers that are asked for this request stand inside its span.
    let told = log.0.span.as_ref().and_then(|span| HeaderValue::try_from(span.traceparent()).ok());
    if let Some(told) = told {
        request.headers_mut().insert(TRACEPARENT, told);
    }
    request.extensions_mut().insert(log.clone());
    let span = tracing::info_span!("request", request_id = log.0.request_id);
    // Dropped with this future when the client leaves before there is an answer.
    let mut ending = Ending { front, log, status: 0, whole: false, fault: None };
    let response = next.run(request).instrument(span).await;
    ending.status = response.status().as_u16();
    ending.fault = response.extensions().get::<StreamFault>().cloned();
    with_guard(response, ending)
}

/// Tells when dropped.
struct Ending {
    front: Front,
    log: RequestLog,
    status: u16,
    /// The client has everything.
    whole: bool,
    fault: Option<StreamFault>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let outcome = match self.status {
            _ if !self.whole => Outcome::Cancelled,
            _ if self.fault.as_ref().is_some_and(StreamFault::is_set) => Outcome::ServerError,
            500.. => Outcome::ServerError,
            400..500 => Outcome::ClientError,
            _ => Outcome::Ok,
        };
        self.log.tell(&self.front, self.status, outcome);
    }
}

impl BodyGuard for Ending {
    fn sent(&mut self) {
        self.whole = true;
    }
}
