//! Between text and tokens: chat messages become a prompt, tokens become text again, grammars say which tokens may come.
//!
//! ```text
//! messages ─▶ ContentGuard ─▶ ChatTemplate ─▶ Tokenizer ─▶ ids                    (the server's generate/prepare.rs)
//! ids ─▶ Detokenizer ─▶ ReasoningParser ─▶ ToolParser ─▶ StopMatcher ─▶ text      (the server's generate/reader.rs)
//! schema, regex, GBNF ─▶ grammar::Vocabulary::compile ─▶ grammar::Grammar, a Constraint of forebay-core
//! ```
//! Bytes, strings and ids in and out; no files, no clock, no logs. Models, HTTP bodies, channels and batches are unknown
//! here. [`grammar`] is the only place that knows llguidance.
//!
//! Templates, tokenizer files and schemas come with models or from clients and are not trusted: templates run on fuel and
//! bounded output, grammars have limits, and a panic inside a crate that reads them becomes an error value.
//!
//! Read [`Tokenizer`], [`ChatTemplate`], [`Detokenizer`], [`ToolParser`] and [`grammar::Vocabulary`] first.
//!
//! ```
//! use forebay_text::{ChatMessage, ChatTemplate, TemplateOptions};
//!
//! let source = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>";
//! let template = ChatTemplate::new(source, None, None)?;
//! let chat = [ChatMessage::new("user", "Hello!")];
//! assert_eq!(template.render_with(&chat, &TemplateOptions::default(), 0)?, "<|user|>Hello!<|assistant|>");
//! # Ok::<(), forebay_text::TemplateError>(())
//! ```

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
mod template_error;
mod to_gguf;
mod tokenizer;
mod tools;
mod utf8;
mod vocab;

pub use chat::{ChatMessage, MessageCall};
pub use chat_template::{ChatTemplate, ToolsIn};
pub use content_guard::ContentGuard;
pub use detokenizer::{Detokenizer, detokenize};
pub use parsers::{ParserChoice, ParserChoices};
pub use reasoning::{Parts, ReasoningFamily, ReasoningParser};
pub use settings::settings;
pub use stop::{Scan, StopMatcher};
pub use template::{TemplateOptions, Tools};
pub use template_error::TemplateError;
pub use to_gguf::{Specials, to_gguf, unused as unused_token};
pub use tokenizer::{Tokenizer, TokenizerError};
pub use tools::{Piece, ToolFamily, ToolParser, in_plain_words};
pub use vocab::GgufVocab;

#[cfg(any(test, feature = "testing"))]
pub mod fixtures;
