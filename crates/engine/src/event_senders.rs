//! The sending ends of the clients' event channels: one per sequence, with room for everything it can ever say, so that
//! delivering never waits and a slow client costs bounded memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use tokio::sync::mpsc;

use crate::metrics::{AdapterUse, Life, Metrics, Progress};
use forebay_core::report::Decision;
use forebay_core::request::{Event, FinishReason, Priority};
use forebay_core::slo::Promise;
use forebay_core::units::{Micros, SeqId};

use super::permit::Permit;

/// Channels of queued requests that are looked at in one turn of the loop: a turn must not take longer when more wait.
const QUEUED_PER_TURN: usize = 256;

/// An open channel, and what the latency metrics of its sequence need.
struct EventSender {
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
    class: Priority,
    /// When it came to the server.
    received: Micros,
    promise: Option<Promise>,
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
    pub class: Priority,
    /// When it came to the server.
    pub received: Micros,
    /// What its class was promised when it came; nothing to batches.
    pub promise: Option<Promise>,
    /// Counts it with its adapter.
    pub adapter: Option<AdapterUse>,
}

/// What an event was to its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Admitted,
    FirstToken,
    NextToken,
    End,
}

impl EventSender {
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

    /// Whether it was served as promised, as far as can be said at `now`, when it ends. Where its client left while the promise could
    /// still be kept, nothing can.
    fn kept(&self, end: &Event, now: Micros) -> Option<bool> {
        let promise = self.promise?;
        let ttft = self.first_token.unwrap_or(now).since(self.received);
        let decoded = self.first_token.zip(self.last_token).map(|(first, last)| last.since(first));
        let keeps = promise.is_kept(ttft, decoded.unwrap_or_default(), self.generated);
        match end {
            Event::Failed(_) => Some(false),
            Event::Finished(FinishReason::Abort) => (!keeps).then_some(false),
            _ => Some(keeps),
        }
    }
}

/// All sequences that were acknowledged and have not ended, queued ones included.
#[derive(Default)]
pub struct EventSenders {
    open: BTreeMap<SeqId, EventSender>,
    /// Those that have left the queue.
    seated: BTreeSet<SeqId>,
    /// Where [`EventSenders::disconnected`] stopped looking.
    looked_at: SeqId,
}

impl EventSenders {
    pub fn open(&mut self, seq: SeqId, opening: Opening, now: Micros) {
        let Opening { events, permit, predicted, prompt_tokens, max_tokens, class, received, promise, adapter } =
            opening;
        let sender = EventSender {
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
            class,
            received,
            promise,
            adapter,
        };
        self.open.insert(seq, sender);
    }

    /// The sequence has left the queue: its place is free.
    pub fn seated(&mut self, seq: SeqId, now: Micros) {
        if let Some(sender) = self.open.get_mut(&seq) {
            sender.permit = None;
            sender.released = Some(now);
            self.seated.insert(seq);
        }
    }

    /// What was decided for a sequence may have brought its prompt further.
    pub fn decided(&mut self, seq: SeqId, decision: &Decision, metrics: &Metrics) {
        let Some(sender) = self.open.get_mut(&seq) else { return };
        match *decision {
            Decision::Admitted { cached_tokens, .. } => metrics.prompt_cached(sender.prompt.found(cached_tokens)),
            Decision::Prefill { from, to } => {
                let (new, again) = sender.prompt.computed(from as usize, to as usize);
                metrics.prompt_computed(new, again);
            }
            _ => {}
        }
    }

    /// Sends one event. `None` when the sequence is not open. One whose client has gone stays open here until
    /// [`EventSenders::disconnected`] finds it.
    pub fn send(&mut self, seq: SeqId, event: Event, now: Micros, metrics: &Metrics) -> Option<Sent> {
        let sender = self.open.get_mut(&seq)?;
        let sent = match &event {
            Event::Admitted { .. } => {
                sender.adapter.iter_mut().for_each(AdapterUse::seated);
                Sent::Admitted
            }
            Event::Token(_) | Event::Embedded(_) => {
                sender.generated += 1;
                sender.first_token.get_or_insert(now);
                match sender.last_token.replace(now) {
                    None => {
                        let ttft = now.since(sender.submitted);
                        metrics.first_token(ttft, sender.predicted.map(|at| at.since(sender.submitted)), now);
                        Sent::FirstToken
                    }
                    Some(before) => {
                        metrics.next_token(now.since(before), now);
                        Sent::NextToken
                    }
                }
            }
            Event::Finished(reason) => {
                let completed = *reason != FinishReason::Abort;
                metrics.prompt_ended(sender.prompt.missing(), completed);
                if completed {
                    metrics.lived(&sender.life(now));
                }
                metrics.finished(*reason, now.since(sender.submitted), now);
                Sent::End
            }
            Event::Failed(_) => {
                metrics.prompt_ended(sender.prompt.missing(), false);
                metrics.failed();
                Sent::End
            }
        };
        if let (Sent::End, Some(kept)) = (sent, sender.kept(&event, now)) {
            metrics.promised(sender.class, kept);
        }
        // Closed means that the client has gone. Full cannot be: the channel holds all tokens and the end.
        let _ = sender.events.try_send(event);
        if sent == Sent::End {
            self.open.remove(&seq);
            self.seated.remove(&seq);
        }
        Some(sent)
    }

    /// All that are open, in no order that matters.
    pub fn all(&self) -> Vec<SeqId> {
        self.open.keys().copied().collect()
    }

    /// Sequences whose client no longer listens: to be aborted within this turn of the loop. All those that have left the
    /// queue, and of the queued ones the next few.
    pub fn disconnected(&mut self) -> Vec<SeqId> {
        let closed = |seq: &SeqId| self.open.get(seq).is_some_and(|sender| sender.events.is_closed());
        let mut gone: Vec<SeqId> = self.seated.iter().copied().filter(closed).collect();
        let after = self.open.range((Bound::Excluded(self.looked_at), Bound::Unbounded));
        let next = after.chain(self.open.range(..=self.looked_at)).take(QUEUED_PER_TURN);
        let mut last = self.looked_at;
        for (&seq, sender) in next {
            last = seq;
            if sender.permit.is_some() && sender.events.is_closed() {
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
    use forebay_core::request::RequestError;
    use forebay_core::slo::Slo;
    use forebay_core::step::Sampled;

    fn opening(events: mpsc::Sender<Event>, permit: Permit, class: Priority) -> Opening {
        let promise = Slo::DEFAULT.promise(class);
        let (received, adapter) = (Micros::ZERO, None);
        Opening { events, permit, predicted: None, prompt_tokens: 1, max_tokens: 9, class, received, promise, adapter }
    }

    /// A sequence of a class whose tokens come at these times in ms and that then ends; how many kept and broke the promise.
    fn judged(class: Priority, tokens: &[u64], end: Event, at: u64) -> [f64; 2] {
        let metrics = Metrics::new();
        let mut senders = EventSenders::default();
        let (events, _client) = mpsc::channel(16);
        metrics.admitted(1, 1);
        senders.open(SeqId(1), opening(events, Permit::default(), class), Micros::ZERO);
        for at in tokens {
            let token = Sampled { token: 5, logprobs: None };
            senders.send(SeqId(1), Event::Token(token), Micros::from_millis(*at), &metrics);
        }
        senders.send(SeqId(1), end, Micros::from_millis(at), &metrics);
        let text = metrics.render(0);
        ["kept", "broken"].map(|outcome| {
            let series = format!("forebay_promises_total{{outcome=\"{outcome}\",priority=\"{}\"}} ", class.name());
            let line = text.lines().find_map(|line| line.strip_prefix(&series));
            line.map_or(0.0, |value| value.parse().unwrap())
        })
    }

    #[test]
    fn goodput_counts_what_ended_within_its_promise_and_outside() {
        let (stop, abort) = (|| Event::Finished(FinishReason::Stop), || Event::Finished(FinishReason::Abort));
        let failed = || Event::Failed(RequestError::StepFailed);
        let (kept, broken, neither) = ([1.0, 0.0], [0.0, 1.0], [0.0, 0.0]);
        // Normal: the first token within 2 s, then one in 200 ms.
        for (tokens, end, at, expected) in [
            (&[2_000, 2_200, 2_400][..], stop(), 2_400, kept),
            (&[2_001, 2_002], stop(), 2_002, broken),
            (&[100, 150, 501], stop(), 501, broken),
            // It is the mean that counts, not the longest.
            (&[100, 150, 500], stop(), 500, kept),
            (&[100], stop(), 100, kept),
            (&[100], failed(), 150, broken),
            // A client that leaves in time has not been disappointed, and not been served either.
            (&[100, 200], abort(), 250, neither),
            (&[], abort(), 1_999, neither),
            (&[], abort(), 2_001, broken),
        ] {
            assert_eq!(judged(Priority::Normal, tokens, end, at), expected, "{tokens:?} until {at}");
        }
        assert_eq!(judged(Priority::Low, &[9_000, 9_400], stop(), 9_400), kept, "each class has its own");
        assert_eq!(judged(Priority::Batch, &[9_000], stop(), 9_000), neither, "nothing is promised to batches");
    }

    #[test]
    fn who_left_the_queue_is_seen_at_once_and_who_waits_within_a_few_turns() {
        let count = 3 * QUEUED_PER_TURN + 1;
        let gate = Gate::new(Capacity { requests: count, tokens: count });
        let mut senders = EventSenders::default();
        let mut clients = Vec::new();
        for seq in 0..count {
            let (events, client) = mpsc::channel(4);
            let permit = gate.enter(Priority::Normal, 1, 1, 0.5).unwrap();
            senders.open(SeqId(seq as u64), opening(events, permit, Priority::Normal), Micros::ZERO);
            clients.push(client);
        }
        let last = SeqId(count as u64 - 1);
        senders.seated(last, Micros::ZERO);
        assert_eq!(senders.disconnected(), vec![]);
        drop(clients);
        let mut seen = BTreeSet::new();
        for _ in 0..4 {
            let gone = senders.disconnected();
            assert!(gone.contains(&last) && gone.len() <= QUEUED_PER_TURN + 1);
            seen.extend(gone);
        }
        assert_eq!(seen.len(), count);
    }
}
