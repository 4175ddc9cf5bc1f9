//! What the intake must know of the world to decide. Pure.

use super::lanes::LaneOrder;
use super::strategy::{Prices, Strategy};
use crate::request::{CLASSES, Priority};
use crate::slo::Slo;
use crate::units::Micros;

/// The engine as the intake sees it at a release.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Situation {
    pub now: Micros,
    /// By class: how many more sequences of this class may be seated. Whoever has a seat that the class may take counts as
    /// no holder.
    pub seats_for: [usize; CLASSES],
    /// All seats.
    pub seats: usize,
    /// Nothing but batches is live in the engine.
    pub idle: bool,
    /// Sequences that decode and would be interrupted by prompts.
    pub decoding: usize,
    /// By class: tokens of seated prompts of this class or a more urgent one that are not computed.
    pub prefill: [usize; CLASSES],
    /// Prompt tokens that the next step has room for.
    pub step_tokens: usize,
    /// How long the engine has computed since it began: the clock that ageing goes by.
    pub served: Micros,
    /// Which of a tenant's requests of one class goes first, as the policy has it.
    pub order: LaneOrder,
    /// What is promised to each class.
    pub slo: Slo,
    pub p99_ttft: Option<Micros>,
    /// What the next step costs; `None` while too little was measured.
    pub prices: Option<Prices>,
}

/// What a request that comes now would find in the intake, beside those that are in line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prospect {
    /// In which it would compete.
    pub class: Priority,
    pub strategy: Strategy,
    /// Until its group would be flushed, unless the engine is idle before.
    pub flush_in: Micros,
    /// A group of prompts is being computed; else how long decodes have run undisturbed.
    pub under_way: bool,
    pub quiet: Micros,
    /// Service to others after which a class has a turn, times its rank; by class, what is left of it.
    pub turns: Micros,
    pub due_in: [Micros; CLASSES],
}
