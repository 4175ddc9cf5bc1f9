//! One answer as a list of parts: thinking, words, calls. Streams of events and whole answers are both told from it, so that
//! they cannot differ.

use crate::generate::{CallBegins, TextDelta, TokenLogprob};

#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Thinking(String),
    Text { text: String, logprobs: Vec<TokenLogprob> },
    Call { id: String, name: String, arguments: String },
}

/// What happened to a part, by its index. Parts are opened in order, one at a time.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    Opened(usize),
    /// By this text (or these arguments), whose tokens have these logprobs where asked for.
    Grew(usize, String, Vec<TokenLogprob>),
    Closed(usize),
}

#[derive(Clone, Debug, Default)]
pub struct Parts {
    list: Vec<Part>,
    /// The last is not closed.
    open: bool,
}

impl Parts {
    pub fn list(&self) -> &[Part] {
        &self.list
    }

    /// The part that is still open, which is the last.
    pub fn is_open(&self, index: usize) -> bool {
        self.open && index + 1 == self.list.len()
    }

    /// Adds what came, and tells what changed by it.
    pub fn add(&mut self, delta: TextDelta) -> Vec<Change> {
        let mut changes = Vec::new();
        if !delta.reasoning.is_empty() {
            let index =
                self.last(&mut changes, |part| matches!(part, Part::Thinking(_)), || Part::Thinking(String::new()));
            if let Some(Part::Thinking(text)) = self.list.get_mut(index) {
                text.push_str(&delta.reasoning);
            }
            changes.push(Change::Grew(index, delta.reasoning, Vec::new()));
        }
        if !delta.text.is_empty() {
            self.add_text(delta.text, delta.logprobs, &mut changes);
        }
        for call in delta.calls {
            if let Some(CallBegins { id, name }) = call.begins {
                self.open(Part::Call { id, name, arguments: String::new() }, &mut changes);
            }
            let index = self.list.len().saturating_sub(1);
            if let (Some(Part::Call { arguments, .. }), false) = (self.list.last_mut(), call.arguments.is_empty()) {
                arguments.push_str(&call.arguments);
                changes.push(Change::Grew(index, call.arguments, Vec::new()));
            }
        }
        changes
    }

    fn add_text(&mut self, said: String, new: Vec<TokenLogprob>, changes: &mut Vec<Change>) {
        let fresh = || Part::Text { text: String::new(), logprobs: Vec::new() };
        let index = self.last(changes, |part| matches!(part, Part::Text { .. }), fresh);
        if let Some(Part::Text { text, logprobs }) = self.list.get_mut(index) {
            text.push_str(&said);
            logprobs.extend(new.iter().cloned());
        }
        changes.push(Change::Grew(index, said, new));
    }

    /// The open part, if it is of this kind, else a new one.
    fn last(&mut self, changes: &mut Vec<Change>, is: fn(&Part) -> bool, fresh: impl FnOnce() -> Part) -> usize {
        if !self.open || !self.list.last().is_some_and(is) {
            self.open(fresh(), changes);
        }
        self.list.len() - 1
    }

    fn open(&mut self, part: Part, changes: &mut Vec<Change>) {
        changes.extend(self.close());
        changes.push(Change::Opened(self.list.len()));
        self.list.push(part);
        self.open = true;
    }

    /// Nothing more comes.
    pub fn close(&mut self) -> Option<Change> {
        std::mem::take(&mut self.open).then(|| Change::Closed(self.list.len() - 1))
    }

    /// An answer of nothing is empty words.
    pub fn close_with_words(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.list.iter().all(|part| matches!(part, Part::Thinking(_))) {
            self.open(Part::Text { text: String::new(), logprobs: Vec::new() }, &mut changes);
        }
        changes.extend(self.close());
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::CallDelta;

    fn begins(index: usize) -> CallDelta {
        let begins = Some(CallBegins { id: format!("c{index}"), name: "f".into() });
        CallDelta { index, begins, arguments: String::new() }
    }

    fn goes_on(index: usize, arguments: &str) -> CallDelta {
        CallDelta { index, begins: None, arguments: arguments.into() }
    }

    fn delta(reasoning: &str, text: &str, calls: Vec<CallDelta>) -> TextDelta {
        TextDelta { reasoning: reasoning.into(), text: text.into(), calls, ..TextDelta::default() }
    }

    #[test]
    fn each_kind_opens_a_part_of_its_own() {
        let mut parts = Parts::default();
        let mut log = Vec::new();
        for delta in [
            delta("hm", "", vec![]),
            delta(".", "a", vec![]),
            delta("", "b", vec![begins(0)]),
            delta("", "", vec![goes_on(0, "{"), goes_on(0, "}"), begins(1), goes_on(1, "{}")]),
            delta("", "z", vec![]),
        ] {
            log.extend(parts.add(delta));
        }
        log.extend(parts.close_with_words());
        let shown: Vec<String> = log
            .iter()
            .map(|change| match change {
                Change::Opened(index) => format!("+{index}"),
                Change::Grew(index, text, _) => format!("{index}:{text}"),
                Change::Closed(index) => format!("-{index}"),
            })
            .collect();
        let expected = "+0 0:hm 0:. -0 +1 1:a 1:b -1 +2 2:{ 2:} -2 +3 3:{} -3 +4 4:z -4";
        assert_eq!(shown.join(" "), expected);
        assert_eq!(parts.list()[2], Part::Call { id: "c0".into(), name: "f".into(), arguments: "{}".into() });
    }

    #[test]
    fn nothing_said_is_empty_words() {
        let mut parts = Parts::default();
        assert_eq!(parts.close_with_words(), [Change::Opened(0), Change::Closed(0)]);
        assert_eq!(parts.close(), None);
    }
}
