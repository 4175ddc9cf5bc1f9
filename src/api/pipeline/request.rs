//! The fields that the bodies of several routes share, as the document describes them. The parsers take JSON objects apart
//! themselves, since they account for every field; `openapi/tests.rs` holds the two together, field by field.

#![expect(dead_code, reason = "they describe what a parser takes, and are never made")]

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// How tokens are drawn, when to stop, how urgent it is. `null` is the same as absent; what is absent has the model's own
/// default (`generation_config.json`) where it has one.
#[derive(Serialize, ToSchema)]
pub struct Sampling {
    /// One of the names of `/v1/models`, or `default`; absent is the default.
    model: Option<String>,
    /// Server-sent events, `data: [DONE]` last.
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// The answer has the ids of its tokens, and of the prompt's.
    return_token_ids: Option<bool>,
    /// A stream tells how far its prompt has been computed.
    return_progress: Option<bool>,
    #[schema(minimum = 1)]
    max_tokens: Option<i64>,
    /// The newer name of `max_tokens`.
    #[schema(minimum = 1)]
    max_completion_tokens: Option<i64>,
    /// So many answers to each prompt.
    #[schema(minimum = 1, maximum = 8)]
    n: Option<i64>,
    /// 0 is greedy.
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f64>,
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f64>,
    /// 0 and -1 are off.
    #[schema(minimum = -1)]
    top_k: Option<i64>,
    #[schema(minimum = 0, maximum = 1)]
    min_p: Option<f64>,
    #[schema(minimum = 0, maximum = 1)]
    typical_p: Option<f64>,
    /// The same seed, parameters and `system_fingerprint` give the same tokens, whatever else runs.
    seed: Option<i64>,
    #[schema(minimum = 0.01, maximum = 10)]
    repetition_penalty: Option<f64>,
    /// llama-server's name of `repetition_penalty`.
    #[schema(minimum = 0.01, maximum = 10)]
    repeat_penalty: Option<f64>,
    #[schema(minimum = -2, maximum = 2)]
    presence_penalty: Option<f64>,
    #[schema(minimum = -2, maximum = 2)]
    frequency_penalty: Option<f64>,
    /// Token id → -100 to 100. `[[id, bias]]` is understood too.
    logit_bias: Option<BTreeMap<String, f64>>,
    #[schema(minimum = 0)]
    min_tokens: Option<i64>,
    /// At most 4 strings.
    stop: Option<OneOrMany>,
    #[schema(max_items = 128)]
    stop_token_ids: Option<Vec<i64>>,
    ignore_eos: Option<bool>,
    include_stop_str_in_output: Option<bool>,
    skip_special_tokens: Option<bool>,
    /// Logprobs of the prompt's tokens, with so many alternatives; not with `stream`.
    #[schema(minimum = 0, maximum = 20)]
    prompt_logprobs: Option<i64>,
    /// Only so many of the prompt's last tokens are used; -1 is as many as fit.
    #[schema(minimum = -1)]
    truncate_prompt_tokens: Option<i64>,
    /// Whether blocks of the KV cache may be shared with other requests.
    cache_prompt: Option<bool>,
    /// Only requests with the same one share.
    #[schema(min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9_+=-]+$")]
    cache_salt: Option<String>,
    response_format: Option<ResponseFormat>,
    structured_outputs: Option<StructuredOutputs>,
    guided_json: Option<JsonSchemaOrText>,
    guided_regex: Option<String>,
    guided_choice: Option<Vec<String>>,
    guided_grammar: Option<String>,
    guided_whitespace_pattern: Option<String>,
    json_schema: Option<JsonSchemaOrText>,
    /// GBNF, or Lark after a line `%llguidance {}`.
    grammar: Option<String>,
    /// Whom the fair share counts the request for.
    #[schema(max_length = 256)]
    user: Option<String>,
    /// `auto`, `default`, `scale`; `flex` is a low priority, `priority` a high one.
    service_tier: Option<String>,
    priority: Option<PriorityValue>,
    /// The whole answer must be there so many milliseconds after the request.
    #[schema(minimum = 1, maximum = 86400000)]
    timeout_ms: Option<i64>,
    /// Another name of `timeout_ms`; of two, the shorter counts.
    #[schema(minimum = 1, maximum = 86400000)]
    deadline_ms: Option<i64>,
}

#[derive(Serialize, ToSchema)]
pub struct StreamOptions {
    /// The last chunk has the usage.
    include_usage: Option<bool>,
    /// Every chunk has the usage so far.
    continuous_usage_stats: Option<bool>,
    /// Has no effect.
    include_obfuscation: Option<bool>,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// `critical`, `high`, `normal`, `low`, `batch`, or an integer as vLLM has it: the lower the earlier, 0 is normal.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum PriorityValue {
    Name(String),
    Number(i64),
}

/// A text, token ids, or a list of up to 64 of either.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum PromptInput {
    Text(String),
    Tokens(Vec<i64>),
    Texts(Vec<String>),
    TokenLists(Vec<Vec<i64>>),
}

/// How a prompt is taken in, and how urgent it is.
#[derive(Serialize, ToSchema)]
pub struct Queueing {
    /// Only so many of each prompt's last tokens are used; -1 is as many as fit.
    #[schema(minimum = -1)]
    truncate_prompt_tokens: Option<i64>,
    /// Whether blocks of the KV cache may be shared with other requests.
    cache_prompt: Option<bool>,
    /// Only requests with the same one share.
    #[schema(min_length = 1, max_length = 256)]
    cache_salt: Option<String>,
    /// Whom the fair share counts the request for.
    #[schema(max_length = 256)]
    user: Option<String>,
    /// `auto`, `default`, `scale`; `flex` is a low priority, `priority` a high one.
    service_tier: Option<String>,
    priority: Option<PriorityValue>,
    /// The whole answer must be there so many milliseconds after the request.
    #[schema(minimum = 1, maximum = 86400000)]
    timeout_ms: Option<i64>,
    /// Another name of `timeout_ms`; of two, the shorter counts.
    #[schema(minimum = 1, maximum = 86400000)]
    deadline_ms: Option<i64>,
}

#[derive(Serialize, ToSchema)]
pub struct ResponseFormat {
    /// `text`, `json_object` or `json_schema`.
    r#type: String,
    /// With `json_object`: llama-server's way to give a schema.
    schema: Option<Value>,
    /// With `json_schema`.
    json_schema: Option<JsonSchemaFormat>,
}

#[derive(Serialize, ToSchema)]
pub struct JsonSchemaFormat {
    /// 1 to 64 letters, digits, `_` and `-`.
    name: Option<String>,
    description: Option<String>,
    /// A schema is enforced either way.
    strict: Option<bool>,
    schema: Value,
}

/// vLLM's. One of `json`, `regex`, `choice`, `grammar` and `json_object`.
#[derive(Serialize, ToSchema)]
pub struct StructuredOutputs {
    json: Option<JsonSchemaOrText>,
    regex: Option<String>,
    choice: Option<Vec<String>>,
    /// Lark or GBNF.
    grammar: Option<String>,
    json_object: Option<bool>,
    disable_any_whitespace: Option<bool>,
    whitespace_pattern: Option<String>,
}

/// A JSON schema, or the text of one.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum JsonSchemaOrText {
    Schema(Value),
    Text(String),
}
