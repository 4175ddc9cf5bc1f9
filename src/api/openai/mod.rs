//! OpenAI's wire format ⇄ the house's vocabulary, one file per endpoint.
//!
//! `params.rs` takes fields out of a JSON object and accounts for every one of them; `sampling.rs` those that both
//! endpoints know; `structured.rs` what a completion is to be; `messages.rs` the messages of a chat, `tools.rs` what it may call, `demand.rs` and must;
//! `head.rs` whose a request is and how urgent; `running.rs` merges the generations of a request; `wire.rs` holds the
//! pieces that answers share, `frames.rs` makes a stream of them, `legacy.rs` the logprobs of completions.

pub mod chat;
pub mod completions;
mod demand;
pub mod embeddings;
mod frames;
mod head;
mod legacy;
mod messages;
pub mod models;
pub mod params;
mod prompts;
mod rename;
pub mod rerank;
pub mod resume;
mod running;
mod sampling;
mod structured;
pub mod tokenize;
mod tools;
mod wire;

pub use wire::trace_object;
