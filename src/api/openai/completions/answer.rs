//! Answers of a completion, whole and as chunks of a stream.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::pipeline::logprobs::{PromptLogprob, PromptLogprobs};
use crate::api::pipeline::ordered::Ordered;
use crate::api::pipeline::traces::SequenceTrace;
use crate::api::pipeline::usage::{Timings, Usage};
use forebay_core::units::TokenId;

#[derive(Serialize, ToSchema)]
pub struct Completion {
    pub id: String,
    /// `text_completion`.
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub system_fingerprint: String,
    pub choices: Vec<CompletionChoice>,
    pub usage: Usage,
    pub timings: Timings,
    /// With `x-forebay-trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forebay_trace: Option<Vec<SequenceTrace>>,
}

#[derive(Serialize, ToSchema)]
pub struct CompletionChoice {
    pub index: usize,
    pub text: String,
    #[schema(required = true)]
    pub logprobs: Option<LegacyLogprobs>,
    /// `stop` or `length`.
    #[schema(required = true)]
    pub finish_reason: Option<&'static str>,
    /// For each token of the prompt an object by token id; `null` for the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Option<BTreeMap<String, PromptLogprob>>>>)]
    pub prompt_logprobs: Option<PromptLogprobs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<TokenId>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<TokenId>>,
}

/// What a chunk tells of a choice.
#[derive(Default, Serialize, ToSchema)]
pub struct CompletionDelta {
    pub index: usize,
    pub text: String,
    #[schema(required = true)]
    pub logprobs: Option<LegacyLogprobs>,
    #[schema(required = true)]
    pub finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<TokenId>>,
    /// With `return_token_ids`, in a choice's first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<TokenId>>,
}

/// The shape that logprobs had before chat.
#[derive(Default, Serialize, ToSchema)]
pub struct LegacyLogprobs {
    pub tokens: Vec<String>,
    /// `null` for the first token of a prompt.
    pub token_logprobs: Vec<Option<f64>>,
    /// Best first; the drawn token is always among them.
    #[schema(required = true, value_type = Option<Vec<Option<BTreeMap<String, f64>>>>)]
    pub top_logprobs: Option<Vec<Option<Ordered<f64>>>>,
    /// In characters: where each token begins.
    pub text_offset: Vec<usize>,
}
