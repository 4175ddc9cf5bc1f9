//! A step while it is planned: what it holds, and what it may still spend in tokens, sequences and time.

use crate::report::Wait;
use crate::units::Micros;

use super::chunk::Chunk;
use super::cost::{StepCost, StepLoad};
use super::plan::StepPlan;

/// A prompt that has its turn gets at least so many tokens, whatever the limit on stalls, or it would never be computed.
pub(super) const MIN_CHUNK: usize = 16;
/// Prefill tokens beside decodes until enough steps were measured to predict one.
const UNMEASURED_CHUNK: usize = 32;

/// A step being planned.
#[derive(Debug)]
pub(super) struct Draft {
    pub plan: StepPlan,
    /// Tokens and sequences that it may still take.
    pub tokens: usize,
    pub sequences: usize,
    /// How long it may take, while sequences decode that wait for it.
    pub limit: Option<Micros>,
    /// Decodes that prompts go before but that will follow if there is room: the limit must hold with them.
    pub to_come: StepLoad,
    /// A prompt is computed in one piece or not at all.
    pub whole_prompts: bool,
}

impl Draft {
    pub fn new(tokens: usize, sequences: usize) -> Draft {
        let plan = StepPlan { load: StepLoad::STEP, ..StepPlan::default() };
        Draft { plan, tokens, sequences, limit: None, to_come: StepLoad::default(), whole_prompts: false }
    }

    /// What a sequence waits for that finds no room; `None` while there is some.
    pub fn short(&self) -> Option<Wait> {
        match (self.tokens, self.sequences) {
            (0, _) => Some(Wait::TokenBudget),
            // Nothing but heat limits the sequences of a step below the seats.
            (_, 0) => Some(Wait::Thermal),
            _ => None,
        }
    }

    /// Sequences that it still has room for, if each computes one token.
    pub fn slots(&self) -> usize {
        self.tokens.min(self.sequences)
    }

    /// The same when a prompt of so many tokens must still find its place.
    pub fn slots_beside(&self, prompt: Option<usize>) -> usize {
        match prompt {
            Some(tokens) => self.tokens.saturating_sub(tokens).min(self.sequences - 1),
            None => self.slots(),
        }
    }

    pub fn push(&mut self, chunk: Chunk) {
        self.tokens -= chunk.tokens.len();
        self.sequences -= 1;
        self.plan.push(chunk);
    }

    /// How many tokens of a prompt may be computed, of which `computed` are and `remaining` are not; else what is short.
    ///
    /// In time, the first prompt of a step gets [`MIN_CHUNK`] whatever it costs, and others join it only with as many.
    pub fn affordable(&self, computed: usize, remaining: usize, cost: &StepCost) -> Result<usize, Wait> {
        if let Some(short) = self.short() {
            return Err(short);
        }
        if self.whole_prompts {
            // Nobody decodes beside it, so no time is short.
            return if remaining <= self.tokens { Ok(remaining) } else { Err(Wait::TokenBudget) };
        }
        let most = remaining.min(self.tokens);
        let Some(limit) = self.limit else { return Ok(most) };
        let load = self.plan.load + self.to_come;
        let unmeasured = || UNMEASURED_CHUNK.saturating_sub(load.prefill_tokens).min(most);
        let fits = cost.longest_chunk(load, computed, most, limit).unwrap_or_else(unmeasured);
        let least = most.min(MIN_CHUNK);
        match load.prefills {
            0 => Ok(fits.max(least)),
            _ if fits < least => Err(Wait::StallLimit),
            _ => Ok(fits),
        }
    }
}
