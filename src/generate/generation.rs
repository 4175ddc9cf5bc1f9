//! The choices of one request, merged into one stream.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};

use tokio::sync::mpsc;

use super::{Choice, Delta};
use crate::engine::EngineHandle;
use crate::request::{Event, Request, RequestError, SamplingParams, Shaping};
use crate::units::{Micros, SeqId, TokenId};

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
    unfinished: Unfinished,
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
    pub(super) fn new(
        started: Started,
        choices: Vec<Choice>,
        events: Vec<mpsc::Receiver<Event>>,
        unfinished: Unfinished,
    ) -> Generation {
        Generation {
            started,
            choices: choices.len() as u32,
            running: choices.into_iter().zip(events).map(Some).collect(),
            said: VecDeque::new(),
            first: 0,
            unfinished,
        }
    }

    /// The next delta and the index of its choice; `None` when all choices have ended. Cancel safe.
    pub async fn next(&mut self) -> Option<(u32, Delta)> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(u32, Delta)>> {
        loop {
            if let Some(delta) = self.said.pop_front() {
                return Poll::Ready(Some(delta));
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
        let Some((choice, _)) = &mut self.running[index] else { return };
        let from_engine = matches!(event, Event::Finished(_) | Event::Failed(_));
        let seq = choice.seq();
        let deltas = choice.hear(event);
        if deltas.iter().any(|delta| matches!(delta, Delta::Finished { .. } | Delta::Failed(_))) {
            // Closes the channel. An end that the engine does not know of, a stop string, has to be told.
            self.running[index] = None;
            self.unfinished.ended(seq, from_engine);
        }
        self.said.extend(deltas.into_iter().map(|delta| (index as u32, delta)));
    }
}

/// The sequences that the engine may still be running for us; aborted when dropped.
pub(super) struct Unfinished {
    engine: EngineHandle,
    seqs: Vec<SeqId>,
}

impl Unfinished {
    pub fn new(engine: EngineHandle, seqs: impl Iterator<Item = SeqId>) -> Unfinished {
        Unfinished { engine, seqs: seqs.collect() }
    }

    /// The engine took none of them.
    pub fn refused(&mut self) {
        self.seqs.clear();
    }

    /// A sequence has ended, and the engine knows it or is told now.
    fn ended(&mut self, seq: SeqId, engine_knows: bool) {
        self.seqs.retain(|&other| other != seq);
        if !engine_knows {
            self.engine.abort(seq);
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.seqs.iter().for_each(|&seq| self.engine.abort(seq));
    }
}
