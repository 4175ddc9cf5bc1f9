//! What a completion may be held to.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

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
