//! What the model and the server allow, and what a request gets that says nothing.

/// What the model and the server allow.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Prompt and completion together, in tokens.
    pub max_model_len: u32,
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
    pub fn new(max_model_len: u32, vocab_size: u32, max_token_bytes: usize) -> Limits {
        Limits {
            max_model_len,
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
