//! What the body of a completion may hold, as the document describes it.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::pipeline::request::{PromptInput, Sampling};

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
