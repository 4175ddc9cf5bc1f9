//! When prompts last interrupted the sequences that decode, and who belongs to the interruption. Pure.

use super::lanes::Order;
use super::situation::Situation;
use crate::request::CLASSES;
use crate::units::Micros;

/// Prompts that are computed one step after the other, and the undisturbed decodes since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Burst {
    /// While it lasts: the first arrival after it began.
    door: Option<Order>,
    /// When the last one ended.
    ended: Micros,
}

impl Burst {
    /// Looks whether the prompts of the burst under way are all computed.
    pub fn follow(&mut self, situation: &Situation) {
        if situation.prefill[CLASSES - 2] == 0 && self.door.take().is_some() {
            self.ended = situation.now;
        }
    }

    /// Requests leave the queue; whoever comes from `next` on came after the burst began.
    pub fn begin(&mut self, next: Order) {
        self.door.get_or_insert(next);
    }

    pub fn is_under_way(&self) -> bool {
        self.door.is_some()
    }

    /// The first arrival after the burst under way began.
    pub fn door(&self) -> Option<Order> {
        self.door
    }

    /// How long decodes have run undisturbed.
    pub fn quiet(&self, now: Micros) -> Micros {
        now.since(self.ended)
    }
}
