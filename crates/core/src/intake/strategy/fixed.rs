//! `fixed`: the same patience at every load. Pure.

use super::config::FlushConfig;
use super::flush::{FlushMetrics, FlushStrategy, Gathering, Pause, full_or_due};
use crate::units::Micros;

/// Waits `max_wait`, or until the group has `max_batch_size` requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    max_wait: Micros,
    max_batch_size: usize,
}

impl Fixed {
    pub fn new(config: &FlushConfig) -> Fixed {
        Fixed { max_wait: config.max_wait, max_batch_size: config.max_batch_size }
    }
}

impl FlushStrategy for Fixed {
    fn calculate_timeout(&self, _queue_depth: usize, _metrics: &FlushMetrics) -> Micros {
        self.max_wait
    }

    fn should_flush(&self, batch: &Gathering, _queue_depth: usize) -> bool {
        full_or_due(batch, self.max_batch_size)
    }

    /// Decodes always get `max_wait` between two groups, whatever the load.
    fn interrupts(&self, pause: &Pause) -> bool {
        pause.quiet >= pause.timeout || pause.queued >= self.max_batch_size
    }

    /// So that no stream of newcomers makes one group out of many.
    fn closes_groups(&self) -> bool {
        true
    }
}
