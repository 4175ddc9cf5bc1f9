//! The shape that logprobs had before chat, of a prompt's tokens and of a completion's.

use super::answer::LegacyLogprobs;
use crate::api::pipeline::logprobs::logprob;
use crate::api::pipeline::ordered::Ordered;
use crate::generate::{Generator, TokenLogprob, TopLogprob};
use forebay_core::units::TokenId;

pub struct Legacy {
    /// Alternatives per token.
    count: i64,
    logprobs: LegacyLogprobs,
    /// In characters: where the next token begins.
    offset: usize,
}

impl Legacy {
    pub fn new(count: i64) -> Legacy {
        Legacy::from(count, 0)
    }

    /// The first token begins at `offset`.
    pub fn from(count: i64, offset: usize) -> Legacy {
        let top_logprobs = (count > 0).then(Vec::new);
        Legacy { count, logprobs: LegacyLogprobs { top_logprobs, ..LegacyLogprobs::default() }, offset }
    }

    pub fn offset(&self) -> usize {
        self.offset
    }

    /// A whole prompt. Of its first token nothing is known; `logprobs` are of the others.
    pub fn prompt(&mut self, generator: &Generator, tokens: &[TokenId], logprobs: &[TokenLogprob]) {
        let Some(&first) = tokens.first() else { return };
        let first_spelled = generator.spelled(first);
        self.place(&first_spelled.text, &first_spelled.bytes, generator.is_hidden(first));
        self.logprobs.token_logprobs.push(None);
        self.logprobs.top_logprobs.iter_mut().for_each(|all| all.push(None));
        logprobs.iter().for_each(|token| self.push(token));
    }

    pub fn push(&mut self, token: &TokenLogprob) {
        self.place(&token.text, &token.bytes, token.hidden);
        self.logprobs.token_logprobs.push(Some(logprob(token.logprob)));
        let count = self.count;
        self.logprobs.top_logprobs.iter_mut().for_each(|all| all.push(Some(alternatives(token, count))));
    }

    fn place(&mut self, text: &str, bytes: &[u8], hidden: bool) {
        self.logprobs.tokens.push(spelled(text, bytes));
        self.logprobs.text_offset.push(self.offset);
        if !hidden {
            // Continuation bytes begin no character, so tokens that split one agree with the text.
            self.offset += bytes.iter().filter(|&&byte| byte & 0xC0 != 0x80).count();
        }
    }

    pub fn into_answer(self) -> LegacyLogprobs {
        self.logprobs
    }
}

/// Best first; the drawn token is always among them, as OpenAI has it. Of two tokens that are spelled alike the better
/// counts.
fn alternatives(drawn: &TokenLogprob, count: i64) -> Ordered<f64> {
    let entry = |top: &TopLogprob| (spelled(&top.text, &top.bytes), logprob(top.logprob));
    let mut all: Ordered<f64> = drawn.top.iter().take(count.max(0) as usize).map(entry).collect();
    all.insert_new(spelled(&drawn.text, &drawn.bytes), logprob(drawn.logprob));
    all
}

/// Part of a character is written as OpenAI writes it, so that two such tokens do not become one key.
fn spelled(text: &str, bytes: &[u8]) -> String {
    if std::str::from_utf8(bytes).is_ok() {
        return text.to_owned();
    }
    bytes.iter().fold("bytes:".to_owned(), |spelled, byte| format!("{spelled}\\x{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn legacy_logprobs_count_characters_and_keep_partial_ones_apart() {
        let token = |text: &str, bytes: &[u8], top: Vec<TopLogprob>| TokenLogprob {
            token: 1,
            text: text.into(),
            bytes: bytes.to_vec(),
            hidden: false,
            logprob: -0.5,
            rank: 1,
            top,
        };
        let top = |text: &str, bytes: &[u8]| TopLogprob {
            token: 2,
            text: text.into(),
            bytes: bytes.to_vec(),
            logprob: f32::NEG_INFINITY,
        };
        let tokens = [
            token("é", "é".as_bytes(), vec![top("a", b"a")]),
            token("\u{FFFD}", b"\xe2\x82", vec![top("\u{FFFD}", b"\xe2\x82"), top("\u{FFFD}", b"\xe2\x83")]),
            token("\u{FFFD}", b"\xac", vec![]),
            token("x", b"x", vec![]),
        ];
        let legacy = |count| {
            let mut legacy = Legacy::new(count);
            tokens.iter().for_each(|token| legacy.push(token));
            json!(legacy.into_answer())
        };
        let value = legacy(2);
        assert_eq!(value["text_offset"], json!([0, 1, 2, 2]));
        assert_eq!(value["tokens"], json!(["é", "bytes:\\xe2\\x82", "bytes:\\xac", "x"]));
        assert_eq!(value["top_logprobs"][0], json!({"a": -9999.0, "é": -0.5}));
        assert_eq!(value["top_logprobs"][1].as_object().unwrap().len(), 2);
        assert_eq!(legacy(0)["top_logprobs"], Value::Null);
    }
}
