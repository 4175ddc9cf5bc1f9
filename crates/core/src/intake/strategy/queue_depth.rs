//! `queue_depth`: the longer the queue, the shorter the wait. Pure.

use super::config::FlushConfig;
use super::flush::{FlushMetrics, FlushStrategy, Gathering, Pause, full_or_due, rested_or_full};
use crate::units::Micros;

/// `max_wait` at or below `queue_depth_low`, `min_wait` at or above `queue_depth_high`, linear between.
///
/// A short queue gains most from company in its step; a long one has company already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueDepth {
    min_wait: Micros,
    max_wait: Micros,
    low: usize,
    high: usize,
    max_batch_size: usize,
}

impl QueueDepth {
    pub fn new(config: &FlushConfig) -> QueueDepth {
        QueueDepth {
            min_wait: config.min_wait,
            max_wait: config.max_wait,
            low: config.queue_depth_low,
            high: config.queue_depth_high,
            max_batch_size: config.max_batch_size,
        }
    }
}

impl FlushStrategy for QueueDepth {
    fn calculate_timeout(&self, queue_depth: usize, _metrics: &FlushMetrics) -> Micros {
        // In this order, thresholds that meet or cross leave nothing to divide.
        if queue_depth <= self.low {
            return self.max_wait;
        }
        if queue_depth >= self.high {
            return self.min_wait;
        }
        let (done, all) = ((queue_depth - self.low) as u128, (self.high - self.low) as u128);
        let shortening = u128::from(self.max_wait.since(self.min_wait).0) * done / all;
        Micros(self.max_wait.0 - shortening as u64)
    }

    fn should_flush(&self, batch: &Gathering, _queue_depth: usize) -> bool {
        full_or_due(batch, self.max_batch_size)
    }

    fn interrupts(&self, pause: &Pause) -> bool {
        rested_or_full(pause)
    }
}
