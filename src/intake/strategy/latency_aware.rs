//! `latency_aware`: the queue-depth timeout, corrected by how p99 TTFT stands to its target.

use super::queue_depth::QueueDepth;
use super::{FlushMetrics, FlushStrategy, Gathering};
use crate::intake::config::FlushConfig;
use crate::units::Micros;

#[derive(Debug)]
pub(super) struct LatencyAware {
    by_depth: QueueDepth,
    target_p99: Micros,
}

impl LatencyAware {
    pub fn new(config: &FlushConfig) -> LatencyAware {
        LatencyAware { by_depth: QueueDepth::new(config), target_p99: config.target_p99 }
    }
}

impl FlushStrategy for LatencyAware {
    /// × 0.8 above 1.1 of the target, × 1.2 below 0.8 of it; in whole microseconds, so that it is exact.
    fn calculate_timeout(&self, queue_depth: usize, metrics: &FlushMetrics) -> Micros {
        let timeout = self.by_depth.calculate_timeout(queue_depth, metrics);
        match metrics.p99_ttft {
            Some(p99) if p99.0 * 10 > self.target_p99.0 * 11 => Micros(timeout.0 * 8 / 10),
            Some(p99) if p99.0 * 10 < self.target_p99.0 * 8 => Micros(timeout.0 * 12 / 10),
            Some(_) | None => timeout,
        }
    }

    fn should_flush(&self, batch: &Gathering, queue_depth: usize) -> bool {
        self.by_depth.should_flush(batch, queue_depth)
    }
}
