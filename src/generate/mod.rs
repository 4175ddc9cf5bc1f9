//! From what a route heard to what it says back, for every face (api, ffi, jobs).
//!
//! ```text
//! generator.rs:
//! RawRequest ─ check ─ prepare.rs: render, tokenise ─ into_requests ─▶ workers::Pool::submit
//!                      generation.rs: merge the choices ◀── Event ──┘
//!                      embed.rs: prompts → vectors
//!                      choice.rs: tokens → text; reader.rs: thinking, calls, stop strings ─▶ Delta
//! ```
//! Knows text and tokens, knows nothing of JSON, batches or models.

mod bill;
mod call_format;
mod choice;
mod delta;
mod embed;
mod embedding;
mod entropy;
mod generation;
mod generator;
mod grammars;
mod infill;
mod manner;
mod prepare;
mod raw;
mod reader;

pub use delta::{CallBegins, CallDelta, Delta, TextDelta, TokenLogprob, TopLogprob};
pub use embedding::{Embedded, Embeddings, normalised, similarity};
pub use generation::{Effective, Generation, Started};
pub use generator::{Admitted, Generator, GeneratorParts};
pub use prepare::AddSpecial;
pub use raw::{Prompt, RawGrammar, RawRequest};
