//! OpenAI's wire format ⇄ the house's vocabulary, one file per endpoint.
//!
//! `params.rs` takes fields out of a JSON object and accounts for every one of them; `sampling.rs` those that both
//! endpoints know; `structured.rs` what a completion is to be; `messages.rs` the messages of a chat, `tools.rs` what it may call, `demand.rs` and must;
//! `head.rs` whose a request is and how urgent; `running.rs` merges the generations of a request; `wire.rs` holds the
//! pieces that answers share, `frames.rs` makes a stream of them, `legacy.rs` the logprobs of completions; `lists.rs`
//! what lists of files and batches have in common.

pub mod batches;
pub mod chat;
pub mod completions;
mod demand;
pub mod embeddings;
pub mod files;
mod frames;
pub mod head;
mod legacy;
pub mod lists;
pub mod messages;
pub mod models;
pub mod origins;
pub mod params;
pub mod parts;
mod prompts;
pub mod rename;
pub mod render;
pub mod rerank;
pub mod responses;
pub mod resume;
pub mod running;
pub mod sampling;
mod structured;
pub mod telling;
pub mod tokenize;
mod tools;
pub mod wire;

pub use wire::trace_object;
