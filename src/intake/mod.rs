//! The forebay: requests gather here until the scheduler has seats. Pure.
//!
//! First in, first out, and at once. (Priorities, flush strategies and token buckets are the next stage of this room.)

use std::collections::VecDeque;

use crate::request::Request;
use crate::units::SeqId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Sequences that may be queued; beyond it, requests are refused.
    pub queue_capacity: usize,
}

/// The queue has no room for the whole group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    pub capacity: usize,
}

/// A bounded queue of requests.
#[derive(Debug)]
pub struct Intake {
    config: Config,
    queue: VecDeque<Request>,
}

impl Intake {
    pub fn new(config: Config) -> Intake {
        Intake { config, queue: VecDeque::new() }
    }

    /// Queues all of the group, or none.
    pub fn push_group(&mut self, group: Vec<Request>) -> Result<(), Full> {
        if self.queue.len() + group.len() > self.config.queue_capacity {
            return Err(Full { capacity: self.config.queue_capacity });
        }
        self.queue.extend(group);
        Ok(())
    }

    /// Takes one out; false if it is not here.
    pub fn cancel(&mut self, seq: SeqId) -> bool {
        let before = self.queue.len();
        self.queue.retain(|request| request.id() != seq);
        self.queue.len() < before
    }

    /// Up to `seats` requests, oldest first.
    pub fn release(&mut self, seats: usize) -> Vec<Request> {
        self.queue.drain(..seats.min(self.queue.len())).collect()
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
