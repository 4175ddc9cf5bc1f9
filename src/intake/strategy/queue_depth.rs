//! `queue_depth`: a shallow queue can afford to gather, a deep one has gathered already.

use super::{FlushMetrics, FlushStrategy, Gathering, full_or_due};
use crate::intake::config::FlushConfig;
use crate::units::Micros;

#[derive(Debug)]
pub(super) struct QueueDepth {
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
    /// `max_wait` at or below the low threshold, `min_wait` at or above the high one, linear between, in whole
    /// microseconds.
    fn calculate_timeout(&self, queue_depth: usize, _metrics: &FlushMetrics) -> Micros {
        if queue_depth <= self.low {
            return self.max_wait;
        }
        if queue_depth >= self.high {
            return self.min_wait;
        }
        // Between two different thresholds, so the divisor is not 0.
        let above = (queue_depth - self.low) as u64;
        let span = (self.high - self.low) as u64;
        Micros(self.max_wait.0 - self.max_wait.since(self.min_wait).0 * above / span)
    }

    fn should_flush(&self, batch: &Gathering, _queue_depth: usize) -> bool {
        full_or_due(batch, self.max_batch_size)
    }
}
