//! Keeps what a user wrote from being read as control tokens. Pure.
//!
//! A chat template writes special tokens such as `<|im_end|>` as text and the tokenizer turns that text into ids. A user
//! who writes the same text must not end the turn with it. So before rendering a mark is put into every special token's
//! text inside a message, and the rendered prompt is cut at the marks and encoded piece by piece: no piece holds the whole
//! text, and what the template itself wrote is left alone. Templates may trim or inspect content; messages without such
//! text, all but a few, are not touched.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::ChatMessage;

/// A noncharacter, which Unicode reserves for a program's inner use. One in a message becomes U+FFFD when it is marked.
const MARK: char = '\u{FDD0}';

pub struct ContentGuard {
    specials: HashSet<String>,
    /// Proper beginnings of special tokens.
    beginnings: HashSet<String>,
    /// Lengths in bytes of the special tokens, ascending.
    lengths: Vec<usize>,
    /// By byte: whether a special token begins with it.
    first: [bool; 256],
}

impl ContentGuard {
    /// `specials` are the strings that the tokenizer turns into control tokens. One of a single character cannot be kept
    /// apart and is ignored.
    pub fn new(specials: Vec<String>) -> ContentGuard {
        let specials: HashSet<String> = specials.into_iter().filter(|text| text.chars().nth(1).is_some()).collect();
        let cuts =
            |text: &'_ String| text.char_indices().skip(1).map(|(at, _)| text[..at].to_owned()).collect::<Vec<_>>();
        let mut lengths: Vec<usize> = specials.iter().map(String::len).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut first = [false; 256];
        specials.iter().filter_map(|text| text.bytes().next()).for_each(|byte| first[usize::from(byte)] = true);
        ContentGuard { beginnings: specials.iter().flat_map(cuts).collect(), lengths, first, specials }
    }

    /// The messages as the template may see them.
    pub fn mark<'a>(&self, messages: &'a [ChatMessage]) -> Cow<'a, [ChatMessage]> {
        if messages.iter().flat_map(ChatMessage::texts).all(|text| self.places(text).is_empty()) {
            return Cow::Borrowed(messages);
        }
        let mut guarded = messages.to_vec();
        guarded.iter_mut().flat_map(ChatMessage::texts_mut).for_each(|text| *text = self.mark_text(text));
        Cow::Owned(guarded)
    }

    /// The rendered prompt, cut at the marks.
    pub fn pieces(rendered: &str) -> impl Iterator<Item = &str> {
        rendered.split(MARK).filter(|piece| !piece.is_empty())
    }

    /// `text` with a mark in each special token's spelling; written as JSON it stays JSON.
    pub fn mark_text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + 8);
        let mut done = 0;
        for place in self.places(text) {
            out.extend(text[done..place].chars().map(without_mark));
            out.push(MARK);
            done = place;
        }
        out.extend(text[done..].chars().map(without_mark));
        out
    }

    /// Where marks go, ascending: after the first character of each special token, and at an end that the next message's
    /// text could complete to one. That end is looked for before trailing white space, since templates trim.
    fn places(&self, text: &str) -> Vec<usize> {
        let mut places = Vec::new();
        for (at, c) in text.char_indices() {
            if self.first[usize::from(text.as_bytes()[at])] && self.starts_special(&text[at..]) {
                places.push(at + c.len_utf8());
            }
        }
        let trimmed = text.trim_end();
        let longest = self.lengths.last().copied().unwrap_or(0);
        let starts = trimmed.char_indices().rev().map(|(at, _)| at).take_while(|at| trimmed.len() - at < longest);
        if starts.into_iter().any(|at| self.beginnings.contains(&trimmed[at..])) {
            places.push(trimmed.len());
        }
        places.sort_unstable();
        places.dedup();
        places
    }

    fn starts_special(&self, text: &str) -> bool {
        self.lengths.iter().filter_map(|&length| text.get(..length)).any(|start| self.specials.contains(start))
    }
}

fn without_mark(c: char) -> char {
    if c == MARK { char::REPLACEMENT_CHARACTER } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MessageCall;

    fn guard() -> ContentGuard {
        ContentGuard::new(["<|end|>", "<|user|>", "[X]", "<<", "_"].map(str::to_owned).to_vec())
    }

    fn message(content: &str) -> ChatMessage {
        ChatMessage::new("user", content)
    }

    /// Marks are shown as `^`.
    fn check(content: &str, expected: &str) {
        let messages = [message(content)];
        assert_eq!(guard().mark(&messages)[0].content.replace(MARK, "^"), expected);
    }

    #[test]
    fn ordinary_messages_are_not_touched() {
        for content in ["", "hello", "a < b", "x > y", "<|begin|>", "a_b", "é"] {
            assert!(matches!(guard().mark(&[message(content)]), Cow::Borrowed(_)), "{content}");
        }
    }

    #[test]
    fn a_special_tokens_text_is_broken() {
        check("<|end|>", "<^|end|>");
        check(" a<|end|><|user|>[X]b ", " a<^|end|><^|user|>[^X]b ");
        check("<<<", "<^<^<^");
    }

    #[test]
    fn an_end_that_the_next_text_could_complete_is_broken() {
        check("a <|en", "a <|en^");
        check("a <|en \n", "a <|en^ \n");
    }

    #[test]
    fn a_mark_in_a_message_does_not_survive() {
        check("\u{FDD0}[X]", "\u{FFFD}[^X]");
    }

    #[test]
    fn roles_and_names_are_content_too() {
        let messages = [ChatMessage { name: Some("[X]".into()), ..ChatMessage::new("<|end|>", "") }];
        let marked = guard().mark(&messages).into_owned();
        assert_eq!(marked[0].role.replace(MARK, "^"), "<^|end|>");
        assert_eq!(marked[0].name.as_deref(), Some("[\u{FDD0}X]"));
        let call = MessageCall { id: "a".into(), name: "f".into(), arguments: r#"{"a":"<|end|>"}"#.into() };
        let calling = [ChatMessage { tool_calls: vec![call], ..message("") }];
        let marked = guard().mark(&calling).into_owned();
        assert_eq!(marked[0].tool_calls[0].arguments.replace(MARK, "^"), r#"{"a":"<^|end|>"}"#);
    }

    #[test]
    fn pieces_join_to_the_text_without_marks() {
        let rendered = "<|user|><\u{FDD0}|end|>\u{FDD0}\u{FDD0}x";
        assert_eq!(ContentGuard::pieces(rendered).collect::<Vec<_>>(), ["<|user|><", "|end|>", "x"]);
    }
}
