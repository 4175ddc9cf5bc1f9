//! The choices of one request, merged into one stream.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::bill::Bill;
use super::choice::Choice;
use super::delta::Delta;
use forebay_core::request::{Event, FinishReason, Request, RequestError, SamplingParams, Shaping};
use forebay_core::units::{Micros, TokenId};
use forebay_core::workers::breaker::Verdict;
use forebay_engine::workers::{Dispatched, Underway};

/// A running request. Dropping it aborts what is unfinished.
pub struct Generation {
    pub started: Started,
    pub choices: u32,
    /// One per choice; `None` when it has ended.
    running: Vec<Option<(Choice, mpsc::Receiver<Event>)>>,
    /// Said and not handed out yet: what one event brought, at most three deltas.
    said: VecDeque<(u32, Delta)>,
    /// Which choice is asked first next time, so that none is starved by a faster one.
    first: usize,
    underway: Underway,
    /// The requests once more, until their first token or their second worker.
    again: Option<Vec<Request>>,
    /// They are being begun elsewhere.
    moving: Option<Moving>,
    /// Nothing has failed yet.
    sound: bool,
    bill: Bill,
}

/// A group on its way to another worker, and what ended it at the first.
struct Moving {
    dispatched: BoxFuture<'static, Result<Dispatched, RequestError>>,
    why: RequestError,
}

/// What is known of a request once it is queued.
#[derive(Clone, Debug, Default)]
pub struct Started {
    pub prompt_tokens: Vec<TokenId>,
    /// Where an echo was asked for.
    pub prompt_text: Option<String>,
    /// The client asked for more tokens than the context leaves.
    pub clamped: Option<&'static str>,
    /// From its arrival; `None` while nothing was measured.
    pub predicted_ttft: Option<Micros>,
    pub effective: Option<Effective>,
    /// Tokens of the prompt that the first choice found in the KV cache; known before its first token.
    pub cached_tokens: usize,
}

/// How tokens are drawn, after defaults and limits.
#[derive(Clone, Debug)]
pub struct Effective {
    pub sampling: SamplingParams,
    pub shaping: Shaping,
    pub max_tokens: u32,
}

impl Effective {
    pub fn of(request: &Request) -> Effective {
        Effective {
            sampling: *request.sampling(),
            shaping: request.shaping().clone(),
            max_tokens: request.max_tokens(),
        }
    }
}

impl Generation {
    pub(super) fn new(started: Started, choices: Vec<Choice>, dispatched: Dispatched, bill: Bill) -> Generation {
        let Dispatched { accepted: _, events, underway, again } = dispatched;
        Generation {
            started,
            choices: choices.len() as u32,
            running: choices.into_iter().zip(events).map(Some).collect(),
            said: VecDeque::new(),
            first: 0,
            underway,
            again,
            moving: None,
            sound: true,
            bill,
        }
    }

    /// The next delta and the index of its choice; `None` when all choices have ended. Cancel safe.
    pub async fn next(&mut self) -> Option<(u32, Delta)> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(u32, Delta)>> {
        loop {
            if let Some(delta) = self.said.pop_front() {
                self.bill.hear(&delta);
                return Poll::Ready(Some(delta));
            }
            if let Some(moving) = &mut self.moving {
                let Poll::Ready(dispatched) = moving.dispatched.as_mut().poll(context) else { return Poll::Pending };
                self.moved(dispatched);
                continue;
            }
            if self.running.iter().all(Option::is_none) {
                return Poll::Ready(None);
            }
            let Poll::Ready((index, event)) = self.poll_events(context) else { return Poll::Pending };
            self.hear(index, event);
        }
    }

    /// The next event of any choice. All that have none are registered with the waker.
    fn poll_events(&mut self, context: &mut Context<'_>) -> Poll<(usize, Event)> {
        let count = self.running.len();
        for index in (0..count).map(|offset| (self.first + offset) % count) {
            let Some((_, events)) = &mut self.running[index] else { continue };
            if let Poll::Ready(event) = events.poll_recv(context) {
                self.first = index + 1;
                // The loop has gone without a last word.
                return Poll::Ready((index, event.unwrap_or(Event::Failed(RequestError::EngineStopped))));
            }
        }
        Poll::Pending
    }

    fn hear(&mut self, index: usize, event: Event) {
        match &event {
            Event::Token(_) | Event::Embedded(_) => self.again = None,
            Event::Failed(why) if why.is_worker_fault() => {
                self.underway.lease.settle(Verdict::Failure);
                if self.move_elsewhere(why.clone()) {
                    return;
                }
                self.sound = false;
            }
            Event::Failed(_) | Event::Finished(FinishReason::Abort) => self.sound = false,
            Event::Admitted { .. } | Event::Finished(_) => {}
        }
        let Some((choice, _)) = &mut self.running[index] else { return };
        let from_engine = matches!(event, Event::Finished(_) | Event::Failed(_));
        let seq = choice.seq();
        let deltas = choice.hear(event);
        if deltas.iter().any(|delta| matches!(delta, Delta::Finished { .. } | Delta::Failed(_))) {
            // Closes the channel. An end that the engine does not know of, a stop string, has to be told.
            self.running[index] = None;
            self.underway.ended(seq, from_engine);
            if self.sound && self.running.iter().all(Option::is_none) {
                self.underway.lease.settle(Verdict::Success);
            }
        }
        self.said.extend(deltas.into_iter().map(|delta| (index as u32, delta)));
    }

    /// Begins the whole group elsewhere, if no client has seen any of it and that was not done before.
    fn move_elsewhere(&mut self, why: RequestError) -> bool {
        let Some(group) = self.again.take() else { return false };
        if self.running.iter().any(Option::is_none) {
            return false;
        }
        let (pool, failed) = (self.underway.lease.pool().clone(), self.underway.lease.worker());
        let dispatched = Box::pin(async move { pool.resubmit(group, failed).await });
        self.moving = Some(Moving { dispatched, why });
        true
    }

    /// The group is queued elsewhere, or nobody else wants it: then what ended it is what its client hears.
    fn moved(&mut self, dispatched: Result<Dispatched, RequestError>) {
        let Some(Moving { why, .. }) = self.moving.take() else { return };
        match dispatched {
            Ok(Dispatched { events, underway, .. }) => {
                // What is left of it at the first worker is aborted.
                self.underway = underway;
                for (running, events) in self.running.iter_mut().zip(events) {
                    *running = running.take().map(|(choice, _)| (choice, events));
                }
            }
            Err(_) => (0..self.running.len()).for_each(|index| self.hear(index, Event::Failed(why.clone()))),
        }
    }
}
