//! `immediate`: whatever is there flows, once it is large enough to be a group.

use super::{FlushMetrics, FlushStrategy, Gathering};
use crate::intake::config::FlushConfig;
use crate::units::Micros;

#[derive(Debug)]
pub(super) struct Immediate {
    min_batch_size: usize,
}

impl Immediate {
    pub fn new(config: &FlushConfig) -> Immediate {
        Immediate { min_batch_size: config.min_batch_size }
    }
}

impl FlushStrategy for Immediate {
    fn calculate_timeout(&self, _queue_depth: usize, _metrics: &FlushMetrics) -> Micros {
        Micros::ZERO
    }

    fn should_flush(&self, batch: &Gathering, _queue_depth: usize) -> bool {
        batch.size >= self.min_batch_size.max(1)
    }
}
