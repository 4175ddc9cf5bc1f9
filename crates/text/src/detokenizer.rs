//! Tokens that arrive one by one become text. Pure.

use std::sync::Arc;

use super::tokenizer::{Tokenizer, TokenizerError};
use super::utf8::Utf8Stream;
use forebay_core::units::TokenId;

/// Tokens held back at most while the decoder's text does not settle. A character has four bytes; a decoder that needs
/// more than this is not waiting for a character.
const MAX_HELD: usize = 16;

/// One sequence's incremental decoder. What it returns, concatenated, is the decoding of all tokens at once.
///
/// A character is returned when it is complete; one that never is becomes U+FFFD at the end. Special tokens and unknown
/// ids add nothing.
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    state: State,
}

enum State {
    Bytes {
        stream: Utf8Stream,
        /// How many of this character may still be dropped from the start.
        strip: Option<(char, usize)>,
    },
    /// The text of new tokens is what they add to the text of the tokens right before them (vLLM's scheme of two offsets:
    /// `vllm/transformers_utils/detokenizer_utils.py`).
    InContext { before: Vec<TokenId>, held: Vec<TokenId> },
}

impl Detokenizer {
    pub fn new(tokenizer: Arc<Tokenizer>) -> Detokenizer {
        let state = match tokenizer.byte_rules() {
            Some(rules) => State::Bytes { stream: Utf8Stream::default(), strip: rules.strip_start },
            None => State::InContext { before: Vec::new(), held: Vec::new() },
        };
        Detokenizer { tokenizer, state }
    }

    /// Takes nothing off the start of the text: where tokens stand for bytes, it is those of all tokens, as a grammar counts
    /// them.
    pub fn verbatim(tokenizer: Arc<Tokenizer>) -> Detokenizer {
        let mut detokenizer = Detokenizer::new(tokenizer);
        if let State::Bytes { strip, .. } = &mut detokenizer.state {
            *strip = None;
        }
        detokenizer
    }

    /// Adds a token and returns the text that is now certain, possibly none.
    pub fn push(&mut self, token: TokenId) -> Result<String, TokenizerError> {
        if !self.tokenizer.is_text(token) {
            return Ok(String::new());
        }
        match &mut self.state {
            State::Bytes { stream, strip } => Ok(strip_start(stream.push(self.tokenizer.token_bytes(token)), strip)),
            State::InContext { before, held } => {
                held.push(token);
                let (text, settled) = added_text(&self.tokenizer, before, held)?;
                if !settled && held.len() < MAX_HELD {
                    return Ok(String::new());
                }
                *before = std::mem::take(held);
                Ok(text)
            }
        }
    }

    /// The text of what was held back, when no more tokens come.
    pub fn finish(&mut self) -> Result<String, TokenizerError> {
        match &mut self.state {
            State::Bytes { stream, strip } => Ok(strip_start(stream.finish(), strip)),
            State::InContext { before, held } => {
                let (text, _) = added_text(&self.tokenizer, before, held)?;
                *before = std::mem::take(held);
                Ok(text)
            }
        }
    }
}

/// The text of all `tokens` at once, special ones spelled out: what `encode` took apart, put together again.
pub fn detokenize(tokenizer: &Arc<Tokenizer>, tokens: &[TokenId]) -> Result<String, TokenizerError> {
    let mut detokenizer = Detokenizer::new(Arc::clone(tokenizer));
    let mut text = String::new();
    for &token in tokens {
        if tokenizer.is_text(token) {
            text.push_str(&detokenizer.push(token)?);
        } else {
            text.push_str(&detokenizer.finish()?);
            text.push_str(&tokenizer.token_text(token));
        }
    }
    text.push_str(&detokenizer.finish()?);
    Ok(text)
}

/// What `held` adds to the text of `before`, and whether more tokens cannot change it.
fn added_text(tokenizer: &Tokenizer, before: &[TokenId], held: &[TokenId]) -> Result<(String, bool), TokenizerError> {
    if held.is_empty() {
        return Ok((String::new(), true));
    }
    let known = tokenizer.decode(before)?;
    let whole = tokenizer.decode(&[before, held].concat())?;
    // What was sent cannot be taken back: of a decoder that rewrites it, only what is longer is kept.
    let added = whole.get(known.len()..).unwrap_or_default().to_owned();
    let settled = !added.is_empty() && !added.ends_with(char::REPLACEMENT_CHARACTER);
    Ok((added, settled))
}

fn strip_start(mut text: String, strip: &mut Option<(char, usize)>) -> String {
    while let Some((content, left)) = strip
        && let Some(first) = text.chars().next()
    {
        if first != *content || *left == 0 {
            *strip = None;
        } else {
            *left -= 1;
            text.remove(0);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fixtures;
    use super::*;

    #[test]
    fn special_tokens_are_spelled_out_where_they_stand() {
        let tokenizer = Arc::new(fixtures::byte_level());
        let mut tokens = tokenizer.encode("a é", false).unwrap();
        tokens.insert(1, fixtures::END);
        let end = tokenizer.token_text(fixtures::END);
        assert!(!end.is_empty());
        assert_eq!(detokenize(&tokenizer, &tokens).unwrap(), format!("a{end} é"));
    }

    fn streamed(tokenizer: &Arc<Tokenizer>, ids: &[TokenId]) -> Vec<String> {
        let mut detokenizer = Detokenizer::new(Arc::clone(tokenizer));
        let mut pieces: Vec<String> = ids.iter().map(|&id| detokenizer.push(id).unwrap()).collect();
        pieces.push(detokenizer.finish().unwrap());
        pieces
    }

    #[test]
    fn a_character_of_several_tokens_comes_whole() {
        let tokenizer = Arc::new(fixtures::byte_level());
        let ids = tokenizer.encode("é", false).unwrap();
        assert_eq!(streamed(&tokenizer, &ids), ["", "é", ""]);
        assert_eq!(streamed(&tokenizer, &ids[..1]), ["", "\u{FFFD}"]);
    }

    #[test]
    fn special_and_unknown_tokens_add_nothing() {
        let tokenizer = Arc::new(fixtures::byte_level());
        let ids = tokenizer.encode("a<|end|>b", false).unwrap();
        assert_eq!(streamed(&tokenizer, &[ids, vec![9_999]].concat()), ["a", "", "b", "", ""]);
    }

    #[test]
    fn words_without_a_decoder_are_joined_by_spaces() {
        let tokenizer = Arc::new(fixtures::word_level());
        assert_eq!(streamed(&tokenizer, &[7, 7, 300]), ["t7", " t7", " t300", ""]);
    }

    #[test]
    fn sentencepiece_strips_one_leading_space_and_falls_back_to_bytes() {
        let tokenizer = Arc::new(fixtures::sentencepiece());
        let ids = tokenizer.encode("a fish é", false).unwrap();
        assert_eq!(streamed(&tokenizer, &ids).concat(), "a fish é");
        let space = tokenizer.encode("a", false).unwrap()[0];
        assert_eq!(tokenizer.token_text(space), " ");
        assert_eq!(streamed(&tokenizer, &[space, space]), ["", " ", ""]);
    }

    proptest! {
        #[test]
        fn streamed_equals_whole_byte_level(ids in proptest::collection::vec(0..fixtures::VOCAB + 3, 0..40)) {
            let tokenizer = Arc::new(fixtures::byte_level());
            prop_assert_eq!(streamed(&tokenizer, &ids).concat(), tokenizer.decode(&ids).unwrap());
        }

        #[test]
        fn streamed_equals_whole_word_level(ids in proptest::collection::vec(0..330u32, 0..20)) {
            let tokenizer = Arc::new(fixtures::word_level());
            prop_assert_eq!(streamed(&tokenizer, &ids).concat(), tokenizer.decode(&ids).unwrap());
        }

        #[test]
        fn streamed_equals_whole_of_other_decoders(
            decoder in proptest::sample::select(fixtures::DECODERS),
            ids in proptest::collection::vec(0..fixtures::PIECES, 0..20),
        ) {
            let tokenizer = Arc::new(fixtures::with_decoder(decoder));
            prop_assert_eq!(streamed(&tokenizer, &ids).concat(), tokenizer.decode(&ids).unwrap());
        }

        #[test]
        fn text_survives_the_round_trip(text in "\\PC{0,24}") {
            for tokenizer in [fixtures::byte_level(), fixtures::sentencepiece()] {
                let tokenizer = Arc::new(tokenizer);
                let ids = tokenizer.encode(&text, false).unwrap();
                prop_assert_eq!(streamed(&tokenizer, &ids).concat(), text.as_str());
            }
        }
    }
}
