//! The engine in numbers, as `/admin/state` and dashboards read them. Pure.

use forebay_core::report::{SequenceView, Snapshot, Wait};
use forebay_core::request::{CLASSES, Priority};
use forebay_core::units::Micros;

use forebay_turn::control::{Group, Tuning};
use super::trace::Trace;

/// Everything about the loop at one moment.
#[derive(Clone, Debug)]
pub struct EngineStats {
    pub now: Micros,
    pub snapshot: Snapshot,
    pub tuning: Tuning,
    /// Where the memory-sized limits end.
    pub start: Tuning,
    pub thermal: ThermalStats,
    pub queue: QueueStats,
    /// Tokens since the process began, and since the window was reset.
    pub total_tokens_generated: u64,
    pub window: WindowStats,
    /// Tokens of the last call that were ready before it came back (`engine.multi_step_count`).
    pub pending_out: usize,
}

#[derive(Clone, Debug, Default)]
pub struct ThermalStats {
    pub level: &'static str,
    /// An operator holds it there.
    pub forced: bool,
    pub celsius: Option<f64>,
}

#[derive(Clone, Debug, Default)]
pub struct QueueStats {
    /// By priority, highest first.
    pub depths: [usize; CLASSES],
    /// Of those, how many gather, the others wait for a seat.
    pub gathering: usize,
    pub prompt_tokens: usize,
    /// What the strategy lets a group wait now.
    pub timeout: Micros,
    pub batches_formed: u64,
    pub requests_batched: u64,
    pub avg_batch_size: f64,
    /// Oldest first.
    pub last_batches: Vec<Batch>,
    pub drained_per_s: f64,
}

/// A batch that left the queue.
#[derive(Clone, Debug)]
pub struct Batch {
    pub id: u64,
    pub at: Micros,
    pub size: usize,
    /// Prompt tokens of all its requests.
    pub tokens: usize,
    pub max_priority: Priority,
    pub strategy: &'static str,
    pub cause: &'static str,
}

/// Since [`super::EngineHandle::reset_stats`], or the newest thousand.
#[derive(Clone, Debug, Default)]
pub struct WindowStats {
    pub seconds: f64,
    pub tokens: u64,
    pub step_last: Option<Micros>,
    pub step_mean: Option<Micros>,
    pub step_p50: Option<Micros>,
    pub step_p99: Option<Micros>,
    /// Between two steps while there was work: how long the model did not compute.
    pub gap_p50: Option<Micros>,
    pub gap_p99: Option<Micros>,
    pub ttft_p50: Option<Micros>,
    pub ttft_p99: Option<Micros>,
}

impl WindowStats {
    pub fn tok_per_sec(&self) -> f64 {
        if self.seconds > 0.0 { self.tokens as f64 / self.seconds } else { 0.0 }
    }
}

impl EngineStats {
    pub fn strategy(&self) -> &'static str {
        self.tuning.selected(Group::Strategy).unwrap_or_default()
    }

    pub fn policy(&self) -> &'static str {
        self.tuning.selected(Group::Policy).unwrap_or_default()
    }
}

/// A sequence that is here, or has ended lately, and how it was scheduled.
#[derive(Clone, Debug)]
pub struct Recent {
    /// While it is here.
    pub live: Option<LiveSequence>,
    pub trace: Trace,
    pub now: Micros,
}

/// A live sequence, and what holds it up.
#[derive(Clone, Debug)]
pub struct LiveSequence {
    pub view: SequenceView,
    pub age: Micros,
    pub wait: Option<Wait>,
}
