//! `<|tool_call|>[{"name": …, "arguments": {…}}, …]` (Granite 3.0 to 3.3), `<tool_call>[…]` (Granite 20B functions), and tags
//! around each call (Granite 4).

use super::syntax::Syntax;

pub(super) static SYNTAX: Syntax = Syntax {
    marks: &["<|tool_call|>", "<tool_call>"],
    closes: &["</tool_call>"],
    inner: &[],
    bare: false,
    separator: None,
    name_of: None,
};
