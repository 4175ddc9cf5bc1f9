//! A completion's text, read as it comes: thinking, calls of tools and stop strings are told apart.

use super::delta::{CallBegins, CallDelta};
use super::entropy::entropy;
use super::manner::{Manner, Tools};
use forebay_core::request::FinishReason;
use forebay_text::glyph::{self, Glyph};
use forebay_text::{Piece, ReasoningParser, Scan, StopMatcher, ToolFamily, ToolParser};

/// Thinking goes first, calls are looked for in what is left, stop strings in what is left then: neither a thought nor a
/// call's arguments end an answer.
pub struct Reader {
    reasoning: Option<ReasoningParser>,
    tools: Option<(ToolParser, ToolFamily)>,
    stops: StopMatcher,
    calls: usize,
}

/// What a piece of text brought.
#[derive(Debug, Default, PartialEq)]
pub struct Heard {
    pub text: String,
    pub reasoning: String,
    pub calls: Vec<CallDelta>,
    /// The text ends here; nothing more may be pushed.
    pub ended: Option<FinishReason>,
}

impl Heard {
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.reasoning.is_empty() && self.calls.is_empty()
    }
}

impl Reader {
    pub fn new(manner: &Manner) -> Reader {
        let parser = |tools: &Tools| ToolParser::new(tools.family, tools.names.iter().cloned(), tools.only_first);
        Reader {
            reasoning: manner.reasoning.map(|(family, in_block)| ReasoningParser::new(family, in_block)),
            tools: manner.tools.as_ref().map(|tools| (parser(tools), tools.family)),
            stops: StopMatcher::new(manner.stop.clone()),
            calls: 0,
        }
    }

    /// The spellings that it must see even where they are special tokens.
    pub fn marks(manner: &Manner) -> impl Iterator<Item = &'static str> {
        let tags = manner.reasoning.into_iter().flat_map(|(family, _)| family.tags());
        tags.chain(manner.tools.iter().flat_map(|tools| tools.family.marks()))
    }

    /// Reads on. Stop strings are found only where `stops_count`.
    pub fn push(&mut self, glyphs: Vec<Glyph>, stops_count: bool) -> Heard {
        let mut heard = Heard::default();
        let content = match &mut self.reasoning {
            None => glyphs,
            Some(parser) => {
                let parts = parser.push(glyphs);
                heard.reasoning = parts.reasoning;
                parts.content
            }
        };
        let pieces = match &mut self.tools {
            None => vec![Piece::Text(glyph::visible(content))],
            Some((parser, _)) => parser.push(content),
        };
        self.hear(pieces, stops_count, &mut heard);
        heard
    }

    /// `rest` is the last of the text; what was held is released.
    pub fn finish(&mut self, rest: Vec<Glyph>) -> Heard {
        let mut heard = self.push(rest, true);
        if heard.ended.is_some() {
            return heard;
        }
        let parts = self.reasoning.as_mut().map(ReasoningParser::finish).unwrap_or_default();
        heard.reasoning += &parts.reasoning;
        let pieces = match &mut self.tools {
            None => vec![Piece::Text(glyph::visible(parts.content))],
            Some((parser, _)) => [parser.push(parts.content), parser.finish()].concat(),
        };
        self.hear(pieces, true, &mut heard);
        if heard.ended.is_none() {
            heard.text += &self.stops.finish();
        }
        heard
    }

    pub fn is_thinking(&self) -> bool {
        self.reasoning.as_ref().is_some_and(ReasoningParser::is_thinking)
    }

    pub fn has_called(&self) -> bool {
        self.calls > 0
    }

    /// The stop string that was found.
    pub fn matched(&self) -> Option<&str> {
        self.stops.matched()
    }

    /// Bytes of the text so far that may still become either of several things.
    pub fn held_bytes(&self) -> usize {
        let reasoning = self.reasoning.as_ref().map_or(0, ReasoningParser::held_bytes);
        reasoning + self.tools.as_ref().map_or(0, |(parser, _)| parser.held_bytes()) + self.stops.held_bytes()
    }

    fn hear(&mut self, pieces: Vec<Piece>, stops_count: bool, heard: &mut Heard) {
        for piece in pieces {
            match piece {
                Piece::Text(text) if !stops_count => heard.text += &text,
                Piece::Text(text) => match self.stops.push(&text) {
                    Scan::Pass(text) => heard.text += &text,
                    Scan::Stop(text) => {
                        heard.text += &text;
                        heard.ended = Some(FinishReason::Stop);
                        return;
                    }
                },
                Piece::Call { name } => {
                    let begins = Some(CallBegins { id: self.call_id(), name });
                    heard.calls.push(CallDelta { index: self.calls, begins, arguments: String::new() });
                    self.calls += 1;
                }
                Piece::Arguments(more) => match heard.calls.last_mut().filter(|last| last.begins.is_none()) {
                    Some(last) => last.arguments += &more,
                    None => heard.calls.push(CallDelta { index: self.calls - 1, begins: None, arguments: more }),
                },
            }
        }
        if self.tools.as_ref().is_some_and(|(parser, _)| parser.ended()) {
            heard.text += &self.stops.finish();
            heard.ended = Some(FinishReason::ToolCalls);
        }
    }

    /// Mistral's templates refuse ids of another form when the call comes back in a history.
    fn call_id(&self) -> String {
        match self.tools.as_ref().map(|(_, family)| family) {
            Some(ToolFamily::Mistral) => format!("{:09x}", entropy() >> 28),
            _ => format!("call_{:016x}{:08x}", entropy(), entropy() as u32),
        }
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
