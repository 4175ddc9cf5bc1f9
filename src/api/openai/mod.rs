//! OpenAI's API with what other servers added to it, a file or a folder per endpoint. What is taken out of a body and how an answer is made of generations lives in `pipeline/`.

pub mod batches;
pub mod chat;
pub mod completions;
pub mod embeddings;
pub mod files;
pub mod models;
pub mod render;
pub mod rerank;
pub mod responses;
pub mod resume;
pub mod tokenize;
