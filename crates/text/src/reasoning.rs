//! A model's thinking, told apart from its answer while the text arrives. Pure.

use std::collections::VecDeque;

use super::glyph::{self, Glyph, Spells};

/// Which tags a model puts around its thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningFamily {
    /// `<think>…</think>`: Qwen3, DeepSeek R1, QwQ and most others.
    Think,
    /// `[THINK]…[/THINK]`: Magistral.
    Magistral,
}

impl ReasoningFamily {
    pub const ALL: [ReasoningFamily; 2] = [ReasoningFamily::Think, ReasoningFamily::Magistral];

    pub const fn name(self) -> &'static str {
        match self {
            ReasoningFamily::Think => "think",
            ReasoningFamily::Magistral => "magistral",
        }
    }

    /// The tags that begin and end a block.
    pub const fn tags(self) -> [&'static str; 2] {
        match self {
            ReasoningFamily::Think => ["<think>", "</think>"],
            ReasoningFamily::Magistral => ["[THINK]", "[/THINK]"],
        }
    }

    /// What the model behind a chat template writes, as far as the template tells.
    pub fn of_template(source: &str) -> Option<ReasoningFamily> {
        // Some templates write only the close tag, to cut old thoughts off.
        ReasoningFamily::ALL.into_iter().find(|family| family.tags().iter().any(|tag| source.contains(tag)))
    }

    /// Whether a prompt leaves a block open, as templates do that write the tag themselves.
    pub fn opened_by(self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(self.tags()[0])
    }
}

/// What a piece of text added to each side.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parts {
    pub reasoning: String,
    pub content: Vec<Glyph>,
}

/// Splits one answer at its think tags.
///
/// Only a block that begins the answer is thinking: a tag later on is text. The tags and the white space right after
/// each are dropped, all other text comes out on one side or the other, in order. The parts of all pushes and of the end,
/// joined, do not depend on how the text was cut. A block that is never closed is reasoning to its end.
pub struct ReasoningParser {
    family: ReasoningFamily,
    state: State,
    /// What may still turn out to be (part of) a tag, or white space before one.
    held: Vec<Glyph>,
    /// What is to be looked at, again or for the first time.
    queue: VecDeque<Glyph>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
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
    /// `in_block`: the prompt ended inside a block, so that the answer begins in it.
    pub fn new(family: ReasoningFamily, in_block: bool) -> ReasoningParser {
        let state = if in_block { State::Thinking { fresh: true } } else { State::Start };
        ReasoningParser { family, state, held: Vec::new(), queue: VecDeque::new() }
    }

    pub fn push(&mut self, text: impl IntoIterator<Item = Glyph>) -> Parts {
        self.queue.extend(text);
        let mut parts = Parts::default();
        while let Some(glyph) = self.queue.pop_front() {
            self.step(glyph, &mut parts);
        }
        parts
    }

    /// The text ended: what was held is text after all.
    pub fn finish(&mut self) -> Parts {
        let rest = std::mem::take(&mut self.held);
        match self.state {
            State::Thinking { .. } => Parts { reasoning: glyph::visible(rest), content: Vec::new() },
            State::Start | State::Closed | State::Answer => Parts { reasoning: String::new(), content: rest },
        }
    }

    pub fn is_thinking(&self) -> bool {
        matches!(self.state, State::Thinking { .. })
    }

    pub fn held_bytes(&self) -> usize {
        glyph::bytes(&self.held)
    }

    fn step(&mut self, glyph: Glyph, parts: &mut Parts) {
        let [open, close] = self.family.tags();
        match self.state {
            State::Start => {
                self.held.push(glyph);
                let white = self.held.iter().take_while(|glyph| glyph.c.is_whitespace()).count();
                match Spells::of(&self.held[white..], open) {
                    Spells::Whole => {
                        self.held.clear();
                        self.state = State::Thinking { fresh: true };
                    }
                    Spells::Beginning => {}
                    Spells::No => {
                        parts.content.append(&mut self.held);
                        self.state = State::Answer;
                    }
                }
            }
            State::Thinking { fresh: true } if glyph.c.is_whitespace() => {}
            State::Thinking { .. } => {
                self.state = State::Thinking { fresh: false };
                self.held.push(glyph);
                match Spells::of(&self.held, close) {
                    Spells::Whole => {
                        self.held.clear();
                        self.state = State::Closed;
                    }
                    Spells::Beginning => {}
                    Spells::No => {
                        // The tag may begin with any later character of what was held.
                        let mut held = std::mem::take(&mut self.held).into_iter();
                        parts.reasoning.extend(held.next().filter(|first| !first.special).map(|first| first.c));
                        held.rev().for_each(|glyph| self.queue.push_front(glyph));
                    }
                }
            }
            State::Closed if glyph.c.is_whitespace() => {}
            State::Closed | State::Answer => {
                self.state = State::Answer;
                parts.content.push(glyph);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(family: ReasoningFamily, in_block: bool, chunks: &[&str]) -> (String, String) {
        let mut parser = ReasoningParser::new(family, in_block);
        let mut all: Vec<Parts> = chunks.iter().map(|chunk| parser.push(glyph::plain(chunk))).collect();
        all.push(parser.finish());
        assert_eq!(parser.held_bytes(), 0);
        let content = all.iter().flat_map(|parts| parts.content.iter().copied());
        (all.iter().map(|parts| parts.reasoning.as_str()).collect(), glyph::visible(content))
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
        for (family, &(in_block, text, reasoning, content)) in
            ReasoningFamily::ALL.into_iter().flat_map(|family| CASES.iter().map(move |case| (family, case)))
        {
            // The same texts with another family's tags.
            let respelled = |text: &str| match family {
                ReasoningFamily::Think => text.to_owned(),
                ReasoningFamily::Magistral => {
                    text.replace("<think>", "[THINK]").replace("</think>", "[/THINK]").replace('<', "[")
                }
            };
            let text = &respelled(text);
            let expected = (respelled(reasoning), respelled(content));
            assert_eq!(parse(family, in_block, &[text]), expected, "{text:?} whole");
            let ends: Vec<usize> = (0..=text.len()).filter(|&at| text.is_char_boundary(at)).collect();
            for &a in &ends {
                for &b in ends.iter().filter(|&&b| b >= a) {
                    let chunks = [&text[..a], &text[a..b], &text[b..]];
                    assert_eq!(parse(family, in_block, &chunks), expected, "{chunks:?}");
                }
            }
            let single: Vec<&str> = ends.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            assert_eq!(parse(family, in_block, &single), expected, "{text:?} by characters");
        }
    }

    #[test]
    fn a_thought_comes_out_while_it_is_thought() {
        let mut parser = ReasoningParser::new(ReasoningFamily::Think, false);
        assert_eq!(parser.push(glyph::plain("<think>one ")).reasoning, "one ");
        assert_eq!(parser.push(glyph::plain("two</")).reasoning, "two");
        assert!(parser.is_thinking());
        assert_eq!(parser.push(glyph::plain("b>")).reasoning, "</b>");
        parser.push(glyph::special("</think>"));
        assert!(!parser.is_thinking());
    }

    #[test]
    fn a_tag_that_is_a_special_token_is_never_shown() {
        let mut parser = ReasoningParser::new(ReasoningFamily::Think, false);
        let late = parser.push(glyph::plain("a").chain(glyph::special("<think>")).chain(glyph::plain("b")));
        assert_eq!((late.reasoning.as_str(), glyph::visible(late.content).as_str()), ("", "ab"));
        let mut parser = ReasoningParser::new(ReasoningFamily::Think, true);
        let twice = parser.push(glyph::plain("a").chain(glyph::special("<think>")).chain(glyph::plain("b")));
        assert_eq!(twice.reasoning, "ab");
    }

    #[test]
    fn a_prompt_opens_a_block_with_its_last_word() {
        assert!(ReasoningFamily::Think.opened_by("<|assistant|><think>\n"));
        assert!(!ReasoningFamily::Think.opened_by("<|assistant|><think>\n\n</think>\n"));
        assert!(!ReasoningFamily::Magistral.opened_by("<think>"));
    }

    #[test]
    fn a_template_tells_the_tags() {
        assert_eq!(ReasoningFamily::of_template("{{ x.split('</think>') }}"), Some(ReasoningFamily::Think));
        assert_eq!(ReasoningFamily::of_template("[THINK]{{ x }}[/THINK]"), Some(ReasoningFamily::Magistral));
        assert_eq!(ReasoningFamily::of_template("{{ x }}"), None);
    }
}
