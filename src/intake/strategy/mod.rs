//! When a gathered group flows. One small file per strategy; [`StrategyKind`] names them and picks one.
//!
//! A strategy says two things: how long a group may gather (`calculate_timeout`) and whether it should flow now
//! (`should_flush`). What no strategy can change is decided in [`super::Intake`]: critical requests and each priority's
//! longest wait open the gate, and so does an idle engine. In continuous batching a wait buys one thing only, a larger
//! group whose prefills share a step, and only while other sequences keep the engine busy; `idle_release: false` makes an
//! idle engine wait too, as batching servers did that knew no running batch.

mod fixed;
mod immediate;
mod latency_aware;
mod queue_depth;

use super::config::FlushConfig;
use crate::units::Micros;

use fixed::Fixed;
use immediate::Immediate;
use latency_aware::LatencyAware;
use queue_depth::QueueDepth;

/// What a strategy knows of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushMetrics {
    /// Of the newest requests; `None` before the first token of the first.
    pub p99_ttft: Option<Micros>,
}

/// The group that gathers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gathering {
    pub size: usize,
    /// Of all its prompts.
    pub tokens: usize,
    /// How long its oldest request has been here.
    pub waited: Micros,
    /// What `calculate_timeout` said.
    pub timeout: Micros,
}

/// When a gathered group flows.
pub trait FlushStrategy: std::fmt::Debug + Send {
    /// How long the oldest request of a group may wait for others.
    fn calculate_timeout(&self, queue_depth: usize, metrics: &FlushMetrics) -> Micros;

    /// Whether the group flows now. `queue_depth` counts everything queued, gathering or waiting for a seat.
    fn should_flush(&self, batch: &Gathering, queue_depth: usize) -> bool;
}

/// The strategies by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StrategyKind {
    /// `max_wait` or `max_batch_size`, whichever comes first.
    Fixed,
    /// The deeper the queue, the shorter the wait.
    #[default]
    QueueDepth,
    /// As queue depth, shorter while p99 TTFT is above its target, longer while it is well below.
    LatencyAware,
    /// No waiting.
    Immediate,
}

impl StrategyKind {
    pub const ALL: [StrategyKind; 4] =
        [StrategyKind::Fixed, StrategyKind::QueueDepth, StrategyKind::LatencyAware, StrategyKind::Immediate];

    pub const fn name(self) -> &'static str {
        match self {
            StrategyKind::Fixed => "fixed",
            StrategyKind::QueueDepth => "queue_depth",
            StrategyKind::LatencyAware => "latency_aware",
            StrategyKind::Immediate => "immediate",
        }
    }

    pub fn from_name(name: &str) -> Option<StrategyKind> {
        StrategyKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The strategy that `config` selects, with its parameters.
pub fn selected(config: &FlushConfig) -> Box<dyn FlushStrategy> {
    match config.strategy {
        StrategyKind::Fixed => Box::new(Fixed::new(config)),
        StrategyKind::QueueDepth => Box::new(QueueDepth::new(config)),
        StrategyKind::LatencyAware => Box::new(LatencyAware::new(config)),
        StrategyKind::Immediate => Box::new(Immediate::new(config)),
    }
}

/// What all but `immediate` agree on: a full group flows, and one whose time is up.
fn full_or_due(batch: &Gathering, max_batch_size: usize) -> bool {
    batch.size > 0 && (batch.size >= max_batch_size || batch.waited >= batch.timeout)
}

#[cfg(test)]
mod tests;
