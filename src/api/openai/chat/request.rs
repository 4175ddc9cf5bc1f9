//! What the body of a chat may hold, as the document describes it; `pipeline/chat.rs` takes it apart.

#![expect(dead_code, reason = "they describe what a parser takes, and are never made")]

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::answer::CalledFunction;
use crate::api::pipeline::request::Sampling;

#[derive(Serialize, ToSchema)]
pub struct ChatRequest {
    #[serde(flatten)]
    sampling: Sampling,
    #[schema(min_items = 1, max_items = 2048)]
    messages: Vec<ChatMessage>,
    #[schema(max_items = 128)]
    tools: Option<Vec<Tool>>,
    tool_choice: Option<ToolChoice>,
    /// `false` ends the answer with its first call.
    parallel_tool_calls: Option<bool>,
    logprobs: Option<bool>,
    /// Needs `logprobs`.
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<i64>,
    /// After so many tokens of its block, a model's thinking ends.
    #[schema(minimum = 0)]
    max_thinking_tokens: Option<i64>,
    /// `none`, `minimal`, `low`, `medium`, `high` or `xhigh`, for templates that hear it.
    reasoning_effort: Option<String>,
    /// The last message is not closed: the model goes on writing it.
    continue_final_message: Option<bool>,
    add_generation_prompt: Option<bool>,
    /// Whether the tokenizer's own special tokens stand around what the template wrote. They do not; only `false` is accepted.
    add_special_tokens: Option<bool>,
    /// Variables of the chat template.
    chat_template_kwargs: Option<BTreeMap<String, Value>>,
}

#[derive(Serialize, ToSchema)]
pub struct ChatMessage {
    /// `system` (or `developer`), `user`, `assistant` or `tool`.
    role: String,
    /// May be absent from an assistant's message.
    #[schema(required = false)]
    content: Option<Content>,
    name: Option<String>,
    /// What the assistant thought.
    reasoning_content: Option<String>,
    /// vLLM's newer name of `reasoning_content`.
    reasoning: Option<String>,
    tool_calls: Option<Vec<ToolCall>>,
    /// Of the call whose result this is.
    tool_call_id: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum Content {
    Text(String),
    Parts(Vec<TextPart>),
}

#[derive(Serialize, ToSchema)]
pub struct TextPart {
    /// `text`; others are refused.
    r#type: String,
    text: String,
}

#[derive(Serialize, ToSchema)]
pub struct ToolCall {
    id: String,
    /// `function`.
    r#type: Option<String>,
    function: CalledFunction,
}

#[derive(Serialize, ToSchema)]
pub struct Tool {
    /// `function`.
    r#type: String,
    function: ToolFunction,
}

#[derive(Serialize, ToSchema)]
pub struct ToolFunction {
    /// 1 to 64 letters, digits, `_` and `-`.
    name: String,
    description: Option<String>,
    /// A JSON schema of an object.
    parameters: Option<Value>,
    /// Has an effect with `tool_choice`, where schemas are always enforced.
    strict: Option<bool>,
}

/// `none`, `auto`, `required`, or one function.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum ToolChoice {
    Mode(String),
    Function(NamedTool),
}

#[derive(Serialize, ToSchema)]
pub struct NamedTool {
    /// `function`.
    r#type: String,
    function: NamedFunction,
}

#[derive(Serialize, ToSchema)]
pub struct NamedFunction {
    name: String,
}
