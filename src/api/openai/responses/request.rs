//! What the body of a response may hold, as the document describes it.

#![expect(dead_code, reason = "they describe what a parser takes, and are never made")]

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::pipeline::request::{OneOrMany, PriorityValue};

#[derive(Serialize, ToSchema)]
pub struct ResponseRequest {
    /// One of the names of `/v1/models`, or `default`; absent is the default.
    model: Option<String>,
    input: ResponseInput,
    /// Stands before the input as the system's message.
    instructions: Option<String>,
    stream: Option<bool>,
    stream_options: Option<ResponseStreamOptions>,
    #[schema(minimum = 1)]
    max_output_tokens: Option<i64>,
    #[schema(max_items = 128)]
    tools: Option<Vec<FunctionTool>>,
    tool_choice: Option<FunctionChoice>,
    /// `false` ends the answer with its first call.
    parallel_tool_calls: Option<bool>,
    /// Has no effect: there are no tools of the server's own.
    max_tool_calls: Option<i64>,
    text: Option<TextOptions>,
    reasoning: Option<ReasoningOptions>,
    /// `message.output_text.logprobs`; others have no effect.
    include: Option<Vec<String>>,
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<i64>,
    /// At most 16 labels, which come back in the answer.
    metadata: Option<BTreeMap<String, String>>,
    /// `disabled`; `auto` has no effect.
    truncation: Option<String>,
    /// `true` has no effect: nothing is stored.
    store: Option<bool>,
    /// `true` is refused.
    background: Option<bool>,
    /// 0 is greedy.
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f64>,
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f64>,
    #[schema(minimum = -1)]
    top_k: Option<i64>,
    #[schema(minimum = 0, maximum = 1)]
    min_p: Option<f64>,
    #[schema(minimum = 0, maximum = 1)]
    typical_p: Option<f64>,
    seed: Option<i64>,
    #[schema(minimum = 0.01, maximum = 10)]
    repetition_penalty: Option<f64>,
    #[schema(minimum = -2, maximum = 2)]
    presence_penalty: Option<f64>,
    #[schema(minimum = -2, maximum = 2)]
    frequency_penalty: Option<f64>,
    logit_bias: Option<BTreeMap<String, f64>>,
    #[schema(minimum = 0)]
    min_tokens: Option<i64>,
    /// At most 4 strings.
    stop: Option<OneOrMany>,
    stop_token_ids: Option<Vec<i64>>,
    ignore_eos: Option<bool>,
    #[schema(minimum = 0)]
    max_thinking_tokens: Option<i64>,
    /// Variables of the chat template.
    chat_template_kwargs: Option<BTreeMap<String, Value>>,
    #[schema(minimum = -1)]
    truncate_prompt_tokens: Option<i64>,
    cache_prompt: Option<bool>,
    #[schema(min_length = 1, max_length = 256)]
    cache_salt: Option<String>,
    /// Whom the fair share counts the request for.
    #[schema(max_length = 256)]
    user: Option<String>,
    service_tier: Option<String>,
    priority: Option<PriorityValue>,
    #[schema(minimum = 1, maximum = 86400000)]
    timeout_ms: Option<i64>,
    #[schema(minimum = 1, maximum = 86400000)]
    deadline_ms: Option<i64>,
}

#[derive(Serialize, ToSchema)]
pub struct ResponseStreamOptions {
    /// Has no effect.
    include_obfuscation: Option<bool>,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum ResponseInput {
    Text(String),
    Items(Vec<InputItem>),
}

/// A `message`, `function_call`, `function_call_output` or `reasoning`; each has the fields that its type has.
#[derive(Serialize, ToSchema)]
pub struct InputItem {
    /// Absent is `message`.
    r#type: Option<String>,
    id: Option<String>,
    status: Option<String>,
    phase: Option<String>,
    /// Of a message: `user`, `assistant`, `system` or `developer`.
    role: Option<String>,
    /// Of a message or of reasoning: a string, or parts that are text.
    content: Option<Value>,
    /// Of a call and its output.
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    /// A string, or parts that are text.
    output: Option<Value>,
    /// Of reasoning without content.
    summary: Option<Vec<Value>>,
    /// Has no effect.
    encrypted_content: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub struct FunctionTool {
    /// `function`; others are refused.
    r#type: String,
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
pub enum FunctionChoice {
    Mode(String),
    Function(ChosenFunction),
}

#[derive(Serialize, ToSchema)]
pub struct ChosenFunction {
    /// `function`.
    r#type: String,
    name: String,
}

#[derive(Serialize, ToSchema)]
pub struct TextOptions {
    format: Option<TextFormat>,
    /// `medium`; others have no effect.
    verbosity: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub struct TextFormat {
    /// `text`, `json_object` or `json_schema`.
    r#type: String,
    name: Option<String>,
    description: Option<String>,
    schema: Option<Value>,
    strict: Option<bool>,
}

#[derive(Serialize, ToSchema)]
pub struct ReasoningOptions {
    /// `none`, `minimal`, `low`, `medium`, `high` or `xhigh`, for templates that hear it.
    effort: Option<String>,
    /// Has no effect: thinking is shown as it is.
    summary: Option<String>,
    /// Has no effect.
    generate_summary: Option<String>,
}
