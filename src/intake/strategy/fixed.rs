//! `fixed`: the same wait whatever happens.

use super::{FlushMetrics, FlushStrategy, Gathering, full_or_due};
use crate::intake::config::FlushConfig;
use crate::units::Micros;

#[derive(Debug)]
pub(super) struct Fixed {
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
}
