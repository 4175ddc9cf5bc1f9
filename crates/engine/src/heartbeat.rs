//! Whether the loop lives, readable from any thread without asking it: probes must answer while a step runs.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::units::Micros;

/// Written by the loop, read by health probes.
#[derive(Debug)]
pub struct Heartbeat(AtomicU64);

/// Not begun, or between steps with nothing to do.
const RESTING: u64 = u64::MAX;
/// The loop has returned (or has not started).
const ENDED: u64 = u64::MAX - 1;

/// What a probe learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulse {
    /// Nothing to compute.
    Resting,
    /// A step began this long ago and has not ended.
    Computing(Micros),
    /// The loop does not run.
    Ended,
}

impl Default for Heartbeat {
    fn default() -> Heartbeat {
        Heartbeat(AtomicU64::new(ENDED))
    }
}

impl Heartbeat {
    /// A step begins at `now`.
    pub fn begin(&self, now: Micros) {
        self.0.store(now.0, Ordering::Relaxed);
    }

    /// The loop waits for commands.
    pub fn rest(&self) {
        self.0.store(RESTING, Ordering::Relaxed);
    }

    /// The loop has returned.
    pub fn end(&self) {
        self.0.store(ENDED, Ordering::Relaxed);
    }

    pub fn pulse(&self, now: Micros) -> Pulse {
        match self.0.load(Ordering::Relaxed) {
            RESTING => Pulse::Resting,
            ENDED => Pulse::Ended,
            began => Pulse::Computing(now.since(Micros(began))),
        }
    }
}
