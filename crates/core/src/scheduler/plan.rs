//! What a step will compute, in logical terms.

use crate::report::{Miss, Preempted, Wait};
use crate::units::{BlockId, Micros, SeqId};

use super::chunk::Chunk;
use super::cost::StepLoad;

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
    /// How long it may take for the sake of those that decode, where some do.
    pub limit: Option<Micros>,
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
