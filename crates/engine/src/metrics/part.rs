//! Gauges that several engine loops share: each says its own part, and what is shown is their sum.

use std::sync::atomic::{AtomicI64, Ordering};

use ::prometheus::{IntCounter, IntGauge};

/// One loop's part of a gauge. A clone is another loop's part, and begins at nothing; a dropped one counts no more.
#[derive(Debug)]
pub(super) struct Part {
    sum: IntGauge,
    own: AtomicI64,
}

impl Part {
    pub fn new(sum: IntGauge) -> Part {
        Part { sum, own: AtomicI64::new(0) }
    }

    pub fn set(&self, value: i64) {
        self.sum.add(value - self.own.swap(value, Ordering::Relaxed));
    }

    pub fn add(&self, value: i64) {
        self.own.fetch_add(value, Ordering::Relaxed);
        self.sum.add(value);
    }

    /// Of all parts.
    pub fn sum(&self) -> i64 {
        self.sum.get()
    }
}

impl Clone for Part {
    fn clone(&self) -> Part {
        Part::new(self.sum.clone())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A loop's live sequences. Those that are left when it is dropped have failed: the loop died under them.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub part: Part,
    pub failed: IntCounter,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.failed.inc_by(self.part.own.load(Ordering::Relaxed).max(0) as u64);
    }
}
