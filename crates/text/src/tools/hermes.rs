//! `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, a pair of tags per call: Hermes 2 Pro and 3, Qwen2.5, Qwen3, QwQ.

use super::syntax::Syntax;

pub(super) static SYNTAX: Syntax = Syntax {
    marks: &["<tool_call>"],
    closes: &["</tool_call>"],
    inner: &[],
    bare: false,
    separator: None,
    name_of: None,
};
