//! The strategies by name, and their numbers.

use crate::units::Micros;

/// When groups are flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushConfig {
    pub strategy: StrategyKind,
    /// The smallest group that is released before its timer. Critical requests and class waits do not ask.
    pub min_batch_size: usize,
    /// A group of this size need not wait, and no batch is larger.
    pub max_batch_size: usize,
    pub min_wait: Micros,
    pub max_wait: Micros,
    /// Queued requests up to which `max_wait` holds.
    pub queue_depth_low: usize,
    /// Queued requests from which `min_wait` holds.
    pub queue_depth_high: usize,
    /// The time to first token that `latency_aware` steers to, at the 99th percentile.
    pub target_p99: Micros,
    /// Releases to an idle engine without waiting.
    pub idle_release: bool,
    /// Fills a batch with requests of the first one's size, where order allows.
    pub bucketing: bool,
    /// Off: every request is of class normal.
    pub priorities: bool,
}

impl Default for FlushConfig {
    fn default() -> FlushConfig {
        FlushConfig {
            strategy: StrategyKind::QueueDepth,
            min_batch_size: 1,
            max_batch_size: 32,
            min_wait: Micros::from_millis(5),
            max_wait: Micros::from_millis(100),
            queue_depth_low: 10,
            queue_depth_high: 100,
            target_p99: Micros::from_millis(500),
            idle_release: true,
            bucketing: true,
            priorities: true,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StrategyKind {
    Fixed,
    #[default]
    QueueDepth,
    LatencyAware,
    Immediate,
    CostAware,
}

impl StrategyKind {
    pub const ALL: [StrategyKind; 5] = [
        StrategyKind::Fixed,
        StrategyKind::QueueDepth,
        StrategyKind::LatencyAware,
        StrategyKind::Immediate,
        StrategyKind::CostAware,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            StrategyKind::Fixed => "fixed",
            StrategyKind::QueueDepth => "queue_depth",
            StrategyKind::LatencyAware => "latency_aware",
            StrategyKind::Immediate => "immediate",
            StrategyKind::CostAware => "cost_aware",
        }
    }

    pub fn from_name(name: &str) -> Option<StrategyKind> {
        StrategyKind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }
}
