//! The clients' ends: one event channel per sequence, with room for everything it can ever say, so that delivering never
//! waits and a slow client costs bounded memory.

use std::collections::HashMap;

use tokio::sync::mpsc;

use crate::metrics::Metrics;
use crate::request::Event;
use crate::units::{Micros, SeqId};

use super::permit::Permit;

/// An open channel and what its latency metrics need.
struct Outlet {
    events: mpsc::Sender<Event>,
    submitted: Micros,
    last_token: Option<Micros>,
    /// When the first token was expected.
    predicted: Option<Micros>,
    /// Held while the request is queued.
    permit: Option<Permit>,
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

/// All sequences that were acknowledged and have not ended, queued ones included.
#[derive(Default)]
pub struct Outlets {
    open: HashMap<SeqId, Outlet>,
}

impl Outlets {
    pub fn open(
        &mut self,
        seq: SeqId,
        events: mpsc::Sender<Event>,
        permit: Permit,
        predicted: Option<Micros>,
        now: Micros,
    ) {
        let outlet = Outlet { events, submitted: now, last_token: None, predicted, permit: Some(permit) };
        self.open.insert(seq, outlet);
    }

    /// The sequence has left the queue: its place is free.
    pub fn seated(&mut self, seq: SeqId) {
        if let Some(outlet) = self.open.get_mut(&seq) {
            outlet.permit = None;
        }
    }

    /// Sends one event. `None` when the sequence is not open. One whose client has gone stays open here until
    /// [`Outlets::gone`] finds it.
    pub fn send(&mut self, seq: SeqId, event: Event, now: Micros, metrics: &Metrics) -> Option<Heard> {
        let outlet = self.open.get_mut(&seq)?;
        let heard = match &event {
            Event::Admitted { .. } => Heard::Admitted,
            Event::Token(_) => match outlet.last_token.replace(now) {
                None => {
                    let ttft = now.since(outlet.submitted);
                    metrics.first_token(ttft, outlet.predicted.map(|at| at.since(outlet.submitted)));
                    Heard::FirstToken(ttft)
                }
                Some(before) => {
                    metrics.next_token(now.since(before));
                    Heard::NextToken
                }
            },
            Event::Finished(reason) => {
                metrics.finished(*reason, now.since(outlet.submitted));
                Heard::Ended
            }
            Event::Failed(_) => {
                metrics.failed();
                Heard::Ended
            }
        };
        // Closed means that the client has gone. Full cannot be: the channel holds all tokens and the end.
        let _ = outlet.events.try_send(event);
        if heard == Heard::Ended {
            self.open.remove(&seq);
        }
        Some(heard)
    }

    /// All that are open, in no order that matters.
    pub fn all(&self) -> Vec<SeqId> {
        self.open.keys().copied().collect()
    }

    /// Sequences whose client no longer listens: to be aborted within this turn of the loop.
    pub fn gone(&self) -> Vec<SeqId> {
        self.open.iter().filter(|(_, outlet)| outlet.events.is_closed()).map(|(&seq, _)| seq).collect()
    }
}
