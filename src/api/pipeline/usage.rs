//! What an answer says of its cost: tokens as OpenAI counts them, and times under llama-server's names.

use serde::Serialize;
use utoipa::ToSchema;

use super::running::{RunTimes, Running};
use forebay_core::units::Micros;

/// The tokens of a request's prompts and of all their choices.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PromptDetails {
    /// Found in the KV cache.
    pub cached_tokens: usize,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct CompletionDetails {
    pub reasoning_tokens: usize,
}

impl Usage {
    /// The usage so far.
    pub fn of(running: &Running) -> Usage {
        let (prompt_tokens, completion_tokens) = (running.prompt_token_count(), running.completion_tokens);
        Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptDetails { cached_tokens: running.cached_token_count() },
            completion_tokens_details: CompletionDetails { reasoning_tokens: running.reasoning_tokens },
        }
    }
}

/// With llama-server's names. The prompt's time includes the queue.
#[derive(Clone, Debug, Serialize, ToSchema)]
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

impl Timings {
    /// The times so far.
    pub fn of(running: &Running) -> Timings {
        Timings::from(running.times())
    }
}

impl From<RunTimes> for Timings {
    fn from(times: RunTimes) -> Timings {
        let ms = |time: Micros| time.0 as f64 / 1_000.0;
        let per = |whole: f64, count: f64| if count > 0.0 { whole / count } else { 0.0 };
        let computed = times.prompt_tokens - times.cached_tokens;
        let (prompt_n, predicted_n) = (computed as f64, times.completion_tokens as f64);
        let (prompt_ms, predicted_ms) = (ms(times.prompt), ms(times.completion));
        Timings {
            cache_n: times.cached_tokens,
            prompt_n: computed,
            prompt_ms,
            prompt_per_token_ms: per(prompt_ms, prompt_n),
            prompt_per_second: per(prompt_n * 1_000.0, prompt_ms),
            predicted_n: times.completion_tokens,
            predicted_ms,
            predicted_per_token_ms: per(predicted_ms, predicted_n),
            predicted_per_second: per(predicted_n * 1_000.0, predicted_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timings_are_llama_servers() {
        let times = RunTimes {
            prompt_tokens: 10,
            cached_tokens: 6,
            prompt: Micros::from_millis(2),
            completion_tokens: 0,
            completion: Micros::ZERO,
        };
        let expected = r#"{"cache_n":6,"prompt_n":4,"prompt_ms":2.0,"prompt_per_token_ms":0.5,"prompt_per_second":2000.0,"predicted_n":0,"predicted_ms":0.0,"predicted_per_token_ms":0.0,"predicted_per_second":0.0}"#;
        assert_eq!(serde_json::to_string(&Timings::from(times)).unwrap(), expected);
    }
}
