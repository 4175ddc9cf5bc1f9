//! Requests that another server answers: found a worker, sent on, streamed back.
//!
//! ```text
//! read the body ─ ask.rs: what decides who takes it ─ Pool::lease ─┬─ an engine of ours: the handler behind this layer
//!                                                                  └─ an upstream: its answer, or its stream (stream.rs)
//! failed before its first token: once more elsewhere ◀──────────────┘
//! ```
//! Bodies go through as they are; only `default` becomes a name that the upstream knows. A client's API key stays here, and what
//! the upstream says of tokens is charged to it (tally.rs). Only routes that we know are sent on (paths.rs).

mod ask;
mod event;
mod paths;
mod stream;
mod tally;
mod upstream;

use axum::Json;
use axum::body::Body;
use axum::extract::{OriginalUri, Request, State as Extract};
use axum::http::{HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::api::access::Identity;
use crate::api::error::ApiError;
use crate::api::openai::models::{self, ModelList, ModelObject};
use crate::api::pipeline::head;
use crate::api::refused::{no_route, refused};
use crate::api::{extract, replay};
use forebay_core::request::RequestError;
use forebay_core::workers::breaker::Verdict;
use forebay_engine::workers::Lease;

use ask::Ask;
pub use upstream::Relay;
use upstream::{Attempt, Blame, Failure, blame, is_stream, respond};

/// Whose a request is.
enum Taken {
    Ours(Request),
    Answered(Response),
}

/// Answers that are not streams are held whole; a larger one is nobody's completion.
const MAX_ANSWER: usize = 64 << 20;

/// Before the handlers of a server that has a model of its own and upstreams.
pub async fn layer(Extract(relay): Extract<Relay>, request: Request, next: Next) -> Response {
    let path = path(&request).path().to_owned();
    match relay.take(request).await {
        Ok(Taken::Ours(request)) => next.run(request).await,
        Ok(Taken::Answered(response)) => response,
        Err(error) => refused(&path, error),
    }
}

/// Everything, where there is no model but those of upstreams.
pub async fn handle(Extract(relay): Extract<Relay>, request: Request) -> Response {
    let path = path(&request).path().to_owned();
    match relay.take(request).await {
        Ok(Taken::Ours(request)) => no_route(request).await,
        Ok(Taken::Answered(response)) => response,
        Err(error) => refused(&path, error),
    }
}

/// As the client asked for it.
fn path(request: &Request) -> Uri {
    request.extensions().get::<OriginalUri>().map_or(request.uri(), |OriginalUri(uri)| uri).clone()
}

impl Relay {
    async fn take(&self, request: Request) -> Result<Taken, RequestError> {
        let path = path(&request);
        if request.method() == Method::GET {
            return Ok(self.models(path.path()).map_or(Taken::Ours(request), Taken::Answered));
        }
        if request.method() != Method::POST {
            return Ok(Taken::Ours(request));
        }
        let Some(target) = paths::target(&path) else { return Ok(Taken::Ours(request)) };
        let (mut parts, body) = request.into_parts();
        let copy = Request::from_parts(parts.clone(), body);
        let (body, object) = extract::read_whole(copy, self.front.body).await?;
        let identity = parts.extensions.get::<Identity>();
        let stated = identity.map(|_| head::stated(&parts.headers, &object)).transpose()?.flatten();
        let mut ask = Ask::new(target, &parts.headers, body, object)?;
        if let Some(identity) = identity {
            ask.keyed(identity, stated)?;
        }
        // Streams that can be read again are kept here, and only those of our own model.
        let ours_only = replay::conversation(&parts.headers)?.is_some();
        if ours_only && self.generator.is_none() {
            let message = "streams of other servers cannot be read again here".into();
            return Err(RequestError::Unsupported { param: "x-conversation-id".into(), message });
        }
        match self.answer(&ask, ours_only).await? {
            Some(response) => Ok(Taken::Answered(response)),
            None => {
                // The handler reads it as if nobody had.
                parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(ask.body().len()));
                Ok(Taken::Ours(Request::from_parts(parts, Body::from(ask.body().clone()))))
            }
        }
    }

    /// The answer of an upstream, of two at most; `None` when it is for an engine of ours.
    async fn answer(&self, ask: &Ask, ours_only: bool) -> Result<Option<Response>, RequestError> {
        let pool = &self.front.workers;
        let fit = |worker: usize| self.may_serve(ask, worker) && (!ours_only || pool.is_local(worker));
        if !(0..pool.size()).any(fit) {
            return Err(RequestError::ModelNotFound { model: ask.shown_model() });
        }
        let lease = pool.lease(ask.sequences, &ask.chain, &fit)?;
        if lease.upstream().is_none() {
            lease.withdraw();
            return Ok(None);
        }
        let failed = lease.worker();
        let failure = match self.attempt(ask, lease, Attempt::First).await {
            Ok(response) => return Ok(Some(response)),
            Err(Failure::Ending) => return Err(RequestError::ShuttingDown),
            Err(failure) => failure,
        };
        let Ok(lease) = pool.lease(ask.sequences, &ask.chain, &|worker| worker != failed && fit(worker)) else {
            return failure.into_answer().map(Some);
        };
        pool.retried(failed);
        if lease.upstream().is_none() {
            lease.withdraw();
            return Ok(None);
        }
        match self.attempt(ask, lease, Attempt::Last).await {
            Ok(response) => Ok(Some(response)),
            Err(failure) => failure.into_answer().map(Some),
        }
    }

    fn may_serve(&self, ask: &Ask, worker: usize) -> bool {
        let Some(model) = ask.model() else { return true };
        let own = self.generator.as_ref().is_some_and(|generator| generator.served(model));
        self.front.workers.upstream(worker).map_or(own, |upstream| upstream.may_serve(model))
    }

    /// One upstream's answer.
    async fn attempt(&self, ask: &Ask, mut lease: Lease, attempt: Attempt) -> Result<Response, Failure> {
        let answer = self.post(ask, &mut lease).await?;
        let (status, headers) = (answer.status, answer.headers.clone());
        if status.is_success() && is_stream(&headers) {
            return Ok(stream::response(self.clone(), ask.clone(), lease, answer, attempt));
        }
        let worker = lease.worker_id().to_owned();
        let whole = tokio::select! { biased;
            () = self.front.workers.ended() => return Err(Failure::Ending),
            whole = answer.whole(MAX_ANSWER) => whole,
        };
        let body = whole.map_err(|fault| {
            lease.settle(Verdict::Failure);
            Failure::Fault(fault)
        })?;
        let bytes = body.clone();
        let response = respond(status, &headers, &worker, body);
        match blame(status) {
            Blame::Nobody => {
                lease.settle(Verdict::Success);
                tally::whole(ask, &bytes);
                Ok(response)
            }
            Blame::Client => Ok(response),
            Blame::Load => Err(Failure::Answer(response.into())),
            Blame::Worker => {
                lease.settle(Verdict::Failure);
                Err(Failure::Answer(response.into()))
            }
        }
    }

    /// The models of all workers, or one of them; `None` where something else was asked for.
    fn models(&self, path: &str) -> Option<Response> {
        let path = path.strip_prefix("/v1").unwrap_or(path);
        let mut data: Vec<ModelObject> =
            self.generator.iter().flat_map(|generator| models::objects(&self.front.info, generator)).collect();
        let theirs = self.front.workers.upstreams().flat_map(|upstream| upstream.models());
        for id in theirs {
            if data.iter().all(|known| known.id != id) {
                data.push(ModelObject::of_upstream(id, self.front.info.created));
            }
        }
        if path == "/models" {
            return Some(Json(ModelList::new(data)).into_response());
        }
        let id = path.strip_prefix("/models/")?;
        let id = id.replace("%2F", "/").replace("%2f", "/");
        match data.into_iter().find(|model| model.id == id) {
            Some(model) => Some(Json(model).into_response()),
            // `default`, which no list has, is known to the handler.
            None if self.generator.is_some() => None,
            None => {
                Some(ApiError(RequestError::ModelNotFound { model: id.chars().take(200).collect() }).into_response())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use axum::http::{HeaderMap, StatusCode};

    use super::*;

    #[test]
    fn only_the_workers_own_faults_are_held_against_it() {
        let of = |status| blame(StatusCode::from_u16(status).unwrap());
        assert_eq!([200, 204, 304].map(of), [Blame::Nobody; 3]);
        assert_eq!([400, 401, 404, 408, 422, 499, 501].map(of), [Blame::Client; 7]);
        assert_eq!([500, 502, 503, 504].map(of), [Blame::Worker; 4]);
        assert_eq!(of(429), Blame::Load);
    }

    #[test]
    fn headers_of_the_connection_end_here() {
        let pairs = [("connection", "close"), ("transfer-encoding", "chunked"), ("retry-after", "3"), ("x-own", "1")];
        let theirs = HeaderMap::from_iter(pairs.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())));
        let response = respond(StatusCode::TOO_MANY_REQUESTS, &theirs, "upstream-1", Bytes::new());
        let names: Vec<&str> = response.headers().keys().map(|name| name.as_str()).collect();
        assert_eq!(names, ["retry-after", "x-own", "x-forebay-worker"]);
    }
}
