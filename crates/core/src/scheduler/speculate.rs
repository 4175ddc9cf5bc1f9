//! Guesses ride along with a decode: the step computes them as if they were known, draws at each place, and keeps what was
//! drawn up to the first place where guess and draw differ. So a sequence's tokens are those that it would have had without,
//! and only their number per step changes. Where guesses come from is in [`super::lookup`].
//!
//! What a grammar forces is guessed in the same way, always: where one token is allowed, the draw is that token.

use super::budget::Draft;
use super::config::Config;
use super::cost::{StepCost, StepLoad};
use super::queues::Queues;

/// Gives decodes that are planned what is left of the step's tokens and time for guesses. Nobody else is held up: this
/// comes last, stays within the blocks that the sequences have, and within the limit on stalls.
pub(super) fn add_guesses(draft: &mut Draft, queues: &Queues, config: &Config, cost: &StepCost, block_size: usize) {
    for index in 0..draft.plan.chunks.len() {
        let chunk = &draft.plan.chunks[index];
        let (seq, end) = (chunk.seq, chunk.tokens.end as usize);
        if !chunk.decode || draft.tokens == 0 {
            continue;
        }
        let Some(running) = queues.find(seq) else { continue };
        let room = (running.table.len() * block_size).min(config.max_model_len - 1);
        let guesses = running.guesses(room.saturating_sub(end).min(draft.tokens), config.speculative);
        let load = (end + 1..=end + guesses).fold(draft.plan.load, |load, at| load + StepLoad::decode(at));
        let late = draft.limit.is_some_and(|limit| cost.predict(&load).is_none_or(|time| time > limit));
        if guesses == 0 || late {
            continue;
        }
        let chunk = &mut draft.plan.chunks[index];
        chunk.tokens.end += guesses as u32;
        chunk.proposed = guesses as u32;
        draft.tokens -= guesses;
        draft.plan.load = load;
    }
}
