//! A model's tokenizer.json: text to ids, and what each id stands for. Pure.
//!
//! The only file that knows the tokenizers crate. Files come with a model and may be crafted, and the crate panics on some
//! of them, so everything it does runs under `catch_unwind` and failures are values.

use std::panic::{AssertUnwindSafe, catch_unwind};

use thiserror::Error;
use tokenizers::{NormalizedString, Normalizer};

use super::spelling::{ByteRules, Spelling};
use forebay_core::units::TokenId;

/// Ids at or above this are refused at load: tables are indexed by id. The largest vocabularies have a sixteenth of it.
const MAX_IDS: usize = 1 << 22;

pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    spelling: Spelling,
    tokens: TokenTable,
}

/// What is known of every id, by id.
#[derive(Default)]
struct TokenTable {
    /// Token `i` is `bytes[ends[i - 1]..ends[i]]`.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    kinds: Vec<Kind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// No token has this id.
    Hole,
    Plain,
    /// Marked special in the file: control tokens, skipped in text.
    Special,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenizerError {
    #[error("tokenizer.json is not a valid tokenizer: {0}")]
    Invalid(String),
    #[error("tokenizer.json has the token id {id}, at most {} are supported", MAX_IDS - 1)]
    IdTooLarge { id: u32 },
    #[error("tokenizer.json has no tokens")]
    NoTokens,
    #[error("the tokenizer failed: {0}")]
    Failed(String),
    #[error("the tokenizer panicked")]
    Panicked,
}

impl Tokenizer {
    /// Reads the bytes of a tokenizer.json. Truncation and padding, if the file asks for them, are switched off.
    pub fn from_json(json: &[u8]) -> Result<Tokenizer, TokenizerError> {
        guarded(|| {
            let mut inner = tokenizers::Tokenizer::from_bytes(json).map_err(|e| TokenizerError::Invalid(brief(&e)))?;
            inner.with_truncation(None).map_err(|e| TokenizerError::Invalid(brief(&e)))?;
            inner.with_padding(None);
            let decoder = serde_json::to_value(inner.get_decoder());
            let spelling = Spelling::of(&decoder.map_err(|e| TokenizerError::Invalid(e.to_string()))?);
            let tokens = TokenTable::read(&inner, &spelling)?;
            Ok(Tokenizer { inner, spelling, tokens })
        })
    }

    /// Text to ids. With `add_special`, the tokens that the file's post-processor puts around a text (often a BOS) are
    /// added. Special tokens written in `text` become their ids.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<TokenId>, TokenizerError> {
        guarded(|| {
            let encoding = self.inner.encode_fast(text, add_special).map_err(|e| TokenizerError::Failed(brief(&e)))?;
            Ok(encoding.get_ids().to_vec())
        })
    }

    /// The token of this spelling, added tokens included.
    pub fn token_id(&self, spelling: &str) -> Option<TokenId> {
        self.inner.token_to_id(spelling)
    }

    /// One more than the highest id. The model's logits may be wider or, rarely, narrower.
    pub fn vocab_size(&self) -> usize {
        self.tokens.kinds.len()
    }

    /// The longest token's text in bytes.
    pub fn max_token_bytes(&self) -> usize {
        (0..self.vocab_size() as TokenId).map(|id| self.token_bytes(id).len()).max().unwrap_or(0)
    }

    /// What a token stands for on its own, special tokens included: possibly part of a character, empty for an unknown id.
    pub fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.tokens.bytes(id).unwrap_or_default()
    }

    /// [`Tokenizer::token_bytes`] as text, U+FFFD where they are not.
    pub fn token_text(&self, id: TokenId) -> String {
        String::from_utf8_lossy(self.token_bytes(id)).into_owned()
    }

    /// Whether the token is part of a text: not a special one, not an unknown id.
    pub fn is_text(&self, id: TokenId) -> bool {
        self.tokens.kind(id) == Kind::Plain
    }

    /// The strings that [`Tokenizer::encode`] turns into control tokens.
    pub fn special_texts(&self) -> Vec<String> {
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder().values();
        added.filter(|token| token.special).map(|token| token.content.clone()).collect()
    }

    /// Whether some of them are looked for in what [`Tokenizer::normalised`] returns.
    pub fn normalises_specials(&self) -> bool {
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder().values();
        self.inner.get_normalizer().is_some() && added.into_iter().any(|token| token.special && token.normalized)
    }

    /// A text as the file's normalizer makes it; as it is, if that fails.
    pub fn normalised(&self, text: &str) -> String {
        let normalised = guarded(|| {
            let mut normalised = NormalizedString::from(text);
            if let Some(normalizer) = self.inner.get_normalizer() {
                normalizer.normalize(&mut normalised).map_err(|e| TokenizerError::Failed(brief(&e)))?;
            }
            Ok(normalised.get().to_owned())
        });
        normalised.unwrap_or_else(|_| text.to_owned())
    }

    /// Whether every token stands for fixed bytes, so that those of a text, concatenated, are the text.
    pub fn is_spelled_in_bytes(&self) -> bool {
        self.byte_rules().is_some()
    }

    pub(super) fn byte_rules(&self) -> Option<&ByteRules> {
        match &self.spelling {
            Spelling::Bytes(rules) => Some(rules),
            Spelling::InContext => None,
        }
    }

    /// Ids to text by the tokenizer's own decoder, special tokens skipped. Some decoders panic on nothing, so nothing is
    /// answered here.
    pub(super) fn decode(&self, ids: &[TokenId]) -> Result<String, TokenizerError> {
        if !ids.iter().any(|&id| self.is_text(id)) {
            return Ok(String::new());
        }
        guarded(|| self.inner.decode(ids, true).map_err(|e| TokenizerError::Failed(brief(&e))))
    }
}

impl TokenTable {
    fn read(inner: &tokenizers::Tokenizer, spelling: &Spelling) -> Result<TokenTable, TokenizerError> {
        let last = inner.get_vocab(true).into_values().max().ok_or(TokenizerError::NoTokens)?;
        if last as usize >= MAX_IDS {
            return Err(TokenizerError::IdTooLarge { id: last });
        }
        let mut table = TokenTable::default();
        for id in 0..=last {
            let token = inner.id_to_token(id);
            let kind = match &token {
                None => Kind::Hole,
                Some(token) if inner.get_added_vocabulary().is_special_token(token) => Kind::Special,
                Some(_) => Kind::Plain,
            };
            let bytes = match (token, spelling) {
                (None, _) => Vec::new(),
                (Some(token), Spelling::Bytes(rules)) => rules.bytes(&token),
                (Some(_), Spelling::InContext) => {
                    inner.decode(&[id], false).map_err(|e| TokenizerError::Invalid(brief(&e)))?.into_bytes()
                }
            };
            table.bytes.extend_from_slice(&bytes);
            table.ends.push(table.bytes.len());
            table.kinds.push(kind);
        }
        Ok(table)
    }

    fn bytes(&self, id: TokenId) -> Option<&[u8]> {
        let id = id as usize;
        let start = if id == 0 { 0 } else { *self.ends.get(id - 1)? };
        self.bytes.get(start..*self.ends.get(id)?)
    }

    fn kind(&self, id: TokenId) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or(Kind::Hole)
    }
}

/// Runs what may panic on a crafted file. Nothing is left half-changed: the crate's only inner state is a cache that drops
/// what it cannot lock.
fn guarded<T>(run: impl FnOnce() -> Result<T, TokenizerError>) -> Result<T, TokenizerError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(TokenizerError::Panicked))
}

/// The crate's messages may quote the file.
fn brief(error: &dyn std::fmt::Display) -> String {
    error.to_string().chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    #[test]
    fn plain_text_gets_the_post_processors_tokens_and_chat_text_does_not() {
        let tokenizer = fixtures::byte_level();
        let bare = tokenizer.encode("hello", false).unwrap();
        assert_eq!(tokenizer.encode("hello", true).unwrap(), [vec![fixtures::BOS], bare.clone()].concat());
        assert_eq!(tokenizer.encode("<|end|>hello", false).unwrap(), [vec![fixtures::END], bare].concat());
    }

    #[test]
    fn tokens_know_their_bytes() {
        let tokenizer = fixtures::byte_level();
        let ids = tokenizer.encode("é fish", false).unwrap();
        assert_eq!(ids.iter().map(|&id| tokenizer.token_bytes(id)).collect::<Vec<_>>().concat(), "é fish".as_bytes());
        assert_eq!(tokenizer.token_text(ids[0]), "\u{FFFD}", "half a character");
        assert_eq!(tokenizer.token_text(fixtures::END), "<|end|>");
        assert_eq!(tokenizer.token_bytes(u32::MAX), b"");
        assert!(!tokenizer.is_text(fixtures::END) && !tokenizer.is_text(u32::MAX) && tokenizer.is_text(ids[0]));
    }

    #[test]
    fn sizes_come_from_the_ids() {
        let tokenizer = fixtures::byte_level();
        assert_eq!(tokenizer.vocab_size(), fixtures::VOCAB as usize);
        assert_eq!(tokenizer.max_token_bytes(), "<|assistant|>".len());
        assert_eq!(fixtures::word_level().max_token_bytes(), "t319".len());
    }

    #[test]
    fn truncation_in_the_file_is_ignored() {
        let limited = r#""truncation":{"direction":"Right","max_length":2,"strategy":"LongestFirst","stride":0}"#;
        let json = fixtures::byte_level_json().replacen(r#""truncation":null"#, limited, 1);
        assert!(json.contains("max_length"));
        let tokenizer = Tokenizer::from_json(json.as_bytes()).unwrap();
        assert_eq!(tokenizer.encode("abcdefgh", false).unwrap().len(), 8);
    }

    #[test]
    fn broken_files_are_values() {
        let model = |model: &str| {
            format!(
                r#"{{"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null,"model":{model}}}"#
            )
        };
        for (json, what) in [
            (String::new(), "empty"),
            ("{}".into(), "no model"),
            ("[".repeat(100_000), "deep"),
            (model(r#"{"type":"BPE","vocab":{"a":0,"b":1},"merges":[["a","b"]]}"#), "merge without its result"),
            (model(r#"{"type":"BPE","vocab":{},"merges":[]}"#), "no tokens"),
            (model(r#"{"type":"WordLevel","vocab":{"a":4294967295},"unk_token":"a"}"#), "huge id"),
        ] {
            assert!(Tokenizer::from_json(json.as_bytes()).is_err(), "{what}");
        }
    }

    #[test]
    fn a_panic_in_the_crate_is_a_value() {
        assert_eq!(guarded::<()>(|| panic!("crafted")), Err(TokenizerError::Panicked));
        // `Strip` takes `stop` characters off each token without looking how many there are.
        let strip = r#""decoder":{"type":"Strip","content":"t","start":0,"stop":900}"#;
        let json = fixtures::WORD_LEVEL_JSON.replacen(r#""decoder": null"#, strip, 1).replacen(r#""t5""#, r#""tt""#, 1);
        assert_eq!(Tokenizer::from_json(json.as_bytes()).err(), Some(TokenizerError::Panicked));
    }
}
