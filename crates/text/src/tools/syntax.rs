//! How a family writes calls, as data for the one parser.

/// A family's grammar: data, for the one parser.
pub(super) struct Syntax {
    /// What stands before calls.
    pub(super) marks: &'static [&'static str],
    /// What may stand after a call and says nothing.
    pub(super) closes: &'static [&'static str],
    /// Further spellings that may be special tokens and that the parser must see.
    pub(super) inner: &'static [&'static str],
    /// A call may be the very beginning of the answer, without a mark. Calls must have arguments then:
    /// any JSON with a name would be one.
    pub(super) bare: bool,
    /// Stands between calls that are in no list.
    pub(super) separator: Option<char>,
    /// For calls that are no JSON objects: the name in what stands between the mark and the arguments' first brace.
    pub(super) name_of: Option<fn(&str) -> Option<&str>>,
}
