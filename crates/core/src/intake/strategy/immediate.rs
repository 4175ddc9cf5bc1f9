//! `immediate`: nothing gathers. Pure.

use super::flush::{FlushMetrics, FlushStrategy, Gathering};
use crate::units::Micros;

/// No waiting. Requests that find no seat queue up all the same, and leave in fair order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Immediate;

impl FlushStrategy for Immediate {
    fn calculate_timeout(&self, _queue_depth: usize, _metrics: &FlushMetrics) -> Micros {
        Micros::ZERO
    }

    fn should_flush(&self, batch: &Gathering, _queue_depth: usize) -> bool {
        batch.size > 0
    }
}
