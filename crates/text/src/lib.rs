//! Between text and tokens: chat messages become a prompt, tokens become text again, stop strings end it. Pure: bytes,
//! strings and ids in and out; no files, no clock, no logs; the model, JSON bodies and channels are unknown here.
//!
//! ```text
//! messages ─▶ ContentGuard ─▶ ChatTemplate ─▶ Tokenizer ─▶ ids    (generate::prepare)
//! ids ─▶ Detokenizer ─▶ ReasoningParser ─▶ ToolParser ─▶ StopMatcher ─▶ text      (generate::reader)
//! ```
//! Templates and tokenizer files come with a model and are not trusted: templates run on fuel and bounded output, and a
//! panic inside the tokenizer crate becomes an error value.

mod chat;
mod chat_template;
mod chat_values;
mod content_guard;
mod detokenizer;
mod gguf;
pub mod glyph;
pub mod grammar;
mod parsers;
mod pre_tokenizers;
mod reasoning;
mod settings;
mod spelling;
mod stop;
mod strftime;
mod template;
mod to_gguf;
mod tokenizer;
mod tools;
mod utf8;
mod vocab;

pub use chat::{ChatMessage, MessageCall};
pub use chat_template::{ChatTemplate, TemplateError, ToolsIn};
pub use content_guard::ContentGuard;
pub use detokenizer::{Detokenizer, detokenize};
pub use parsers::{ParserChoice, ParserChoices};
pub use reasoning::{Parts, ReasoningFamily, ReasoningParser};
pub use settings::settings;
pub use stop::{Scan, StopMatcher};
pub use template::{TemplateOptions, Tools};
pub use to_gguf::{Specials, to_gguf, unused as unused_token};
pub use tokenizer::{Tokenizer, TokenizerError};
pub use tools::{Piece, ToolFamily, ToolParser, in_plain_words};
pub use vocab::GgufVocab;

#[cfg(any(test, feature = "testing"))]
pub mod fixtures;
