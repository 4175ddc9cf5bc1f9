//! `/v1/tokenize` and `/v1/detokenize`.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::chat::{ChatMessage, Tool, ToolChoice};

/// One of `prompt` and `messages`.
#[derive(Serialize, ToSchema)]
pub struct TokenizeRequest {
    model: Option<String>,
    prompt: Option<String>,
    /// Rendered as for a completion.
    messages: Option<Vec<ChatMessage>>,
    /// With `messages`, as the following.
    #[schema(max_items = 128)]
    tools: Option<Vec<Tool>>,
    tool_choice: Option<ToolChoice>,
    parallel_tool_calls: Option<bool>,
    reasoning_effort: Option<String>,
    continue_final_message: Option<bool>,
    add_generation_prompt: Option<bool>,
    /// Variables of the chat template.
    chat_template_kwargs: Option<BTreeMap<String, Value>>,
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

/// What the model would read of a chat.
#[derive(ToSchema)]
pub struct Rendered {
    /// `chat.completion.render`.
    object: String,
    model: String,
    /// The template's text, special tokens spelled out.
    prompt: String,
    token_ids: Vec<u32>,
    count: usize,
    max_model_len: u32,
}

/// What the model would read of one prompt.
#[derive(ToSchema)]
pub struct RenderedPrompt {
    /// `completion.render`.
    object: String,
    model: String,
    /// Special tokens spelled out.
    prompt: String,
    token_ids: Vec<u32>,
    count: usize,
    max_model_len: u32,
}
