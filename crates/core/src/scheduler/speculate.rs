//! Prompt lookup: what followed the last time a sequence ended like this, as a guess at how it goes on (Saxena, "Prompt
//! Lookup Decoding", 2023; Yang et al., "Inference with Reference", 2023).
//!
//! Guesses ride along with a decode: the step computes them as if they were known, draws at each place, and keeps what was
//! drawn up to the first place where guess and draw differ. So a sequence's tokens are those that it would have had without,
//! and only their number per step changes.
//!
//! What a grammar forces is guessed in the same way, always: where one token is allowed, the draw is that token.

use crate::kv::BlockPool;
use crate::units::TokenId;

use super::Scheduler;
use super::budget::Draft;
use super::cost::StepLoad;
use super::sequence::Running;

/// Whether decodes carry guesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speculative {
    #[default]
    Off,
    PromptLookup,
}

impl Speculative {
    pub const ALL: [Speculative; 2] = [Speculative::Off, Speculative::PromptLookup];

    pub const fn name(self) -> &'static str {
        match self {
            Speculative::Off => "off",
            Speculative::PromptLookup => "prompt_lookup",
        }
    }
}

/// Guesses per step and sequence, at most.
pub(super) const MOST_GUESSES: usize = 6;
/// Tokens at the end that must have occurred before; longer ones are tried first.
const LONGEST: usize = 3;
const SHORTEST: usize = 2;
/// How far back is looked.
const REACH: usize = 4_096;
/// After so many guesses a sequence is judged, and if fewer than a quarter were right, it rests for so many tokens.
const JUDGED: usize = 16;
const REST: usize = 64;

/// How a sequence's guesses have fared.
#[derive(Debug, Default)]
pub struct Luck {
    proposed: usize,
    accepted: usize,
    /// No guesses before it has drawn so many tokens.
    rests_until: usize,
}

impl Luck {
    pub fn note(&mut self, proposed: usize, accepted: usize, generated: usize) {
        self.proposed += proposed;
        self.accepted += accepted;
        if self.proposed >= JUDGED {
            if self.accepted * 4 < self.proposed {
                self.rests_until = generated + REST;
            }
            (self.proposed, self.accepted) = (0, 0);
        }
    }
}

/// What followed the last earlier occurrence of how `tokens` end, at most `most` tokens; empty where there is none.
pub(super) fn lookup(tokens: &[TokenId], most: usize) -> &[TokenId] {
    let from = tokens.len().saturating_sub(REACH);
    for length in (SHORTEST..=LONGEST).rev() {
        let Some(at) = tokens.len().checked_sub(length).filter(|at| *at > from) else { continue };
        let end = &tokens[at..];
        let found = (from..at).rev().find(|&start| &tokens[start..start + length] == end);
        if let Some(start) = found {
            let rest = &tokens[start + length..];
            return &rest[..rest.len().min(most)];
        }
    }
    &[]
}

impl Scheduler {
    /// Gives decodes that are planned what is left of the step's tokens and time for guesses. Nobody else is held up: this
    /// comes last, stays within the blocks that the sequences have, and within the limit on stalls.
    pub(super) fn speculate(&mut self, draft: &mut Draft, pool: &BlockPool) {
        let speculative = self.config.speculative;
        for index in 0..draft.plan.chunks.len() {
            let chunk = &draft.plan.chunks[index];
            let (seq, end) = (chunk.seq, chunk.tokens.end as usize);
            if !chunk.decode || draft.tokens == 0 {
                continue;
            }
            let Some(running) = self.find(seq) else { continue };
            let room = (running.table.len() * pool.block_size()).min(self.config.max_model_len - 1);
            let guesses = running.guesses(room.saturating_sub(end).min(draft.tokens), speculative);
            let load = (end + 1..=end + guesses).fold(draft.plan.load, |load, at| load + StepLoad::decode(at));
            let late = draft.limit.is_some_and(|limit| self.predict(&load).is_none_or(|time| time > limit));
            if guesses == 0 || late {
                continue;
            }
            let chunk = &mut draft.plan.chunks[index];
            chunk.tokens.end += guesses as u32;
            chunk.proposed = guesses as u32;
            draft.tokens -= guesses;
            draft.plan.load = load;
        }
        draft.plan.predicted = self.predict(&draft.plan.load);
    }
}

impl Running {
    /// How many guesses it has, at most `room`.
    fn guesses(&self, room: usize, speculative: Speculative) -> usize {
        // The last token of all is drawn, not guessed.
        let left = self.request().max_tokens() as usize - self.generated() - 1;
        let most = room.min(left);
        if !self.forced.is_empty() {
            return most.min(self.forced.len());
        }
        if speculative == Speculative::Off || self.generated() < self.luck.rests_until {
            return 0;
        }
        lookup(self.tokens(), most.min(MOST_GUESSES)).len()
    }

    /// Its first `count` guesses, of which it has as many.
    pub(super) fn guessed(&self, count: usize) -> &[TokenId] {
        if self.forced.is_empty() { lookup(self.tokens(), count) } else { &self.forced[..count.min(self.forced.len())] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_occurrence_of_the_longest_end_counts() {
        assert_eq!(lookup(&[1, 2, 3, 4, 5, 1, 2, 3], 6), [4, 5, 1, 2, 3]);
        assert_eq!(lookup(&[1, 2, 3, 4, 5, 1, 2, 3], 2), [4, 5]);
        assert_eq!(lookup(&[9, 2, 3, 7, 9, 8, 2, 3, 6, 4, 2, 3], 1), [6]);
        assert_eq!(lookup(&[1, 2, 3, 7, 5, 2, 3, 8, 1, 2, 3], 1), [7], "three before two");
        assert_eq!(lookup(&[5, 5, 5, 5], 6), [5]);
        for none in [&[][..], &[1], &[1, 2], &[1, 2, 3, 4]] {
            assert!(lookup(none, 6).is_empty());
        }
    }

    #[test]
    fn bad_luck_rests() {
        let mut luck = Luck::default();
        luck.note(12, 0, 10);
        assert_eq!(luck.rests_until, 0);
        luck.note(6, 4, 20);
        assert_eq!(luck.rests_until, 84, "4 of 18");
        luck.note(16, 4, 100);
        assert_eq!(luck.rests_until, 84, "a quarter is enough");
    }
}
