//! What the model and the server allow, and what a request gets that says nothing.

use super::RequestError;

/// What the model and the server allow.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Prompt and completion together, in tokens.
    pub max_model_len: u32,
    /// The model makes vectors of prompts and nothing else, so a prompt may fill the context.
    pub only_embeds: bool,
    /// Width of the logits; every token id of a request lies below it.
    pub vocab_size: u32,
    /// The longest token's text in bytes: bounds a prompt's bytes before it is tokenised.
    pub max_token_bytes: usize,
    /// Largest `n`.
    pub max_choices: u32,
    pub max_stop_strings: usize,
    pub max_stop_bytes: usize,
    pub max_stop_tokens: usize,
    pub max_logprobs: u32,
    pub max_logit_bias: usize,
    /// What a request gets that says nothing.
    pub defaults: Defaults,
    /// The model only costs time: it has one word, and nothing to say of how likely that is.
    pub simulated: bool,
}

/// How a model's makers want its tokens drawn (`generation_config.json`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Defaults {
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub top_k: Option<i64>,
    pub min_p: Option<f64>,
    pub typical_p: Option<f64>,
    pub repetition_penalty: Option<f64>,
}

impl Limits {
    /// Tokens of the longest prompt: one must be left to generate.
    pub fn longest_prompt(&self) -> u32 {
        if self.only_embeds { self.max_model_len } else { self.max_model_len.saturating_sub(1) }
    }

    /// The error that a prompt has too many tokens.
    pub fn too_long(&self, prompt: usize) -> RequestError {
        let limit = self.max_model_len;
        if self.only_embeds {
            RequestError::PromptLength { prompt, limit }
        } else {
            RequestError::ContextLength { prompt, limit }
        }
    }

    pub fn new(max_model_len: u32, vocab_size: u32, max_token_bytes: usize) -> Limits {
        Limits {
            max_model_len,
            only_embeds: false,
            vocab_size,
            max_token_bytes,
            max_choices: 8,
            max_stop_strings: 4,
            max_stop_bytes: 256,
            max_stop_tokens: 128,
            max_logprobs: 20,
            max_logit_bias: 1_024,
            defaults: Defaults::default(),
            simulated: false,
        }
    }
}
