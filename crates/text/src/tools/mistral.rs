//! `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]` (Mistral 7B v0.3, Nemo, Small 2409), and since tokenizer v11
//! `[TOOL_CALLS]name[ARGS]{…}` or `[TOOL_CALLS]name[CALL_ID]id[ARGS]{…}`, a mark per call (Small 3.2, Magistral, Devstral).

use super::syntax::Syntax;

const ARGS: &str = "[ARGS]";
const CALL_ID: &str = "[CALL_ID]";

pub(super) static SYNTAX: Syntax = Syntax {
    marks: &["[TOOL_CALLS]"],
    closes: &[],
    inner: &[ARGS, CALL_ID],
    bare: false,
    separator: None,
    name_of: Some(name_of),
};

fn name_of(head: &str) -> Option<&str> {
    let head = head.trim();
    let head = head.strip_suffix(ARGS).unwrap_or(head);
    let name = head.split_once(CALL_ID).map_or(head, |(name, _)| name);
    Some(name.trim())
}
