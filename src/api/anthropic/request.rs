//! What the bodies of these routes may hold, as the document describes it.

#![expect(dead_code, reason = "they describe what a parser takes, and are never made")]

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::pipeline::request::PriorityValue;

#[derive(Serialize, ToSchema)]
pub struct MessageRequest {
    #[serde(flatten)]
    read: CountRequest,
    #[schema(minimum = 1)]
    max_tokens: i64,
    stream: Option<bool>,
    /// At most 4.
    stop_sequences: Option<Vec<String>>,
    /// 0 is greedy.
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f64>,
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f64>,
    #[schema(minimum = -1)]
    top_k: Option<i64>,
    #[schema(minimum = 0, maximum = 1)]
    min_p: Option<f64>,
    seed: Option<i64>,
    #[schema(minimum = 0.01, maximum = 10)]
    repetition_penalty: Option<f64>,
    metadata: Option<MessageMetadata>,
    /// `auto` or `standard_only`.
    service_tier: Option<String>,
    #[schema(min_length = 1, max_length = 256)]
    cache_salt: Option<String>,
    priority: Option<PriorityValue>,
    #[schema(minimum = 1, maximum = 86400000)]
    timeout_ms: Option<i64>,
    #[schema(minimum = 1, maximum = 86400000)]
    deadline_ms: Option<i64>,
}

/// What the model reads.
#[derive(Serialize, ToSchema)]
pub struct CountRequest {
    /// One of the names of `/v1/models`, or `default`; absent is the default.
    model: Option<String>,
    /// An assistant's message at the end is gone on with.
    #[schema(min_items = 1, max_items = 2048)]
    messages: Vec<Message>,
    system: Option<TextOrBlocks>,
    #[schema(max_items = 128)]
    tools: Option<Vec<ClientTool>>,
    tool_choice: Option<ClientToolChoice>,
    thinking: Option<Thinking>,
    output_config: Option<OutputConfig>,
    /// Variables of the chat template.
    chat_template_kwargs: Option<BTreeMap<String, Value>>,
    /// Prefixes are cached without it.
    cache_control: Option<Value>,
}

#[derive(Serialize, ToSchema)]
pub struct Message {
    /// `user` or `assistant`.
    role: String,
    content: TextOrBlocks,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum TextOrBlocks {
    Text(String),
    /// `system` has only text.
    Blocks(Vec<Block>),
}

/// A `text`, `thinking`, `tool_use` or `tool_result`; each has the fields that its type has.
#[derive(Serialize, ToSchema)]
pub struct Block {
    r#type: String,
    text: Option<String>,
    /// Has no effect.
    citations: Option<Value>,
    /// Prefixes are cached without it.
    cache_control: Option<Value>,
    thinking: Option<String>,
    /// Has no effect.
    signature: Option<String>,
    /// Of a `redacted_thinking`, which has no effect.
    data: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<BTreeMap<String, Value>>,
    /// Has no effect.
    caller: Option<Value>,
    tool_use_id: Option<String>,
    /// Of a result: a string, or blocks of text.
    content: Option<Value>,
    /// Has no effect: templates have no place for it.
    is_error: Option<bool>,
}

#[derive(Serialize, ToSchema)]
pub struct ClientTool {
    /// `custom`, or absent; others are refused.
    r#type: Option<String>,
    name: String,
    description: Option<String>,
    /// A JSON schema of an object.
    input_schema: Value,
    /// Has an effect with `tool_choice`, where schemas are always enforced.
    strict: Option<bool>,
    cache_control: Option<Value>,
}

#[derive(Serialize, ToSchema)]
pub struct ClientToolChoice {
    /// `auto`, `any`, `tool` or `none`.
    r#type: String,
    /// With `tool`.
    name: Option<String>,
    /// Ends the answer with its first call.
    disable_parallel_tool_use: Option<bool>,
}

#[derive(Serialize, ToSchema)]
pub struct Thinking {
    /// `enabled`, `disabled` or `adaptive`.
    r#type: String,
    /// With `enabled`: after so many tokens the thinking ends.
    #[schema(minimum = 0)]
    budget_tokens: Option<i64>,
    /// Has no effect: thinking is shown as it is.
    display: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub struct OutputConfig {
    format: Option<OutputFormat>,
    /// `low`, `medium`, `high`, `xhigh` or `max`, for templates that hear it.
    effort: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub struct OutputFormat {
    /// `json_schema`.
    r#type: String,
    schema: Value,
}

#[derive(Serialize, ToSchema)]
pub struct MessageMetadata {
    /// Whom the fair share counts the request for.
    #[schema(max_length = 256)]
    user_id: Option<String>,
}
