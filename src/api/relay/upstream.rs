//! One upstream asked once: who is to blame for what it answers, and its answer as ours.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;

use super::ask::{self, Ask};
use crate::api::Front;
use crate::api::error::ErrorCode;
use crate::generate::Generator;
use forebay_core::request::RequestError;
use forebay_core::workers::breaker::Verdict;
use forebay_engine::workers::{Answer, Fault, Lease};

/// What relaying needs. Cheap to clone.
#[derive(Clone)]
pub struct Relay {
    pub front: Front,
    /// The server's own model, if it has one.
    pub generator: Option<Generator>,
}

/// Why an upstream's answer is not passed on yet: another worker may do better.
pub enum Failure {
    Fault(Fault),
    /// An error of its own, whole.
    Answer(Box<Response>),
    /// We are shutting down.
    Ending,
}

/// Whether somebody else may try, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    First,
    Last,
}

/// Who answered.
const WORKER_HEADER: &str = "x-forebay-worker";

impl Relay {
    /// The head of an upstream's answer.
    pub async fn post(&self, ask: &Ask, lease: &mut Lease) -> Result<Answer, Failure> {
        let Some(upstream) = lease.upstream() else { return Err(Failure::Ending) };
        let sent = tokio::select! { biased;
            () = self.front.workers.ended() => return Err(Failure::Ending),
            sent = upstream.post(&ask.target().path, ask.target().query.as_deref(), ask.headers(), ask.body_for(upstream)) => sent,
        };
        sent.map_err(|fault| {
            tracing::warn!(event = "upstream_failed", worker = lease.worker_id(), %fault, "an upstream failed a request");
            lease.settle(Verdict::Failure);
            Failure::Fault(fault)
        })
    }
}

impl Failure {
    pub fn into_answer(self) -> Result<Response, RequestError> {
        match self {
            Failure::Answer(response) => Ok(*response),
            Failure::Fault(fault) => Err(error_of(&fault)),
            Failure::Ending => Err(RequestError::ShuttingDown),
        }
    }
}

/// What a client hears of a fault that nobody made good.
pub fn error_of(fault: &Fault) -> RequestError {
    match fault {
        Fault::Silent(waited) => RequestError::BatchTimeout { waited_ms: waited.as_millis() as u64 },
        Fault::Unreachable(_) | Fault::Cut(_) | Fault::TooLarge(_) | Fault::Status(_) | Fault::Path(_) => {
            RequestError::EngineStopped
        }
    }
}

/// Who is to blame for a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    Nobody,
    Client,
    /// It has too much to do: another may have less, and the worker did nothing wrong.
    Load,
    Worker,
}

pub fn blame(status: StatusCode) -> Blame {
    match status.as_u16() {
        ..400 => Blame::Nobody,
        429 => Blame::Load,
        // It does not know the route: a client asked for something that nobody here has.
        400..=499 | 501 => Blame::Client,
        _ => Blame::Worker,
    }
}

pub fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.to_ascii_lowercase().starts_with("text/event-stream")
}

/// An upstream's answer with its own headers, those of its connection left out.
pub fn respond(status: StatusCode, theirs: &HeaderMap, worker: &str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in theirs.iter().filter(|(name, _)| ask::is_end_to_end(name)) {
        headers.append(name.clone(), value.clone());
    }
    if let Ok(worker) = HeaderValue::from_str(worker) {
        headers.insert(WORKER_HEADER, worker);
    }
    if status.is_client_error() || status.is_server_error() {
        response.extensions_mut().insert(ErrorCode("upstream_error"));
    }
    response
}
