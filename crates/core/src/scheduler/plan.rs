//! What a step will compute, in logical terms.

use std::ops::Range;

use crate::report::{Miss, Preempted, Wait};
use crate::units::{BlockId, Micros, SeqId};

use super::cost::StepLoad;

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

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepPlan {
    pub chunks: Vec<Chunk>,
    /// Sequences that took a seat in this step.
    pub admitted: Vec<SeqId>,
    /// The same, and what each found in the cache.
    pub found: Vec<Found>,
    /// Blocks to be copied, `(from, to)`, before anything is written.
    pub copies: Vec<(BlockId, BlockId)>,
    /// Sequences that lost their blocks while this step was planned; `by` is the sequence itself when its own growth
    /// found nobody who should yield before it.
    pub preempted: Vec<Preempted>,
    /// Every other live sequence, and why it computes nothing in this step.
    pub waits: Vec<(SeqId, Wait)>,
    /// The work of `chunks`.
    pub load: StepLoad,
    /// How long it will take at most, or nearly; `None` while too little was measured.
    pub predicted: Option<Micros>,
}

/// What an admitted sequence found in the prefix cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub seq: SeqId,
    /// Of its known tokens.
    pub cached_tokens: usize,
    pub known_tokens: usize,
    /// Why none.
    pub miss: Option<Miss>,
    /// It never ran before: later looks, after a preemption, count for nobody.
    pub first: bool,
}

impl StepPlan {
    pub(super) fn push(&mut self, chunk: Chunk) {
        self.load = self.load + StepLoad::of(&chunk);
        self.chunks.push(chunk);
    }

    pub fn holds(&self, seq: SeqId) -> bool {
        self.chunks.iter().any(|chunk| chunk.seq == seq)
    }

    pub fn prefill_tokens(&self) -> usize {
        self.load.prefill_tokens
    }

    pub fn decode_tokens(&self) -> usize {
        self.load.decode_tokens
    }

    pub fn is_decode_only(&self) -> bool {
        self.chunks.iter().all(|chunk| chunk.decode)
    }
}
