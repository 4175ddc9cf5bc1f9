//! The seam between deciding and computing: a real model ([`super::forward`]) or a simulated one. Pure.

use thiserror::Error;

use forebay_core::request::Request;
use forebay_core::step::{StepBatch, StepOutput};
use forebay_core::units::{Micros, SeqId};

/// Carries out steps. Owns whatever a sequence needs beyond its blocks: sampling parameters, grammar state.
pub trait Executor: Send + 'static {
    /// Called once per sequence before its first step; preemption does not repeat it.
    fn admit(&mut self, request: &Request);

    /// One forward pass; one outcome for each chunk with `sample`, in chunk order.
    ///
    /// On `Err` no token was drawn and the step may be run again: K and V written twice are the same.
    fn run(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecuteError>;

    /// How long the last `run` took, where that is measured.
    fn computed(&self) -> Option<Micros> {
        None
    }

    /// The sequence has ended; unknown ones are ignored.
    fn forget(&mut self, seq: SeqId);
}

/// A forward pass failed as a whole.
#[derive(Debug, Error)]
pub enum ExecuteError {
    #[error("forward pass failed: {0}")]
    Failed(String),
    /// With fewer sequences it may succeed.
    #[error("the device has no memory left: {0}")]
    OutOfMemory(String),
}
