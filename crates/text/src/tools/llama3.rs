//! `{"name": …, "parameters": {…}}` as the whole answer or after `<|python_tag|>`, several with `;` between them: Llama 3.1 to
//! 3.3. Code for the built-in tools, which may follow the same mark, is text.

use super::syntax::Syntax;

pub(super) static SYNTAX: Syntax =
    Syntax { marks: &["<|python_tag|>"], closes: &[], inner: &[], bare: true, separator: Some(';'), name_of: None };
