//! DeepSeek's tags, of which V3 and R1 write
//!
//! ````text
//! <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>name
//! ```json
//! {…}
//! ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//! ````
//! and V3.1 `<｜tool▁call▁begin｜>name<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`.

use super::syntax::Syntax;

const BEGIN: &str = "<｜tool▁call▁begin｜>";
const SEP: &str = "<｜tool▁sep｜>";

pub(super) static SYNTAX: Syntax = Syntax {
    marks: &["<｜tool▁calls▁begin｜>", BEGIN],
    closes: &["```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
    inner: &[SEP],
    bare: false,
    separator: None,
    name_of: Some(name_of),
};

fn name_of(head: &str) -> Option<&str> {
    let head = head.trim();
    let (kind, rest) = head.strip_prefix(BEGIN).unwrap_or(head).split_once(SEP)?;
    match rest.trim() {
        "" => Some(kind.trim()),
        fenced => Some(fenced.strip_suffix("```json").or_else(|| fenced.strip_suffix("```"))?.trim()),
    }
}
