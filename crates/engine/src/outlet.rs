//! The clients' ends: one event channel per sequence, with room for everything it can ever say, so that delivering never
//! waits and a slow client costs bounded memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use tokio::sync::mpsc;

use crate::metrics::{AdapterUse, Life, Metrics, Progress};
use forebay_core::report::Decision;
use forebay_core::request::{Event, FinishReason};
use forebay_core::units::{Micros, SeqId};

use super::permit::Permit;

/// Channels of queued requests that are looked at in one turn of the loop: a turn must not take longer when more wait.
const QUEUED_PER_TURN: usize = 256;

/// An open channel and what its latency metrics need.
struct Outlet {
    events: mpsc::Sender<Event>,
    submitted: Micros,
    last_token: Option<Micros>,
    /// When the first token was expected.
    predicted: Option<Micros>,
    /// Held while the request is queued.
    permit: Option<Permit>,
    released: Option<Micros>,
    first_token: Option<Micros>,
    prompt: Progress,
    prompt_tokens: usize,
    max_tokens: usize,
    generated: usize,
    adapter: Option<AdapterUse>,
}

/// A sequence that was acknowledged.
pub struct Opening {
    pub events: mpsc::Sender<Event>,
    pub permit: Permit,
    /// When its first token is expected.
    pub predicted: Option<Micros>,
    pub prompt_tokens: usize,
    pub max_tokens: usize,
    /// Counts it with its adapter.
    pub adapter: Option<AdapterUse>,
}

/// What happened to a sequence beside what its client hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// So long after it was submitted.
    Admitted,
    FirstToken(Micros),
    NextToken,
    Ended,
}

impl Outlet {
    fn life(&self, now: Micros) -> Life {
        let since = |at: Micros| at.since(self.submitted);
        Life {
            prompt_tokens: self.prompt_tokens,
            generated_tokens: self.generated,
            max_tokens: self.max_tokens,
            released: since(self.released.unwrap_or(self.submitted)),
            first_token: self.first_token.map(since),
            last_token: since(self.last_token.unwrap_or(now)),
        }
    }
}

/// All sequences that were acknowledged and have not ended, queued ones included.
#[derive(Default)]
pub struct Outlets {
    open: BTreeMap<SeqId, Outlet>,
    /// Those that have left the queue.
    seated: BTreeSet<SeqId>,
    /// Where [`Outlets::gone`] stopped looking.
    looked_at: SeqId,
}

impl Outlets {
    pub fn open(&mut self, seq: SeqId, opening: Opening, now: Micros) {
        let Opening { events, permit, predicted, prompt_tokens, max_tokens, adapter } = opening;
        let outlet = Outlet {
            events,
            submitted: now,
            last_token: None,
            predicted,
            permit: Some(permit),
            released: None,
            first_token: None,
            prompt: Progress::new(prompt_tokens),
            prompt_tokens,
            max_tokens,
            generated: 0,
            adapter,
        };
        self.open.insert(seq, outlet);
    }

    /// The sequence has left the queue: its place is free.
    pub fn seated(&mut self, seq: SeqId, now: Micros) {
        if let Some(outlet) = self.open.get_mut(&seq) {
            outlet.permit = None;
            outlet.released = Some(now);
            self.seated.insert(seq);
        }
    }

    /// What was decided for a sequence may have brought its prompt further.
    pub fn decided(&mut self, seq: SeqId, decision: &Decision, metrics: &Metrics) {
        let Some(outlet) = self.open.get_mut(&seq) else { return };
        match *decision {
            Decision::Admitted { cached_tokens, .. } => metrics.prompt_cached(outlet.prompt.found(cached_tokens)),
            Decision::Prefill { from, to } => {
                let (new, again) = outlet.prompt.computed(from as usize, to as usize);
                metrics.prompt_computed(new, again);
            }
            _ => {}
        }
    }

    /// Sends one event. `None` when the sequence is not open. One whose client has gone stays open here until
    /// [`Outlets::gone`] finds it.
    pub fn send(&mut self, seq: SeqId, event: Event, now: Micros, metrics: &Metrics) -> Option<Heard> {
        let outlet = self.open.get_mut(&seq)?;
        let heard = match &event {
            Event::Admitted { .. } => {
                outlet.adapter.iter_mut().for_each(AdapterUse::seated);
                Heard::Admitted
            }
            Event::Token(_) | Event::Embedded(_) => {
                outlet.generated += 1;
                outlet.first_token.get_or_insert(now);
                match outlet.last_token.replace(now) {
                    None => {
                        let ttft = now.since(outlet.submitted);
                        metrics.first_token(ttft, outlet.predicted.map(|at| at.since(outlet.submitted)), now);
                        Heard::FirstToken(ttft)
                    }
                    Some(before) => {
                        metrics.next_token(now.since(before), now);
                        Heard::NextToken
                    }
                }
            }
            Event::Finished(reason) => {
                let completed = *reason != FinishReason::Abort;
                metrics.prompt_ended(outlet.prompt.missing(), completed);
                if completed {
                    metrics.lived(&outlet.life(now));
                }
                metrics.finished(*reason, now.since(outlet.submitted), now);
                Heard::Ended
            }
            Event::Failed(_) => {
                metrics.prompt_ended(outlet.prompt.missing(), false);
                metrics.failed();
                Heard::Ended
            }
        };
        // Closed means that the client has gone. Full cannot be: the channel holds all tokens and the end.
        let _ = outlet.events.try_send(event);
        if heard == Heard::Ended {
            self.open.remove(&seq);
            self.seated.remove(&seq);
        }
        Some(heard)
    }

    /// All that are open, in no order that matters.
    pub fn all(&self) -> Vec<SeqId> {
        self.open.keys().copied().collect()
    }

    /// Sequences whose client no longer listens: to be aborted within this turn of the loop. All those that have left the
    /// queue, and of the queued ones the next few.
    pub fn gone(&mut self) -> Vec<SeqId> {
        let closed = |seq: &SeqId| self.open.get(seq).is_some_and(|outlet| outlet.events.is_closed());
        let mut gone: Vec<SeqId> = self.seated.iter().copied().filter(closed).collect();
        let after = self.open.range((Bound::Excluded(self.looked_at), Bound::Unbounded));
        let next = after.chain(self.open.range(..=self.looked_at)).take(QUEUED_PER_TURN);
        let mut last = self.looked_at;
        for (&seq, outlet) in next {
            last = seq;
            if outlet.permit.is_some() && outlet.events.is_closed() {
                gone.push(seq);
            }
        }
        self.looked_at = last;
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::super::permit::Gate;
    use super::*;
    use forebay_core::intake::Capacity;

    #[test]
    fn who_left_the_queue_is_seen_at_once_and_who_waits_within_a_few_turns() {
        let count = 3 * QUEUED_PER_TURN + 1;
        let gate = Gate::new(Capacity { requests: count, tokens: count });
        let mut outlets = Outlets::default();
        let mut clients = Vec::new();
        for seq in 0..count {
            let (events, client) = mpsc::channel(4);
            let permit = gate.enter(1, 1, 0.5).unwrap();
            let opening = Opening { events, permit, predicted: None, prompt_tokens: 1, max_tokens: 1, adapter: None };
            outlets.open(SeqId(seq as u64), opening, Micros::ZERO);
            clients.push(client);
        }
        let last = SeqId(count as u64 - 1);
        outlets.seated(last, Micros::ZERO);
        assert_eq!(outlets.gone(), vec![]);
        drop(clients);
        let mut seen = BTreeSet::new();
        for _ in 0..4 {
            let gone = outlets.gone();
            assert!(gone.contains(&last) && gone.len() <= QUEUED_PER_TURN + 1);
            seen.extend(gone);
        }
        assert_eq!(seen.len(), count);
    }
}
