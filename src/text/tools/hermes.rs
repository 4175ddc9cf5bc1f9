//! `<tool_call>{json}</tool_call>`, as Hermes and Qwen models write calls.

use super::super::split::held_back;
use super::{Call, Piece};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// Finds calls in text that arrives in chunks.
///
/// A call comes out whole, when its close tag did. What stands between tags and is no call comes out as the text it is,
/// tags included; so does a call that the end cuts off. Pieces, texts next to each other joined, do not depend on how
/// the text was cut.
#[derive(Default)]
pub struct HermesParser {
    held: String,
}

impl HermesParser {
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        self.held.push_str(text);
        let mut pieces = Vec::new();
        while self.step(&mut pieces) {}
        pieces
    }

    /// The text ended: what was held is text.
    pub fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        put_text(&mut pieces, std::mem::take(&mut self.held));
        pieces
    }

    /// One step with the held text; false when it needs more.
    fn step(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let Some(open) = self.held.find(OPEN) else {
            let tail = self.held.split_off(self.held.len() - held_back(&self.held, OPEN));
            put_text(pieces, std::mem::replace(&mut self.held, tail));
            return false;
        };
        let tagged = self.held.split_off(open);
        put_text(pieces, std::mem::replace(&mut self.held, tagged));
        // A close tag inside a JSON string does not end the call: the first one after which the JSON is whole does.
        let body = &self.held[OPEN.len()..];
        let mut first = None;
        let mut broken = None;
        for (at, _) in body.match_indices(CLOSE) {
            first.get_or_insert(at);
            if let Some(call) = Call::from_json(&body[..at]) {
                pieces.push(Piece::Call(call));
                self.held = body[at + CLOSE.len()..].to_owned();
                return true;
            }
            if !Call::unfinished(&body[..at]) {
                broken = first;
                break;
            }
        }
        let Some(at) = broken else {
            return false;
        };
        let rest = self.held.split_off(OPEN.len() + at + CLOSE.len());
        put_text(pieces, std::mem::replace(&mut self.held, rest));
        true
    }
}

fn put_text(pieces: &mut Vec<Piece>, text: String) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
}
