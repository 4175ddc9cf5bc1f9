//! The clients' ends: one event channel per sequence, with room for everything it can ever say, so that delivering never
//! waits and a slow client costs bounded memory.

use std::collections::HashMap;

use tokio::sync::mpsc;

use crate::metrics::Metrics;
use crate::request::{Event, FinishReason, RequestError};
use crate::units::{Micros, SeqId};

/// An open channel and what its latency metrics need.
struct Outlet {
    events: mpsc::Sender<Event>,
    submitted: Micros,
    last_token: Option<Micros>,
}

/// All sequences that were acknowledged and have not ended, queued ones included.
#[derive(Default)]
pub struct Outlets {
    open: HashMap<SeqId, Outlet>,
}

impl Outlets {
    pub fn open(&mut self, seq: SeqId, events: mpsc::Sender<Event>, now: Micros) {
        self.open.insert(seq, Outlet { events, submitted: now, last_token: None });
    }

    /// Sends a step's events. Sequences whose client has gone stay open here until [`Outlets::gone`] finds them.
    pub fn deliver(&mut self, events: Vec<(SeqId, Event)>, now: Micros, metrics: &Metrics) {
        for (seq, event) in events {
            self.send(seq, event, now, metrics);
        }
    }

    fn send(&mut self, seq: SeqId, event: Event, now: Micros, metrics: &Metrics) {
        let Some(outlet) = self.open.get_mut(&seq) else { return };
        match &event {
            Event::Token(_) => match outlet.last_token.replace(now) {
                None => metrics.first_token(now.since(outlet.submitted)),
                Some(before) => metrics.next_token(now.since(before)),
            },
            Event::Finished(reason) => metrics.finished(*reason, now.since(outlet.submitted)),
            Event::Failed(_) => metrics.failed(),
        }
        let last = !matches!(event, Event::Token(_));
        // Closed means that the client has gone. Full cannot be: the channel holds all tokens and the end.
        let _ = outlet.events.try_send(event);
        if last {
            self.open.remove(&seq);
        }
    }

    /// Ends one sequence from our side.
    pub fn fail(&mut self, seq: SeqId, error: RequestError, now: Micros, metrics: &Metrics) {
        self.send(seq, Event::Failed(error), now, metrics);
    }

    /// Ends all of them.
    pub fn fail_all(&mut self, error: &RequestError, now: Micros, metrics: &Metrics) {
        for seq in self.open.keys().copied().collect::<Vec<_>>() {
            self.fail(seq, error.clone(), now, metrics);
        }
    }

    /// Closes one channel: its sequence was aborted.
    pub fn abort(&mut self, seq: SeqId, now: Micros, metrics: &Metrics) {
        self.send(seq, Event::Finished(FinishReason::Abort), now, metrics);
    }

    /// Sequences whose client no longer listens: to be aborted within this turn of the loop.
    pub fn gone(&self) -> Vec<SeqId> {
        self.open.iter().filter(|(_, outlet)| outlet.events.is_closed()).map(|(&seq, _)| seq).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}
