//! An upstream's stream on its way to the client. Until its first token it may be begun again elsewhere, once; so what comes
//! before that is held back.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::stream::unfold;

use super::ask::Ask;
use super::event::{Meaning, Splitter, meaning};
use super::tally::Tally;
use super::upstream::{Attempt, Blame, Failure, Relay, blame, error_of, is_stream, respond};
use crate::api::anthropic::error::MessageErrorAnswer;
use crate::api::openai::responses::answer::ResponseErrorEvent;
use crate::api::request_metrics::StreamFault;
use crate::api::{error, sse};
use forebay_core::request::RequestError;
use forebay_core::workers::breaker::Verdict;
use forebay_engine::metrics::Route;
use forebay_engine::workers::{Answer, Fault, Lease};

struct Streamed {
    relay: Relay,
    ask: Ask,
    lease: Lease,
    answer: Answer,
    splitter: Splitter,
    /// What came before the first token.
    held: Vec<Bytes>,
    begun: bool,
    /// Which attempt this is; the last is not begun elsewhere.
    attempt: Attempt,
    /// Whole events for the client.
    ready: VecDeque<Bytes>,
    state: Progress,
    fault: StreamFault,
    tally: Tally,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Running,
    /// The last word has come; what is left is the end of the body.
    Done,
    /// The client has everything.
    Over,
}

/// The response. Dropping its body gives the upstream's connection up, which ends the request there.
pub fn response(relay: Relay, ask: Ask, lease: Lease, answer: Answer, attempt: Attempt) -> Response {
    let fault = StreamFault::default();
    let headers = answer.headers.clone();
    let worker = lease.worker_id().to_owned();
    let streamed = Streamed {
        tally: Tally::new(&ask),
        relay,
        ask,
        lease,
        answer,
        splitter: Splitter::default(),
        held: Vec::new(),
        begun: false,
        attempt,
        ready: VecDeque::new(),
        state: Progress::Running,
        fault: fault.clone(),
    };
    let events = unfold(streamed, |mut streamed| async move {
        let event = streamed.next().await?;
        Some((Ok::<Bytes, Infallible>(event), streamed))
    });
    let mut response = respond(StatusCode::OK, &headers, &worker, Body::from_stream(events));
    response.extensions_mut().insert(fault);
    response
}

impl Streamed {
    async fn next(&mut self) -> Option<Bytes> {
        while self.ready.is_empty() {
            if self.state == Progress::Over {
                return None;
            }
            let chunk = tokio::select! { biased;
                () = self.relay.front.workers.ended() => {
                    self.fail(RequestError::ShuttingDown);
                    continue;
                }
                chunk = self.answer.chunk() => chunk,
            };
            match chunk {
                _ if self.state == Progress::Done => self.done(chunk),
                Ok(Some(bytes)) => self.hear(&bytes).await,
                Ok(None) if self.ends_quietly() => {
                    self.lease.settle(Verdict::Success);
                    self.state = Progress::Over;
                }
                Ok(None) => self.broke(Fault::Cut("it ended before its last word".into())).await,
                Err(fault) => self.broke(fault).await,
            }
        }
        self.ready.pop_front()
    }

    /// Streams that we know end with a last word, or were cut; others end as they like.
    fn ends_quietly(&self) -> bool {
        let known = matches!(self.ask.route(), Route::Completions | Route::Chat | Route::Responses | Route::Messages);
        !known && self.begun && self.splitter.is_whole()
    }

    /// Only the end of the body is still wanted, so that the connection can be used again.
    fn done(&mut self, chunk: Result<Option<Bytes>, Fault>) {
        if !matches!(chunk, Ok(Some(_))) {
            self.state = Progress::Over;
        }
    }

    async fn hear(&mut self, bytes: &[u8]) {
        let events = match self.splitter.push(bytes) {
            Ok(events) => events,
            Err(long) => return self.broke(Fault::TooLarge(long.0)).await,
        };
        for event in events {
            let meaning = meaning(&event);
            self.tally.hear(&event, &meaning);
            match meaning {
                Meaning::Silence => self.ready.push_back(event),
                Meaning::Opening if !self.begun => self.held.push(event),
                Meaning::Opening | Meaning::Token => self.say(event),
                Meaning::Done => {
                    self.say(event);
                    self.lease.settle(Verdict::Success);
                    self.state = Progress::Done;
                    return;
                }
                Meaning::Error { worker } => {
                    if worker {
                        self.lease.settle(Verdict::Failure);
                    }
                    if worker && self.begin_elsewhere().await {
                        return;
                    }
                    self.lease.settle(Verdict::Uncounted);
                    self.count_error("upstream_error");
                    self.say(event);
                    // There it is the last word; elsewhere `[DONE]` follows.
                    if matches!(self.ask.route(), Route::Responses | Route::Messages) {
                        self.state = Progress::Done;
                        return;
                    }
                }
            }
        }
    }

    fn say(&mut self, event: Bytes) {
        self.begun = true;
        self.ready.extend(self.held.drain(..));
        self.ready.push_back(event);
    }

    /// The upstream failed.
    async fn broke(&mut self, fault: Fault) {
        tracing::warn!(event = "stream_broke", worker = self.lease.worker_id(), %fault, begun = self.begun, "a stream broke off");
        self.lease.settle(Verdict::Failure);
        if !self.begin_elsewhere().await {
            self.fail(error_of(&fault));
        }
    }

    /// Begins at another upstream what nobody has seen anything of; whether that came to something: a stream, or an error
    /// that the client hears.
    async fn begin_elsewhere(&mut self) -> bool {
        if self.begun || std::mem::replace(&mut self.attempt, Attempt::Last) == Attempt::Last {
            return false;
        }
        let (pool, failed) = (self.relay.front.workers.clone(), self.lease.worker());
        let fit = |worker| worker != failed && !pool.is_local(worker) && self.relay.may_serve(&self.ask, worker);
        let Ok(mut lease) = pool.lease(self.ask.sequences, &self.ask.chain, &fit) else { return false };
        pool.retried(failed);
        match self.relay.post(&self.ask, &mut lease).await {
            Ok(answer) if answer.status.is_success() && is_stream(&answer.headers) => {
                self.splitter = Splitter::default();
                self.held.clear();
                self.answer = answer;
                self.lease = lease;
                true
            }
            Ok(answer) => {
                if blame(answer.status) == Blame::Worker {
                    lease.settle(Verdict::Failure);
                }
                false
            }
            Err(Failure::Ending) => {
                self.fail(RequestError::ShuttingDown);
                true
            }
            Err(Failure::Fault(_) | Failure::Answer(_)) => false,
        }
    }

    /// The last thing that the client hears.
    fn fail(&mut self, error: RequestError) {
        self.count_error(error::face(&error).code);
        self.ready.extend(self.held.drain(..));
        self.ready.push_back(last_words(self.ask.route(), &error));
        self.state = Progress::Over;
    }

    fn count_error(&self, code: &'static str) {
        self.fault.set();
        self.relay.front.metrics.error(code, self.ask.route());
    }
}

/// An error in the form that the route's clients know, and the end.
fn last_words(route: Route, error: &RequestError) -> Bytes {
    match route {
        Route::Messages => format!("event: error\ndata: {}\n\n", sse::data(&MessageErrorAnswer::of(error))).into(),
        Route::Responses => {
            // The response itself is the other server's, which cannot be asked any more.
            format!("event: error\ndata: {}\n\n", sse::data(&ResponseErrorEvent::of(error))).into()
        }
        _ => format!("data: {}\n\ndata: {}\n\n", sse::data(&error::object(error)), sse::DONE).into(),
    }
}
