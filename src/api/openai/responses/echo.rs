//! What a response repeats of its request, as the client sent it.

use serde_json::{Map, Value, json};

use crate::api::pipeline::params::{Fields, wrong};
use forebay_core::request::RequestError;

/// What a response repeats of its request.
#[derive(Clone, Debug)]
pub struct Echo {
    pub instructions: Option<String>,
    pub max_output_tokens: Value,
    pub tools: Value,
    pub tool_choice: Value,
    pub format: Value,
    pub effort: Value,
    pub top_logprobs: Value,
    pub parallel_tool_calls: Value,
    pub metadata: Value,
    pub user: Value,
    pub service_tier: Value,
}

impl Echo {
    /// `chat` has the fields that a chat knows, too.
    pub fn read(fields: &mut Fields, chat: &Map<String, Value>) -> Result<Echo, RequestError> {
        let of = |name: &str, absent: Value| chat.get(name).cloned().unwrap_or(absent);
        Ok(Echo {
            instructions: fields.string("instructions")?,
            max_output_tokens: Value::Null,
            tools: json!([]),
            tool_choice: json!("auto"),
            format: json!({"type": "text"}),
            effort: Value::Null,
            top_logprobs: json!(0),
            parallel_tool_calls: of("parallel_tool_calls", json!(true)),
            metadata: metadata(fields)?,
            user: of("user", Value::Null),
            service_tier: of("service_tier", json!("default")),
        })
    }
}

/// Labels for the client's own use: at most 16, as OpenAI has it.
fn metadata(fields: &mut Fields) -> Result<Value, RequestError> {
    const NAME: &str = "metadata";
    let value = fields.take(NAME).unwrap_or_else(|| json!({}));
    let Value::Object(labels) = &value else { return Err(wrong(NAME, "an object", &value)) };
    if labels.len() > 16 {
        return Err(RequestError::invalid(NAME, format!("has {} entries, at most 16 are allowed", labels.len())));
    }
    for (name, label) in labels {
        let short = name.chars().count() <= 64 && label.as_str().is_some_and(|text| text.chars().count() <= 512);
        if !short {
            let shown: String = name.chars().take(64).collect();
            let message = "must be a string of at most 512 characters, under a name of at most 64";
            return Err(RequestError::invalid(format!("{NAME}.{shown}"), message));
        }
    }
    Ok(value)
}
