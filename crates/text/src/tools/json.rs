//! The answer is one object with a name and arguments (or parameters), or a list of such: what models write that were only
//! asked to. A fence around it is allowed.

use super::syntax::Syntax;

pub(super) static SYNTAX: Syntax =
    Syntax { marks: &["```json\n"], closes: &["```"], inner: &[], bare: true, separator: None, name_of: None };
