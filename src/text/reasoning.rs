//! A model's thinking, told apart from its answer while the text arrives. Pure.

use super::split::held_back;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// What a piece of text added to each side.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parts {
    pub reasoning: String,
    pub content: String,
}

/// Splits one answer at its think tags.
///
/// Only a block that begins the answer is thinking: a tag later on is text. The tags and the white space right after
/// each are dropped, all other text comes out on one side or the other, in order. The parts of all pushes and of the end,
/// joined, do not depend on how the text was cut. A block that is never closed is reasoning to its end.
pub struct ReasoningParser {
    state: State,
    /// Text that may still turn out to be (part of) a tag, or white space before one.
    held: String,
}

#[derive(Clone, Copy)]
enum State {
    Start,
    /// In the block; `fresh` while only white space followed the open tag.
    Thinking {
        fresh: bool,
    },
    /// After the block; white space is dropped until text comes.
    Closed,
    Answer,
}

impl ReasoningParser {
    /// `in_block`: the prompt ended inside a think block, so that the answer begins in it.
    pub fn new(in_block: bool) -> ReasoningParser {
        let state = if in_block { State::Thinking { fresh: true } } else { State::Start };
        ReasoningParser { state, held: String::new() }
    }

    /// Whether a prompt leaves a think block open, as templates do that write the tag themselves.
    pub fn opened_by(prompt: &str) -> bool {
        prompt.trim_end().ends_with(OPEN)
    }

    pub fn push(&mut self, text: &str) -> Parts {
        self.held.push_str(text);
        let mut parts = Parts::default();
        while self.step(&mut parts) {}
        parts
    }

    /// The text ended: what was held is text after all.
    pub fn finish(&mut self) -> Parts {
        let rest = std::mem::take(&mut self.held);
        match self.state {
            State::Thinking { .. } => Parts { reasoning: rest, content: String::new() },
            State::Start | State::Closed | State::Answer => Parts { reasoning: String::new(), content: rest },
        }
    }

    /// One step with the held text; false when it needs more.
    fn step(&mut self, parts: &mut Parts) -> bool {
        match self.state {
            State::Start => {
                let text = self.held.trim_start();
                if let Some(rest) = text.strip_prefix(OPEN) {
                    self.held = rest.to_owned();
                    self.state = State::Thinking { fresh: true };
                } else if OPEN.starts_with(text) {
                    return false;
                } else {
                    self.state = State::Answer;
                }
                true
            }
            State::Thinking { fresh: true } => {
                self.held = self.held.trim_start().to_owned();
                self.state = State::Thinking { fresh: self.held.is_empty() };
                !self.held.is_empty()
            }
            State::Thinking { fresh: false } => {
                if let Some((thought, rest)) = self.held.split_once(CLOSE) {
                    parts.reasoning.push_str(thought);
                    self.held = rest.to_owned();
                    self.state = State::Closed;
                    return true;
                }
                let tail = self.held.split_off(self.held.len() - held_back(&self.held, CLOSE));
                parts.reasoning.push_str(&std::mem::replace(&mut self.held, tail));
                false
            }
            State::Closed => {
                self.held = self.held.trim_start().to_owned();
                if !self.held.is_empty() {
                    self.state = State::Answer;
                }
                !self.held.is_empty()
            }
            State::Answer => {
                parts.content.push_str(&std::mem::take(&mut self.held));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(in_block: bool, chunks: &[&str]) -> (String, String) {
        let mut parser = ReasoningParser::new(in_block);
        let mut all: Vec<Parts> = chunks.iter().map(|chunk| parser.push(chunk)).collect();
        all.push(parser.finish());
        (all.iter().map(|p| p.reasoning.as_str()).collect(), all.iter().map(|p| p.content.as_str()).collect())
    }

    const CASES: &[(bool, &str, &str, &str)] = &[
        (false, "<think>\nä 1 < 2 </thin\n</think>\n\nYes ü.", "ä 1 < 2 </thin\n", "Yes ü."),
        (false, " \n<think></think>Yes", "", "Yes"),
        (true, "\nso 😀</think> Yes </think> <think>", "so 😀", "Yes </think> <think>"),
        (false, "Plain <think>no</think>", "", "Plain <think>no</think>"),
        (false, " <thin", "", " <thin"),
        (false, "  <thing> is text", "", "  <thing> is text"),
        (false, "<think>cut off </th", "cut off </th", ""),
        (true, "</think>Yes", "", "Yes"),
        (true, "", "", ""),
        (true, "<</<</think>é", "<</<", "é"),
    ];

    #[test]
    fn the_parts_are_these_however_the_text_is_cut() {
        for &(in_block, text, reasoning, content) in CASES {
            let expected = (reasoning.to_owned(), content.to_owned());
            assert_eq!(parse(in_block, &[text]), expected, "{text:?} whole");
            let ends: Vec<usize> = (0..=text.len()).filter(|&at| text.is_char_boundary(at)).collect();
            for &a in &ends {
                for &b in ends.iter().filter(|&&b| b >= a) {
                    let chunks = [&text[..a], &text[a..b], &text[b..]];
                    assert_eq!(parse(in_block, &chunks), expected, "{chunks:?}");
                }
            }
            let single: Vec<&str> = ends.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            assert_eq!(parse(in_block, &single), expected, "{text:?} by characters");
        }
    }

    #[test]
    fn a_thought_comes_out_while_it_is_thought() {
        let mut parser = ReasoningParser::new(false);
        assert_eq!(parser.push("<think>one ").reasoning, "one ");
        assert_eq!(parser.push("two</").reasoning, "two");
        assert_eq!(parser.push("b>").reasoning, "</b>");
    }

    #[test]
    fn a_prompt_opens_a_block_with_its_last_word() {
        assert!(ReasoningParser::opened_by("<|assistant|><think>\n"));
        assert!(!ReasoningParser::opened_by("<|assistant|><think>\n\n</think>\n"));
    }
}
