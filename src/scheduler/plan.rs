//! What a step will compute, in logical terms.

use std::ops::Range;

use super::cost::StepLoad;
use crate::report::{Preempted, Wait};
use crate::units::{Micros, SeqId};

/// A token range of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub seq: SeqId,
    /// Positions to compute.
    pub tokens: Range<u32>,
    /// The range reaches the last known token: the step draws the next.
    pub sample: bool,
    /// Only the token drawn last is computed. For metrics: nothing is decided by it.
    pub decode: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepPlan {
    pub chunks: Vec<Chunk>,
    /// Sequences that took a seat in this step.
    pub admitted: Vec<SeqId>,
    /// Sequences that lost their blocks to others while this step was planned.
    pub preempted: Vec<Preempted>,
    /// Live sequences that compute nothing in this step, and why.
    pub waits: Vec<(SeqId, Wait)>,
    pub load: StepLoad,
    /// How long it will take, as far as the cost of a step is known.
    pub predicted: Option<Micros>,
}

impl StepPlan {
    pub fn holds(&self, seq: SeqId) -> bool {
        self.chunks.iter().any(|chunk| chunk.seq == seq)
    }

    pub fn prefill_tokens(&self) -> usize {
        self.chunks.iter().filter(|chunk| !chunk.decode).map(|chunk| chunk.tokens.len()).sum()
    }

    pub fn decode_tokens(&self) -> usize {
        self.chunks.iter().filter(|chunk| chunk.decode).count()
    }

    pub fn is_decode_only(&self) -> bool {
        self.chunks.iter().all(|chunk| chunk.decode)
    }
}
