//! Which beginnings of prompts which worker has seen: a guess at its cache that needs no question. Pure.
//!
//! A prompt is a chain of pieces; a piece's key holds all that comes before it, so equal keys mean equal beginnings.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::units::TokenId;

/// Tokens of a piece: a block of the KV cache as it is configured by default.
const TOKENS: usize = 32;
/// Bytes of a piece of text, for workers whose tokens we do not know.
const BYTES: usize = 128;
/// Pieces of one prompt that are looked at; what agrees so far agrees enough.
const LONGEST: usize = 512;
/// Pieces that are remembered of one worker; then the older half is forgotten.
const REMEMBERED: usize = 65_536;

/// The keys of a prompt's whole pieces, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain(Vec<u64>);

impl Chain {
    /// Prompts with different salts share nothing.
    pub fn of_tokens(salt: &str, tokens: &[TokenId]) -> Chain {
        Chain::new(salt, tokens.chunks_exact(TOKENS))
    }

    pub fn of_text(salt: &str, text: &str) -> Chain {
        Chain::new(salt, text.as_bytes().chunks_exact(BYTES))
    }

    fn new<'a, T: Hash + 'a>(salt: &str, pieces: impl Iterator<Item = &'a [T]>) -> Chain {
        let mut before = hash(&salt);
        let key = |piece: &'a [T]| {
            before = hash(&(before, piece));
            before
        };
        Chain(pieces.take(LONGEST).map(key).collect())
    }
}

/// The same in every process: the standard hasher with its fixed keys.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// What one worker has seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// When a piece was last sent there, by count of prompts.
    pieces: HashMap<u64, u64>,
    prompts: u64,
}

impl Seen {
    /// How many pieces of the chain's beginning are known.
    pub fn matched(&self, chain: &Chain) -> usize {
        chain.0.iter().take_while(|key| self.pieces.contains_key(key)).count()
    }

    pub fn note(&mut self, chain: &Chain) {
        self.prompts += 1;
        self.pieces.extend(chain.0.iter().map(|&key| (key, self.prompts)));
        if self.pieces.len() > REMEMBERED {
            let mut ages: Vec<u64> = self.pieces.values().copied().collect();
            let middle = ages.len() / 2;
            let (_, &mut median, _) = ages.select_nth_unstable(middle);
            // Where one prompt is half of all, it goes too: what is left must be less.
            self.pieces.retain(|_, at| *at > median);
        }
    }

    /// Its cache is empty.
    pub fn forget(&mut self) {
        self.pieces.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whole_pieces_of_equal_beginnings_match() {
        let tokens: Vec<TokenId> = (0..100).collect();
        let mut seen = Seen::default();
        assert_eq!(seen.matched(&Chain::of_tokens("", &tokens)), 0);
        seen.note(&Chain::of_tokens("", &tokens));
        assert_eq!(seen.matched(&Chain::of_tokens("", &tokens)), 3);
        assert_eq!(seen.matched(&Chain::of_tokens("", &tokens[..64])), 2);
        assert_eq!(seen.matched(&Chain::of_tokens("salt", &tokens)), 0);
        assert_eq!(seen.matched(&Chain::of_tokens("", &tokens[1..])), 0, "the same words elsewhere are no beginning");
        seen.forget();
        assert_eq!(seen.matched(&Chain::of_tokens("", &tokens)), 0);
    }

    #[test]
    fn memory_is_bounded_and_the_newest_stay() {
        let mut seen = Seen::default();
        let prompt = |n: u32| Chain::of_tokens(&n.to_string(), &vec![n; TOKENS * 100]);
        for n in 0..2_000 {
            seen.note(&prompt(n));
            assert!(seen.pieces.len() <= REMEMBERED);
        }
        assert_eq!((seen.matched(&prompt(0)), seen.matched(&prompt(1_999))), (0, 100));
    }

    proptest! {
        #[test]
        fn what_matches_is_the_common_beginning(
            common in 0usize..6, first in proptest::collection::vec(0u8..2, 0..300), second in proptest::collection::vec(2u8..4, 0..300),
        ) {
            let text = |rest: &[u8]| "x".repeat(common * BYTES) + &String::from_utf8(rest.iter().map(|n| b'a' + n).collect()).unwrap();
            let mut seen = Seen::default();
            seen.note(&Chain::of_text("", &text(&first)));
            prop_assert_eq!(seen.matched(&Chain::of_text("", &text(&second))), common);
        }
    }
}
