//! What one step may still take: tokens, sequences, and time.

use std::collections::BTreeSet;

use super::cost::{StepCost, StepLoad};
use super::plan::{Chunk, StepPlan};
use crate::report::Wait;
use crate::units::{Micros, SeqId};

/// A plan under construction.
pub struct Draft<'a> {
    pub plan: StepPlan,
    /// Tokens left.
    tokens: usize,
    /// Sequences left, and what ran out when none is.
    sequences: usize,
    full: Wait,
    /// How long the step may take, while sequences decode that would wait for it.
    stall: Option<Micros>,
    cost: &'a StepCost,
    /// Sequences whose blocks nobody may take: this step will write to them.
    kept: BTreeSet<SeqId>,
}

/// A prefill gets so many tokens in every step, whatever they cost, or it would never end.
const MIN_CHUNK: usize = 16;
/// Tokens of prefill per step while their cost is not known.
const UNKNOWN_CHUNK: usize = 32;
/// The part of the allowed time that a plan uses: predictions are means.
const CAUTION: f64 = 0.9;

impl<'a> Draft<'a> {
    pub fn new(tokens: usize, sequences: usize, full: Wait, stall: Option<Micros>, cost: &'a StepCost) -> Draft<'a> {
        let plan = StepPlan { load: StepLoad { steps: 1, ..StepLoad::default() }, ..StepPlan::default() };
        Draft { plan, tokens, sequences, full, stall, cost, kept: BTreeSet::new() }
    }

    pub fn keep(&mut self, seq: SeqId) {
        self.kept.insert(seq);
    }

    pub fn keeps(&self, seq: SeqId) -> bool {
        self.kept.contains(&seq) || self.plan.holds(seq)
    }

    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Tokens that a sequence may compute now, of `wanted` from position `start` on; or why none. Decoding is never cut by
    /// time: it is what the time is saved for.
    pub fn allows(&self, wanted: usize, start: usize, is_decode: bool) -> Result<usize, Wait> {
        if self.sequences == 0 {
            return Err(self.full);
        }
        let most = wanted.min(self.tokens);
        if most == 0 {
            return Err(Wait::TokenBudget);
        }
        match self.stall {
            Some(limit) if !is_decode => self.within(limit, most, start).ok_or(Wait::StallLimit),
            _ => Ok(most),
        }
    }

    /// The most prefill tokens with which the step stays within `limit`. The step's first prefill always gets some.
    fn within(&self, limit: Micros, most: usize, start: usize) -> Option<usize> {
        let at_least = if self.plan.load.prefills == 0 { MIN_CHUNK.min(most) } else { 0 };
        let so_far = self.plan.load.prefill_tokens;
        let reach = self.cost.reach().max(UNKNOWN_CHUNK).saturating_sub(so_far).min(most);
        let limit = Micros((limit.0 as f64 * CAUTION) as u64);
        let fits = |tokens: usize| {
            let load = self.plan.load + prefill_load(tokens, start);
            // Not known, and within the reach: the first small chunks, from which the cost is learnt.
            self.cost.predict(&load).is_none_or(|predicted| predicted <= limit)
        };
        // Cost grows with the tokens, so the largest that fits is found by halving.
        let (mut low, mut high) = (0, reach);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if fits(middle) { low = middle } else { high = middle - 1 }
        }
        Some(low.max(at_least)).filter(|tokens| *tokens > 0)
    }

    pub fn push(&mut self, chunk: Chunk) {
        self.plan.load = self.plan.load + load_of(&chunk);
        self.sequences -= 1;
        self.tokens -= chunk.tokens.len();
        self.kept.insert(chunk.seq);
        self.plan.chunks.push(chunk);
    }

    pub fn waits(&mut self, seq: SeqId, cause: Wait) {
        self.plan.waits.push((seq, cause));
    }

    pub fn finish(mut self) -> StepPlan {
        self.plan.predicted = self.cost.predict(&self.plan.load);
        self.plan
    }
}

/// The cost of a chunk of `tokens` from position `start` on, beside the step's own.
fn prefill_load(tokens: usize, start: usize) -> StepLoad {
    // Row i attends to itself and all before it.
    let context_tokens = tokens * start + tokens * (tokens + 1) / 2;
    StepLoad { prefill_tokens: tokens, prefills: usize::from(tokens > 0), context_tokens, ..StepLoad::default() }
}

fn load_of(chunk: &Chunk) -> StepLoad {
    if chunk.tokens.len() == 1 {
        let context_tokens = chunk.tokens.end as usize;
        return StepLoad { decode_tokens: 1, context_tokens, ..StepLoad::default() };
    }
    prefill_load(chunk.tokens.len(), chunk.tokens.start as usize)
}
