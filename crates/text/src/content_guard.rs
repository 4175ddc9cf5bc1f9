//! Keeps what a user wrote from being read as control tokens. Pure.
//!
//! A chat template writes special tokens such as `<|im_end|>` as text and the tokenizer turns that text into ids. A user
//! who writes the same text must not end the turn with it. So before rendering a mark is put into every special token's
//! text inside a message, and the rendered prompt is cut at the marks and encoded piece by piece: no piece holds the whole
//! text, and what the template itself wrote is left alone. Templates may trim or inspect content; messages without such
//! text, all but a few, are not touched.
//!
//! What is JSON is read by the template, so there the text is what its escapes stand for; and what a tokenizer normalises before it
//! looks for special tokens (`＜|end|＞` under NFKC) is looked at as it will be then.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

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
    /// What the tokenizer makes of a text before it looks for special tokens; `None` where it looks at texts as they are.
    normal: Option<Normal>,
}

/// A text as the tokenizer normalises it.
pub type Normal = Box<dyn Fn(&str) -> String + Send + Sync>;

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
        ContentGuard { beginnings: specials.iter().flat_map(cuts).collect(), lengths, first, specials, normal: None }
    }

    /// For a tokenizer that looks for special tokens in what `normal` makes of a text.
    pub fn normalising(self, normal: Normal) -> ContentGuard {
        let normalised: Vec<String> = self.specials.iter().map(|special| normal(special)).collect();
        let specials = self.specials.into_iter().chain(normalised).collect();
        ContentGuard { normal: Some(normal), ..ContentGuard::new(specials) }
    }

    /// The messages as the template may see them.
    pub fn mark<'a>(&self, messages: &'a [ChatMessage]) -> Cow<'a, [ChatMessage]> {
        let escapes = |message: &ChatMessage| message.tool_calls.iter().any(|call| call.arguments.contains('\\'));
        let harmless = |text: &String| self.places(text).is_empty() && self.hidden(text).is_none();
        if messages.iter().all(|message| message.texts().all(harmless) && !escapes(message)) {
            return Cow::Borrowed(messages);
        }
        let mut guarded = messages.to_vec();
        for message in &mut guarded {
            message.words_mut().for_each(|text| *text = self.mark_text(text));
            message.arguments_mut().for_each(|json| *json = self.mark_json(json));
        }
        Cow::Owned(guarded)
    }

    /// The rendered prompt, cut at the marks.
    pub fn pieces(rendered: &str) -> impl Iterator<Item = &str> {
        rendered.split(MARK).filter(|piece| !piece.is_empty())
    }

    /// JSON with a mark in each special token that its strings stand for, however they are escaped. What is no JSON is text.
    pub fn mark_json(&self, json: &str) -> String {
        if !json.contains('\\') || serde_json::from_str::<Value>(json).is_err() {
            // Without escapes its strings stand for themselves.
            return self.mark_text(json);
        }
        let mut out = String::with_capacity(json.len() + 8);
        let mut rest = json;
        while let Some((before, literal, after)) = next_literal(rest) {
            out += before;
            out += &self.mark_literal(literal);
            rest = after;
        }
        out + rest
    }

    /// A string of a JSON text, with its quotes; as it is, if it stands for nothing that has to be broken.
    fn mark_literal<'a>(&self, literal: &'a str) -> Cow<'a, str> {
        let Ok(text) = serde_json::from_str::<String>(literal) else { return Cow::Borrowed(literal) };
        if self.places(&text).is_empty() && self.hidden(&text).is_none() && !text.contains(MARK) {
            return Cow::Borrowed(literal);
        }
        Cow::Owned(Value::String(self.mark_text(&text)).to_string())
    }

    /// The text as the tokenizer will see it, where that shows a special token that the text itself does not.
    fn hidden(&self, text: &str) -> Option<String> {
        let normal = self.normal.as_ref()?(text);
        (normal != text && self.places(&normal).len() > self.places(text).len()).then_some(normal)
    }

    /// `text` with a mark in each special token's spelling; JSON without escapes stays JSON.
    pub fn mark_text(&self, text: &str) -> String {
        let hidden = self.hidden(text);
        let text = hidden.as_deref().unwrap_or(text);
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

/// What stands before the next string of a JSON text, the string with its quotes, and what follows.
fn next_literal(json: &str) -> Option<(&str, &str, &str)> {
    let begin = json.find('"')?;
    let mut escaped = false;
    let end = json[begin + 1..].find(|c: char| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })?;
    let end = begin + 1 + end + 1;
    Some((&json[..begin], &json[begin..end], &json[end..]))
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
    fn escapes_of_json_hide_nothing() {
        let marked = |json: &str| guard().mark_json(json).replace(MARK, "^");
        for (json, expected) in [
            (r#"{"a":"\u003c|end|>"}"#, r#"{"a":"<^|end|>"}"#),
            (r#"{"a":"\u003C\u007cen\u0064|\u003e"}"#, r#"{"a":"<^|end|>"}"#),
            (r#"{"\u003c|end|>":[1, "x"]}"#, r#"{"<^|end|>":[1, "x"]}"#),
            (r#"{"a":"\\\u003c|user|>\""}"#, r#"{"a":"\\<^|user|>\""}"#),
            (r#"{"a":"\u005bX\u005d", "b":"<|end|>"}"#, r#"{"a":"[^X]", "b":"<^|end|>"}"#),
            (r#"{"a":"\ufdd0"}"#, "{\"a\":\"\u{FFFD}\"}"),
            // What stands for nothing stays as it is written.
            (r#"{ "a" : "\u00e9\n", "n": 1.50 }"#, r#"{ "a" : "\u00e9\n", "n": 1.50 }"#),
            (r#"{"a":"<|end|>"}"#, r#"{"a":"<^|end|>"}"#),
            // No JSON, and so nobody reads its escapes.
            (r#"\u003c|end|> <|end|>"#, r#"\u003c|end|> <^|end|>"#),
        ] {
            assert_eq!(marked(json), expected, "{json}");
        }
        let call = MessageCall { id: "a".into(), name: "f".into(), arguments: r#"{"a":"\u003c|end|>"}"#.into() };
        let calling = [ChatMessage { tool_calls: vec![call], ..message("") }];
        assert_eq!(guard().mark(&calling)[0].tool_calls[0].arguments.replace(MARK, "^"), r#"{"a":"<^|end|>"}"#);
    }

    #[test]
    fn what_normalising_would_show_is_broken() {
        let plain = |text: &str| text.replace('＜', "<").replace('＞', ">").to_lowercase();
        let guard = ContentGuard::new(vec!["<|END|>".into()]).normalising(Box::new(plain));
        let marked = |text: &str| guard.mark(&[message(text)])[0].content.replace(MARK, "^");
        assert_eq!(marked("a ＜|end|＞ B"), "a <^|end|> b");
        assert_eq!(marked("<|eNd|>"), "<^|end|>");
        assert_eq!(marked("<|END|>"), "<^|END|>");
        assert_eq!(marked("Nothing ＜ hidden"), "Nothing ＜ hidden");
    }

    #[test]
    fn pieces_join_to_the_text_without_marks() {
        let rendered = "<|user|><\u{FDD0}|end|>\u{FDD0}\u{FDD0}x";
        assert_eq!(ContentGuard::pieces(rendered).collect::<Vec<_>>(), ["<|user|><", "|end|>", "x"]);
    }
}
