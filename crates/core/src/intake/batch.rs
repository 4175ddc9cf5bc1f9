//! What a release hands out, and what is remembered of it. Pure.

use std::collections::VecDeque;

use super::strategy::StrategyKind;
use crate::request::{CLASSES, Priority, Request};
use crate::units::Micros;

/// Batches that [`Stats::last`] remembers.
const REMEMBERED: usize = 32;

/// Requests that were given seats together, in the order in which they got them.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// From 1, without gaps, for the life of the intake.
    pub id: u64,
    /// Never empty.
    pub released: Vec<Released>,
    pub strategy: StrategyKind,
    pub cause: FlushCause,
    /// Prompt tokens.
    pub tokens: usize,
    /// The most urgent of its requests' classes, as they were asked for.
    pub max_priority: Priority,
}

/// A request with its history in the intake.
#[derive(Clone, Debug, PartialEq)]
pub struct Released {
    pub request: Request,
    pub arrived: Micros,
    /// When its group stopped gathering.
    pub flushed: Micros,
    /// Later arrivals of a more urgent class that were given seats before it.
    pub passed_by_priority: usize,
    /// Later arrivals of its own or a less urgent class that were: their tenants had received less, or their size suited
    /// the batch.
    pub passed_by_fairness: usize,
    /// By class: all of these.
    pub overtaken_by: [usize; CLASSES],
}

/// Why a batch went when it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushCause {
    /// The engine had nothing else to do.
    Idle,
    /// A critical request does not wait.
    Critical,
    /// A request of this class had gathered for as long as its class may.
    MaxWait(Priority),
    /// The group was as large as a batch may be.
    Size,
    /// The strategy's timer ran out.
    Timer,
    /// All of it was flushed before and waited for seats.
    Leftover,
}

impl FlushCause {
    pub const fn name(self) -> &'static str {
        match self {
            FlushCause::Idle => "idle",
            FlushCause::Critical => "critical",
            FlushCause::MaxWait(_) => "max_wait",
            FlushCause::Size => "size",
            FlushCause::Timer => "timer",
            FlushCause::Leftover => "leftover",
        }
    }
}

/// Since the intake began, or since the last reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub batches_formed: u64,
    pub requests_batched: u64,
    /// The 32 newest, oldest first.
    pub last: VecDeque<BatchRecord>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRecord {
    pub id: u64,
    pub at: Micros,
    /// Requests.
    pub size: usize,
    /// Prompt tokens.
    pub tokens: usize,
    pub max_priority: Priority,
    pub strategy: StrategyKind,
    pub cause: FlushCause,
}

impl Stats {
    /// Requests per batch; 0 before the first.
    pub fn avg_batch_size(&self) -> f64 {
        if self.batches_formed == 0 { 0.0 } else { self.requests_batched as f64 / self.batches_formed as f64 }
    }

    pub(super) fn record(&mut self, batch: &Batch, at: Micros) {
        self.batches_formed += 1;
        self.requests_batched += batch.released.len() as u64;
        if self.last.len() == REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(BatchRecord {
            id: batch.id,
            at,
            size: batch.released.len(),
            tokens: batch.tokens,
            max_priority: batch.max_priority,
            strategy: batch.strategy,
            cause: batch.cause,
        });
    }
}
