//! One sequence's part of a step.

use std::ops::Range;

use crate::units::SeqId;

/// A token range of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub seq: SeqId,
    /// Positions to compute.
    pub tokens: Range<u32>,
    /// The last so many positions hold guesses, and a token is drawn before and after each; see [`super::speculate`].
    pub proposed: u32,
    /// The range reaches the last known token: the step draws the next.
    pub sample: bool,
    /// Only the token drawn last is computed. For metrics and costs: nothing else is decided by it.
    pub decode: bool,
}
