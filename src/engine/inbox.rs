//! What stays home while a step runs: the queue, the orders for the core, the last known state. Pure.

use crate::intake::{self, Intake};
use crate::report::Snapshot;
use crate::request::{Request, RequestError};
use crate::units::SeqId;

/// Seconds after which a client that met a full queue should try again.
const RETRY_AFTER_S: u32 = 1;

/// Whether steps may start and requests may enter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Gate {
    #[default]
    Open,
    /// Requests are queued, no step starts.
    Paused,
    /// What runs may finish; nothing new enters.
    Draining,
}

/// The intake is itself the buffer of the loop's `select!`: a request that arrives during a step is queued, or refused, at
/// once. Only orders to the core wait for its return.
#[derive(Debug)]
pub struct Inbox {
    intake: Intake,
    gate: Gate,
    aborts: Vec<SeqId>,
    last: Snapshot,
}

impl Inbox {
    pub fn new(config: intake::Config) -> Inbox {
        Inbox { intake: Intake::new(config), gate: Gate::Open, aborts: Vec::new(), last: Snapshot::default() }
    }

    /// Queues the whole group or none of it.
    pub fn submit(&mut self, group: Vec<Request>) -> Result<(), RequestError> {
        if self.gate == Gate::Draining {
            return Err(RequestError::ShuttingDown);
        }
        self.intake
            .push_group(group)
            .map_err(|full| RequestError::QueueFull { capacity: full.capacity, retry_after_s: RETRY_AFTER_S })
    }

    /// Takes a queued sequence out, or remembers to tell the core.
    pub fn abort(&mut self, seq: SeqId) {
        if !self.intake.cancel(seq) {
            self.aborts.push(seq);
        }
    }

    pub fn pause(&mut self) {
        if self.gate == Gate::Open {
            self.gate = Gate::Paused;
        }
    }

    pub fn resume(&mut self) {
        if self.gate == Gate::Paused {
            self.gate = Gate::Open;
        }
    }

    /// Closes the door for good and hands out what was queued, to be refused. Ends a pause: what runs must finish.
    pub fn drain(&mut self) -> Vec<Request> {
        self.gate = Gate::Draining;
        self.intake.release(usize::MAX)
    }

    pub fn take_aborts(&mut self) -> Vec<SeqId> {
        std::mem::take(&mut self.aborts)
    }

    /// Requests for `room` free seats, in queue order.
    pub fn release(&mut self, room: usize) -> Vec<Request> {
        if self.gate == Gate::Paused { Vec::new() } else { self.intake.release(room) }
    }

    pub fn may_step(&self) -> bool {
        self.gate != Gate::Paused
    }

    pub fn is_draining(&self) -> bool {
        self.gate == Gate::Draining
    }

    /// The core came home in this state.
    pub fn note(&mut self, core: Snapshot) {
        self.last = core;
    }

    /// The last known state of the core with today's queue.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            queued: self.intake.len(),
            paused: self.gate == Gate::Paused,
            draining: self.gate == Gate::Draining,
            ..self.last.clone()
        }
    }
}
