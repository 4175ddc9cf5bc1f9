//! How the text of a completion is to be read and written.

use forebay_text::{ReasoningFamily, ToolFamily};

/// How a completion is written and cut.
pub struct Manner {
    pub stop: Vec<String>,
    /// What ended the completion is part of its text.
    pub include_stop: bool,
    /// Special tokens are spelled out.
    pub keep_special_tokens: bool,
    /// Which tags stand around thinking, and whether the answer begins in it.
    pub reasoning: Option<(ReasoningFamily, bool)>,
    pub tools: Option<Tools>,
}

/// What may be called, and how the model writes it.
pub struct Tools {
    pub family: ToolFamily,
    pub names: Vec<String>,
    /// The answer ends with its first call.
    pub only_first: bool,
}
