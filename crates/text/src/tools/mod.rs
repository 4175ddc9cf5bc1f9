//! Calls of tools, found in a model's text while it arrives. Pure.
//!
//! ```text
//! glyphs ─▶ ToolParser (parser.rs: marks, lists, what is held) ─▶ text, calls, fragments of arguments
//!             ├─ object.rs  {"name": …, "arguments": {…}}, byte by byte
//!             └─ a Syntax per family (family.rs): hermes.rs, llama3.rs, mistral.rs, phi.rs, granite.rs, deepseek.rs, json.rs
//! ```
//! **When a call begins.** A call has begun when its name is complete, is that of a tool of the request, and its arguments
//! have opened. From then on it is the client's: its arguments are handed out as they come, in the model's own words, and
//! belong to it until their braces balance, however broken they are inside; when the text ends early they stay cut off.
//! Until then nothing is handed out, and what turns out to be no call (bad JSON, an unknown name, an early end) is the text
//! that it is. Nothing is lost and nothing comes twice.

mod deepseek;
mod family;
mod granite;
mod hermes;
mod json;
mod llama3;
mod mistral;
mod object;
mod parser;
mod phi;
mod piece;
mod prompt;
mod syntax;

pub use family::ToolFamily;
pub use parser::ToolParser;
pub use piece::Piece;
pub use prompt::in_plain_words;

#[cfg(test)]
mod tests;
