//! What answers say of their cost.

use serde_json::Value;
use utoipa::ToSchema;

#[derive(ToSchema)]
pub struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
}

#[derive(ToSchema)]
pub struct PromptDetails {
    /// Found in the KV cache.
    cached_tokens: usize,
}

#[derive(ToSchema)]
pub struct CompletionDetails {
    reasoning_tokens: usize,
}

/// With llama-server's names. The prompt's time includes the queue.
#[derive(ToSchema)]
pub struct Timings {
    cache_n: usize,
    prompt_n: usize,
    prompt_ms: f64,
    prompt_per_token_ms: f64,
    prompt_per_second: f64,
    predicted_n: usize,
    predicted_ms: f64,
    predicted_per_token_ms: f64,
    predicted_per_second: f64,
}

/// How one sequence was scheduled.
#[derive(ToSchema)]
pub struct SequenceTrace {
    sequence: String,
    priority: String,
    /// Each has `at_us`, `what`, perhaps `until_us`, and facts of its own.
    events: Vec<Value>,
    events_left_out: usize,
    steps: SequenceSteps,
    /// That were drawn.
    tokens: usize,
}

/// Forward passes that computed some of it.
#[derive(ToSchema)]
pub struct SequenceSteps {
    prefill: usize,
    decode: usize,
}
