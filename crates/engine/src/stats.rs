//! The engine in numbers, as `/admin/state` and dashboards read them. Pure.

use forebay_core::report::Snapshot;
use forebay_core::units::Micros;
use forebay_turn::control::{Group, Tuning};
use forebay_turn::stats::{LiveSequence, QueueStats, ThermalStats};

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
