//! Regular expressions out of plain text.

use std::fmt::Write;

/// A regular expression that matches `text` and nothing else.
pub(super) fn escaped(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        match c {
            c if c.is_alphanumeric() && c.is_ascii() || !c.is_ascii() => pattern.push(c),
            c => {
                let _ = write!(pattern, "\\x{{{:X}}}", u32::from(c));
            }
        }
    }
    pattern
}
