//! Prompt lookup: what followed the last time a sequence ended like this, as a guess at how it goes on (Saxena, "Prompt
//! Lookup Decoding", 2023; Yang et al., "Inference with Reference", 2023).

use crate::units::TokenId;

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
pub struct AcceptanceRate {
    proposed: usize,
    accepted: usize,
    /// No guesses before the sequence has drawn so many tokens.
    rests_until: usize,
}

impl AcceptanceRate {
    /// Whether a sequence that has drawn `generated` tokens makes no guesses for now.
    pub fn rests(&self, generated: usize) -> bool {
        generated < self.rests_until
    }

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
    fn few_right_guesses_rest() {
        let mut rate = AcceptanceRate::default();
        rate.note(12, 0, 10);
        assert_eq!(rate.rests_until, 0);
        rate.note(6, 4, 20);
        assert_eq!(rate.rests_until, 84, "4 of 18");
        rate.note(16, 4, 100);
        assert_eq!(rate.rests_until, 84, "a quarter is enough");
    }
}
