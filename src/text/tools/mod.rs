//! Calls of tools, found in a model's text while it arrives. Pure.

mod hermes;

pub use hermes::HermesParser;

#[cfg(test)]
mod tests;

/// What a parser finds, in the text's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    Call(Call),
}

/// A call as the model wrote it; `arguments` is the JSON of an object, written compactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    pub arguments: String,
}

impl Call {
    /// `{"name": …, "arguments": {…}}`, or `parameters` in place of `arguments`; None for anything else.
    fn from_json(text: &str) -> Option<Call> {
        let value: serde_json::Value = serde_json::from_str(text).ok()?;
        let name = value.get("name")?.as_str()?;
        let arguments = value.get("arguments").or_else(|| value.get("parameters"))?;
        (!name.is_empty() && arguments.is_object())
            .then(|| Call { name: name.to_owned(), arguments: arguments.to_string() })
    }

    /// Whether `text` is the beginning of JSON that more text could complete.
    fn unfinished(text: &str) -> bool {
        serde_json::from_str::<serde::de::IgnoredAny>(text).is_err_and(|error| error.is_eof())
    }
}
