//! OpenAI's API with what other servers added to it, a file per endpoint; `legacy.rs` has the logprobs that completions had before
//! chat. What is taken out of a body and how an answer is made of generations lives in `pipeline/`.

pub mod batches;
pub mod chat;
pub mod completions;
pub mod embeddings;
pub mod files;
mod legacy;
pub mod models;
pub mod render;
pub mod rerank;
pub mod responses;
pub mod resume;
pub mod tokenize;
