//! `latency_aware`: steers the wait by the measured time to the first token. Pure.

use super::config::FlushConfig;
use super::flush::{FlushMetrics, FlushStrategy, Gathering, Pause};
use super::queue_depth::QueueDepth;
use crate::units::Micros;

/// The queue-depth timeout × 0.8 when the p99 of TTFT is above 1.1 × target, × 1.2 when it is below 0.8 × target, else
/// (and without samples) unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyAware {
    by_depth: QueueDepth,
    target_p99: Micros,
}

impl LatencyAware {
    pub fn new(config: &FlushConfig) -> LatencyAware {
        LatencyAware { by_depth: QueueDepth::new(config), target_p99: config.target_p99 }
    }
}

impl FlushStrategy for LatencyAware {
    fn calculate_timeout(&self, queue_depth: usize, metrics: &FlushMetrics) -> Micros {
        let unchanged = self.by_depth.calculate_timeout(queue_depth, metrics);
        let tenths = metrics.p99_ttft.map_or(10, |p99| {
            // Whole numbers, so that the borders are exact.
            let (p99, target) = (u128::from(p99.0) * 10, u128::from(self.target_p99.0));
            if p99 > target * 11 {
                8
            } else if p99 < target * 8 {
                12
            } else {
                10
            }
        });
        Micros(u64::try_from(u128::from(unchanged.0) * tenths / 10).unwrap_or(u64::MAX))
    }

    fn should_flush(&self, batch: &Gathering, queue_depth: usize) -> bool {
        self.by_depth.should_flush(batch, queue_depth)
    }

    fn interrupts(&self, pause: &Pause) -> bool {
        self.by_depth.interrupts(pause)
    }
}
