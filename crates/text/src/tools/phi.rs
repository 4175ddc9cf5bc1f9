//! `<|tool_call|>[{"name": …, "arguments": {…}}, …]<|/tool_call|>`, or `functools[…]`: Phi-4-mini.

use super::syntax::Syntax;

pub(super) static SYNTAX: Syntax = Syntax {
    marks: &["<|tool_call|>", "functools"],
    closes: &["<|/tool_call|>"],
    inner: &[],
    bare: false,
    separator: None,
    name_of: None,
};
