//! Structured output: what a completion may be, and which tokens may come next. Pure: schemas and tokens in, masks out; no
//! clock, no logs, no engine.
//!
//! ```text
//! GrammarSpec ─▶ Vocabulary::compile ─▶ Grammar: Constraint           (generate, once for each spec: Cache)
//! Grammar ─▶ Matcher: ConstraintState: advance, allowed, forced, rewind  (engine, one per sequence, as a trait object)
//! ```
//! The only room that knows llguidance. Its parser is Earley's over a lexer made of derivatives of regular expressions; a
//! mask is a walk of the vocabulary's trie by that parser. Grammars come from clients and are not trusted: sizes, the
//! lexer's work and the parser's work have limits, and a panic inside the crate becomes an error value.
//!
//! It fails closed. What cannot be enforced is refused when it is compiled, and a matcher that meets a limit later ends its
//! own sequence with an error; no mask is ever wider than its grammar.

mod bounds;
mod cache;
mod compiled;
mod gbnf;
mod limits;
mod matcher;
mod pattern;
mod settings;
mod spec;
mod vocabulary;

use std::fmt;

use thiserror::Error;

pub use cache::Cache;
pub use compiled::Grammar;
pub use limits::Limits;
pub use matcher::Matcher;
pub use settings::{GrammarConfig, settings};
pub use spec::{GrammarSpec, Naming, TaggedCalls, Tool, Whitespace};
pub use vocabulary::{STACK_BYTES, Vocabulary};

/// Why a spec has no grammar.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GrammarError {
    /// Said by the compiler, shortened.
    #[error("{0}")]
    Invalid(String),
    /// Compiling it, or following it, would take more than the server gives.
    #[error("{0}")]
    TooComplex(String),
    #[error("has {bytes} bytes, at most {limit} are allowed")]
    TooLarge { bytes: usize, limit: usize },
    #[error("is nested deeper than {limit} levels")]
    TooDeep { limit: usize },
    #[error("no text that this model can write satisfies it")]
    Unsatisfiable,
    /// A word's text depends on its neighbours.
    #[error("the model's tokenizer has no fixed text for each token, so nothing can be enforced")]
    NoBytes,
}

impl GrammarError {
    /// Whether a smaller grammar of the same kind might do.
    pub fn is_limit(&self) -> bool {
        match self {
            GrammarError::TooComplex(_) | GrammarError::TooLarge { .. } | GrammarError::TooDeep { .. } => true,
            GrammarError::Invalid(_) | GrammarError::Unsatisfiable | GrammarError::NoBytes => false,
        }
    }

    /// What the compiler said. It tells limits from mistakes in words alone.
    fn said(error: String) -> GrammarError {
        const LIMITS: [&str; 6] = ["too large", "too big", "too many", "fuel", "max is", INTERRUPTED];
        let limit = LIMITS.iter().any(|word| error.to_ascii_lowercase().contains(word));
        if limit { GrammarError::TooComplex(error) } else { GrammarError::Invalid(error) }
    }
}

/// What a matcher says that was interrupted.
const INTERRUPTED: &str = "operation cancelled";

/// The first line of what llguidance says, without its dumps of state, and not the whole of a client's schema.
fn brief(error: impl fmt::Display) -> String {
    const LONGEST: usize = 300;
    let text = error.to_string();
    let text = text.split("\n<").next().unwrap_or_default().trim();
    let shown: String = text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    // A panic's own words are not for clients.
    if shown.is_empty() || shown.starts_with("panic:") { "the compiler cannot read it".into() } else { shown }
}

#[cfg(test)]
mod tests;
