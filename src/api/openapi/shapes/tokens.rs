//! `/v1/tokenize` and `/v1/detokenize`.

use serde::Serialize;
use utoipa::ToSchema;

use super::chat::ChatMessage;

/// One of `prompt` and `messages`.
#[derive(Serialize, ToSchema)]
pub struct TokenizeRequest {
    model: Option<String>,
    prompt: Option<String>,
    /// Rendered as for a completion.
    messages: Option<Vec<ChatMessage>>,
    /// Absent is yes for a prompt; a chat's template writes its own.
    add_special_tokens: Option<bool>,
    return_token_strs: Option<bool>,
}

#[derive(ToSchema)]
pub struct Tokens {
    tokens: Vec<u32>,
    count: usize,
    max_model_len: u32,
    /// With `return_token_strs`.
    #[schema(required = false)]
    token_strs: Option<Vec<String>>,
}

#[derive(Serialize, ToSchema)]
pub struct DetokenizeRequest {
    model: Option<String>,
    tokens: Vec<i64>,
}

#[derive(ToSchema)]
pub struct Text {
    prompt: String,
}
