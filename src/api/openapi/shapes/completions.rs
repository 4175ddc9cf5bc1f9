//! `/v1/completions`.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::sampling::Sampling;
use super::usage::{SequenceTrace, Timings, Usage};

#[derive(Serialize, ToSchema)]
pub struct CompletionRequest {
    #[serde(flatten)]
    sampling: Sampling,
    prompt: PromptInput,
    /// The text after a hole that the model fills; needs a model with tokens for it.
    suffix: Option<String>,
    /// So many alternatives to each token.
    #[schema(minimum = 0, maximum = 5)]
    logprobs: Option<i64>,
    /// The answer begins with its prompt.
    echo: Option<bool>,
    /// Draws so many and shows the best `n`.
    #[schema(minimum = 1, maximum = 8)]
    best_of: Option<i64>,
    /// Whether the tokenizer's own special tokens stand around the text. They do; only `true` is accepted.
    add_special_tokens: Option<bool>,
}

/// A text, token ids, or a list of up to 64 of either.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum PromptInput {
    Text(String),
    Tokens(Vec<i64>),
    Texts(Vec<String>),
    TokenLists(Vec<Vec<i64>>),
}

#[derive(ToSchema)]
pub struct Completion {
    id: String,
    /// `text_completion`.
    object: String,
    created: u64,
    model: String,
    system_fingerprint: String,
    choices: Vec<CompletionChoice>,
    usage: Usage,
    timings: Timings,
    /// With `x-forebay-trace`.
    #[schema(required = false)]
    forebay_trace: Option<Vec<SequenceTrace>>,
}

#[derive(ToSchema)]
pub struct CompletionChoice {
    index: usize,
    text: String,
    #[schema(required = true)]
    logprobs: Option<LegacyLogprobs>,
    /// `stop` or `length`.
    #[schema(required = true)]
    finish_reason: Option<String>,
    prompt_logprobs: Option<Vec<Value>>,
    prompt_token_ids: Option<Vec<u32>>,
    token_ids: Option<Vec<u32>>,
}

#[derive(ToSchema)]
pub struct LegacyLogprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f64>>,
    #[schema(required = true)]
    top_logprobs: Option<Vec<Option<BTreeMap<String, f64>>>>,
    text_offset: Vec<usize>,
}

/// A frame of a stream.
#[derive(ToSchema)]
pub struct CompletionChunk {
    id: String,
    /// `text_completion`.
    object: String,
    created: u64,
    model: String,
    system_fingerprint: String,
    choices: Vec<CompletionChoice>,
    usage: Option<Usage>,
    timings: Option<Timings>,
    prompt_progress: Option<Progress>,
    forebay_trace: Option<Vec<SequenceTrace>>,
}

/// With `return_progress`.
#[derive(ToSchema)]
pub struct Progress {
    total: usize,
    cache: usize,
    processed: usize,
    time_ms: u64,
}
