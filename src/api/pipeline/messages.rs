//! The messages of a chat.

use serde_json::Value;

use super::params::{Fields, wrong};
use forebay_core::request::RequestError;
use forebay_text::{ChatMessage, MessageCall};

const MAX_MESSAGES: usize = 2_048;
/// Of one message.
const MAX_CALLS: usize = 128;

/// The messages of a chat, in order.
pub fn take_messages(fields: &mut Fields) -> Result<Vec<ChatMessage>, RequestError> {
    let list = match fields.take("messages") {
        None => return Err(RequestError::invalid("messages", "is required")),
        Some(Value::Array(list)) if list.is_empty() => {
            return Err(RequestError::invalid("messages", "must have at least one entry"));
        }
        Some(Value::Array(list)) if list.len() > MAX_MESSAGES => {
            let message = format!("has {} entries, at most {MAX_MESSAGES} are allowed", list.len());
            return Err(RequestError::invalid("messages", message));
        }
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong("messages", "a list", &other)),
    };
    let mut messages = Vec::with_capacity(list.len());
    for (index, value) in list.into_iter().enumerate() {
        let mut message = message(fields, index, value)?;
        if message.role == "tool" {
            answer_to_a_call(&messages, index, &mut message)?;
        }
        messages.push(message);
    }
    Ok(messages)
}

fn message(fields: &mut Fields, index: usize, value: Value) -> Result<ChatMessage, RequestError> {
    let at = |name: &str| format!("messages[{index}]{name}");
    let Value::Object(object) = value else { return Err(wrong(&at(""), "an object", &value)) };
    let mut message = Fields::inside("messages[].", object);
    let role = role(&at(".role"), message.take("role"))?;
    for name in ["function_call", "audio"] {
        if message.take(name).is_some() {
            let text = "is not implemented; calls of tools are in tool_calls".into();
            return Err(RequestError::Unsupported { param: at(&format!(".{name}")), message: text });
        }
    }
    let calls = message.take("tool_calls");
    name_unknown(fields, "messages.tool_calls", calls.as_ref(), &["id", "type", "function", "index"]);
    for call in calls.iter().filter_map(Value::as_array).flatten() {
        fields.absorb_unknown("messages.tool_calls.function", &call["function"], &["name", "arguments"]);
    }
    let tool_calls = tool_calls(&at(".tool_calls"), calls)?;
    if !tool_calls.is_empty() && role != "assistant" {
        return Err(RequestError::invalid(at(".tool_calls"), "only the assistant makes calls"));
    }
    let tool_call_id = text(&at(".tool_call_id"), message.take("tool_call_id"))?;
    if tool_call_id.is_some() != (role == "tool") {
        let text = if role == "tool" { "is required" } else { "is only for the role tool" };
        return Err(RequestError::invalid(at(".tool_call_id"), text));
    }
    let content = match message.take("content") {
        Some(content) => {
            name_unknown(fields, "messages.content", Some(&content), &["type", "text"]);
            content_text(&at(".content"), content)?
        }
        // What an assistant's message without words looks like.
        None if role == "assistant" => String::new(),
        None => return Err(RequestError::invalid(at(".content"), "is required")),
    };
    let name = text(&at(".name"), message.take("name"))?;
    let mut reasoning = None;
    if role == "assistant" {
        // The second is vLLM's newer name.
        for name in ["reasoning_content", "reasoning"] {
            let text = text(&at(&format!(".{name}")), message.take(name))?;
            reasoning = reasoning.or(text);
        }
    }
    fields.absorb("messages", message);
    Ok(ChatMessage { role, content, name, reasoning, tool_calls, tool_call_id })
}

/// Names the fields of a list's objects that are not `known`.
fn name_unknown(fields: &mut Fields, prefix: &str, list: Option<&Value>, known: &[&str]) {
    for object in list.and_then(Value::as_array).into_iter().flatten() {
        fields.absorb_unknown(prefix, object, known);
    }
}

fn role(param: &str, value: Option<Value>) -> Result<String, RequestError> {
    match value.as_ref().and_then(Value::as_str) {
        // OpenAI's newer name; templates know only the older.
        Some("developer" | "system") => Ok("system".into()),
        Some(role @ ("user" | "assistant" | "tool")) => Ok(role.into()),
        Some("function") => {
            let message = "results of calls have the role tool".into();
            Err(RequestError::Unsupported { param: param.into(), message })
        }
        _ => Err(RequestError::invalid(param, "must be system, developer, user, assistant or tool")),
    }
}

fn text(param: &str, value: Option<Value>) -> Result<Option<String>, RequestError> {
    match value {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong(param, "a string", &other)),
    }
}

/// The calls that an assistant made earlier. Their arguments are not checked: a model wrote them.
fn tool_calls(param: &str, value: Option<Value>) -> Result<Vec<MessageCall>, RequestError> {
    let list = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong(param, "a list", &other)),
    };
    if list.len() > MAX_CALLS {
        let message = format!("has {} entries, at most {MAX_CALLS} are allowed", list.len());
        return Err(RequestError::invalid(param, message));
    }
    let required = |param: String, value: &Value| match value {
        Value::Null => Err(RequestError::invalid(param, "is required")),
        Value::String(text) if text.is_empty() => Err(RequestError::invalid(param, "must not be empty")),
        Value::String(text) => Ok(text.clone()),
        other => Err(wrong(&param, "a string", other)),
    };
    let call = |(index, call): (usize, Value)| {
        let at = |name: &str| format!("{param}[{index}]{name}");
        if !call.is_object() {
            return Err(wrong(&at(""), "an object", &call));
        }
        if !matches!(call["type"].as_str(), Some("function")) && !call["type"].is_null() {
            return Err(RequestError::invalid(at(".type"), "must be function"));
        }
        Ok(MessageCall {
            id: required(at(".id"), &call["id"])?,
            name: required(at(".function.name"), &call["function"]["name"])?,
            arguments: required(at(".function.arguments"), &call["function"]["arguments"])?,
        })
    };
    list.into_iter().enumerate().map(call).collect()
}

/// A result names the call that it is of; templates may want the tool's name, too.
fn answer_to_a_call(earlier: &[ChatMessage], index: usize, message: &mut ChatMessage) -> Result<(), RequestError> {
    let mut calls = earlier.iter().rev().flat_map(|message| &message.tool_calls);
    let Some(call) = calls.find(|call| Some(&call.id) == message.tool_call_id.as_ref()) else {
        let text = "no message before it has a call with this id in its tool_calls";
        return Err(RequestError::invalid(format!("messages[{index}].tool_call_id"), text));
    };
    message.name.get_or_insert_with(|| call.name.clone());
    Ok(())
}

/// A string, or parts of type `text`, joined.
pub fn content_text(param: &str, content: Value) -> Result<String, RequestError> {
    let parts = match content {
        Value::String(text) => return Ok(text),
        Value::Array(parts) => parts,
        other => return Err(wrong(param, "a string or a list of parts", &other)),
    };
    let mut joined = String::new();
    for (index, part) in parts.iter().enumerate() {
        match (part["type"].as_str(), part["text"].as_str()) {
            (Some("text"), Some(text)) => joined.push_str(text),
            (Some("text"), None) => {
                return Err(RequestError::invalid(format!("{param}[{index}].text"), "must be a string"));
            }
            (Some(_), _) => {
                let param = format!("{param}[{index}].type");
                return Err(RequestError::Unsupported { param, message: "only text parts are implemented".into() });
            }
            (None, _) => return Err(RequestError::invalid(format!("{param}[{index}].type"), "must be a string")),
        }
    }
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(messages_value: Value) -> Result<Vec<(String, String)>, RequestError> {
        let mut fields = Fields::new(json!({"messages": messages_value}).as_object().unwrap().clone());
        Ok(take_messages(&mut fields)?.into_iter().map(|message| (message.role, message.content)).collect())
    }

    /// An assistant's message with one call, `x`, some of whose fields are `changed`.
    fn called(changed: Value) -> Value {
        let mut call = json!({"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        for (name, value) in changed.as_object().unwrap() {
            call[name] = value.clone();
        }
        json!({"role": "assistant", "content": null, "tool_calls": [call]})
    }

    #[test]
    fn calls_and_their_results_find_each_other() {
        let result = json!({"role": "tool", "tool_call_id": "x", "content": [{"type": "text", "text": "42"}]});
        let chat = json!({"messages": [called(json!({})), result]});
        let messages = take_messages(&mut Fields::new(chat.as_object().unwrap().clone())).unwrap();
        let call = MessageCall { id: "x".into(), name: "f".into(), arguments: "{}".into() };
        assert_eq!(messages[0].tool_calls, [call]);
        assert_eq!((messages[1].name.as_deref(), messages[1].content.as_str()), (Some("f"), "42"));
    }

    #[test]
    fn content_is_a_string_or_text_parts() {
        let given = json!([
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": null},
            {"role": "assistant", "content": null, "tool_calls": []},
        ]);
        let expected = [("system", "be brief"), ("user", "ab"), ("assistant", "")];
        assert_eq!(parsed(given), Ok(expected.map(|(role, content)| (role.into(), content.into())).to_vec()));
    }

    #[test]
    fn bad_messages_name_the_place() {
        for (given, param) in [
            (json!([]), "messages"),
            (json!("hi"), "messages"),
            (json!(["hi"]), "messages[0]"),
            (json!([{"role": "user", "content": "a"}, {"role": "robot", "content": "b"}]), "messages[1].role"),
            (json!([{"content": "a"}]), "messages[0].role"),
            (json!([{"role": "user"}]), "messages[0].content"),
            (json!([{"role": "user", "content": null}]), "messages[0].content"),
            (json!([{"role": "user", "content": 5}]), "messages[0].content"),
            (json!([{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0].text"),
            (json!([{"role": "user", "content": ["a"]}]), "messages[0].content[0].type"),
            (json!([{"role": "user", "content": [{"type": "image_url"}]}]), "messages[0].content[0].type"),
            (json!([{"role": "function", "name": "f", "content": "a"}]), "messages[0].role"),
            (json!([{"role": "tool", "content": "a"}]), "messages[0].tool_call_id"),
            (json!([{"role": "tool", "content": "a", "tool_call_id": "x"}]), "messages[0].tool_call_id"),
            (json!([{"role": "user", "content": "a", "tool_call_id": "x"}]), "messages[0].tool_call_id"),
            (json!([called(json!({})), {"role": "tool", "tool_call_id": "x"}]), "messages[1].content"),
            (
                json!([called(json!({})), {"role": "tool", "content": "a", "tool_call_id": "y"}]),
                "messages[1].tool_call_id",
            ),
            (json!([called(json!({"id": null}))]), "messages[0].tool_calls[0].id"),
            (json!([called(json!({"id": ""}))]), "messages[0].tool_calls[0].id"),
            (json!([called(json!({"type": "custom"}))]), "messages[0].tool_calls[0].type"),
            (json!([called(json!({"function": {"arguments": "{}"}}))]), "messages[0].tool_calls[0].function.name"),
            (
                json!([called(json!({"function": {"name": "f", "arguments": {}}}))]),
                "messages[0].tool_calls[0].function.arguments",
            ),
            (json!([called(json!({"function": 5}))]), "messages[0].tool_calls[0].function.name"),
            (json!([{"role": "assistant", "tool_calls": [5]}]), "messages[0].tool_calls[0]"),
            (json!([{"role": "assistant", "tool_calls": {}}]), "messages[0].tool_calls"),
            (
                json!([{"role": "user", "content": "a", "tool_calls": called(json!({}))["tool_calls"]}]),
                "messages[0].tool_calls",
            ),
            (json!([{"role": "assistant", "function_call": {"name": "f"}}]), "messages[0].function_call"),
            (json!([{"role": "assistant", "content": "a", "reasoning_content": 5}]), "messages[0].reasoning_content"),
            (json!([{"role": "user", "content": "a", "name": 5}]), "messages[0].name"),
        ] {
            match parsed(given.clone()) {
                Err(RequestError::InvalidValue { param: got, .. } | RequestError::Unsupported { param: got, .. }) => {
                    assert_eq!(got, param, "{given}");
                }
                other => panic!("{given}: {other:?}"),
            }
        }
    }
}
