//! Messages as a chat template sees them. Pure.

use minijinja::context;
use minijinja::value::{Serde, Value};

use super::template_error::TemplateError;
use crate::{ChatMessage, MessageCall};

/// JSON as a template's value.
pub(super) fn parsed(name: &str, json: &str) -> Result<Value, TemplateError> {
    let value: serde_json::Value = serde_json::from_str(json)
        .map_err(|e| TemplateError::Failed { line: 0, message: format!("variable '{name}': {e}") })?;
    Ok(Value::from(Serde(value)))
}

/// Templates ask which fields are defined, so what a message does not have is left out.
pub(super) fn message_value(message: &ChatMessage, arguments_as_text: bool) -> Value {
    let ChatMessage { role, content, name, reasoning, tool_calls, tool_call_id } = message;
    let mut fields = vec![("role", Value::from(role)), ("content", Value::from(content))];
    let optional = [("name", name), ("reasoning_content", reasoning), ("tool_call_id", tool_call_id)];
    fields.extend(optional.into_iter().filter_map(|(key, text)| Some((key, Value::from(text.as_ref()?)))));
    if !tool_calls.is_empty() {
        let call = |call: &MessageCall| {
            // What a model wrote need not be JSON; then it stays the text that it is.
            let object = parsed("arguments", &call.arguments).ok().filter(|_| !arguments_as_text);
            let arguments = object.unwrap_or_else(|| Value::from(&call.arguments));
            context! { id => &call.id, type => "function", function => context! { name => &call.name, arguments } }
        };
        fields.push(("tool_calls", tool_calls.iter().map(call).collect()));
    }
    Value::from_pairs(fields)
}

/// The first system message with `tools`; one is put first where there is none.
pub(super) fn with_tools_in_system(mut messages: Vec<Value>, tools: Option<&str>) -> Value {
    let Some(tools) = tools else { return Value::from(messages) };
    let is_system = |message: &Value| message.get_attr("role").is_ok_and(|role| role.as_str() == Some("system"));
    match messages.iter_mut().find(|message| is_system(message)) {
        Some(system) => *system = context! { tools, ..system.clone() },
        None => messages.insert(0, context! { role => "system", content => "", tools }),
    }
    Value::from(messages)
}
