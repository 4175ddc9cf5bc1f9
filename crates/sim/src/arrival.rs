//! One request of a load, and the tokens of its prompt.

use std::sync::Arc;

use forebay_core::request::Priority;
use forebay_core::units::{Micros, TokenId};

use super::dice::Dice;

/// One request of a scenario or trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub at: Micros,
    /// Index in the classes of its load.
    pub class: usize,
    pub priority: Priority,
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// Which other prompts begin alike; `None` for a prompt that begins like no other.
    pub shared: Option<Shared>,
}

/// A prompt as names of its parts: where the names of two prompts are the same from the beginning on, so are their tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    pub names: Arc<[u32]>,
    /// Tokens that a name stands for, at least 1.
    pub tokens: u32,
}

/// The tokens below are for the beginnings of prompts and what comes after them.
const FIRST_NAME: TokenId = 2;

impl Arrival {
    /// Its prompt, if it is the `index`-th of its load.
    pub fn prompt(&self, index: usize) -> Vec<TokenId> {
        let mut prompt = vec![0; self.prompt_tokens as usize];
        match &self.shared {
            None => prompt[0] = FIRST_NAME + index as TokenId,
            Some(shared) => {
                let parts = prompt.iter_mut().step_by(shared.tokens as usize);
                parts.zip(shared.names.iter()).for_each(|(token, name)| *token = FIRST_NAME + name);
            }
        }
        prompt
    }
}

/// The classes that [`mix`] draws from, and their shares of the requests.
pub const MIX: [(Priority, f64); 4] =
    [(Priority::Critical, 0.05), (Priority::High, 0.15), (Priority::Normal, 0.5), (Priority::Low, 0.3)];

/// Gives each arrival a class of [`MIX`], instead of its own; the same seed, the same classes.
pub fn mix(arrivals: &mut [Arrival], seed: u64) {
    let mut dice = Dice::stream(seed, 4);
    for arrival in arrivals {
        let mut left = dice.uniform();
        let class = MIX.iter().position(|(_, share)| {
            left -= share;
            left < 0.0
        });
        arrival.class = class.unwrap_or(MIX.len() - 1);
        arrival.priority = MIX[arrival.class].0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[u32], tokens: u32, prompt_tokens: u32) -> Arrival {
        let shared = Some(Shared { names: names.into(), tokens });
        let at = Micros::ZERO;
        Arrival { at, class: 0, priority: Priority::Normal, prompt_tokens, output_tokens: 1, shared }
    }

    #[test]
    fn prompts_are_alike_as_far_as_their_names_are() {
        let (one, two) = (named(&[0, 1, 2], 4, 11).prompt(0), named(&[0, 1, 3], 4, 10).prompt(1));
        assert_eq!((one.len(), two.len()), (11, 10));
        assert_eq!(one[..8], two[..8]);
        assert_ne!(one[8], two[8]);
        // Without names, a prompt differs from its first token on.
        let alone = Arrival { shared: None, ..named(&[], 1, 5) };
        assert_ne!(alone.prompt(0)[0], alone.prompt(1)[0]);
    }

    #[test]
    fn classes_come_in_their_shares() {
        let mut arrivals = vec![named(&[], 1, 1); 20_000];
        mix(&mut arrivals, 7);
        for (class, (priority, share)) in MIX.iter().enumerate() {
            let found = arrivals.iter().filter(|arrival| arrival.class == class).collect::<Vec<_>>();
            assert!(found.iter().all(|arrival| arrival.priority == *priority));
            assert!((found.len() as f64 / 20_000.0 - share).abs() < 0.01, "{priority:?}: {}", found.len());
        }
    }
}
