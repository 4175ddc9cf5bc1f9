//! Items of input as the messages of a chat, and the way back for the names in errors.

use serde_json::{Value, json};

use crate::api::pipeline::origins::Origins;
use crate::api::pipeline::params::{Fields, wrong};
use forebay_core::request::RequestError;

const MAX_ITEMS: usize = 4_096;

pub struct Input {
    /// As a chat has them.
    pub messages: Vec<Value>,
    origins: Origins,
}

impl Input {
    pub fn read(fields: &mut Fields, instructions: Option<&str>) -> Result<Input, RequestError> {
        let mut input = Input { messages: Vec::new(), origins: Origins::default() };
        if let Some(text) = instructions {
            input.push("instructions", json!({"role": "system", "content": text}));
        }
        match fields.take("input") {
            None => return Err(RequestError::invalid("input", "is required")),
            Some(Value::String(text)) if text.is_empty() => {
                return Err(RequestError::invalid("input", "must not be empty"));
            }
            Some(Value::String(text)) => input.push("input", json!({"role": "user", "content": text})),
            Some(Value::Array(items)) if items.is_empty() => {
                return Err(RequestError::invalid("input", "must have at least one item"));
            }
            Some(Value::Array(items)) if items.len() > MAX_ITEMS => {
                let message = format!("has {} items, at most {MAX_ITEMS} are allowed", items.len());
                return Err(RequestError::invalid("input", message));
            }
            Some(Value::Array(items)) => {
                for (index, item) in items.into_iter().enumerate() {
                    input.item(fields, index, item)?;
                }
            }
            Some(other) => return Err(wrong("input", "a string or a list of items", &other)),
        }
        // A thought without an answer after it, which a template may not know what to do with.
        for message in &mut input.messages {
            if message["role"] == "assistant" && message["content"].is_null() && message.get("tool_calls").is_none() {
                message["content"] = json!("");
            }
        }
        Ok(input)
    }

    /// The name that a field of the chat has in a response; `None` for the same.
    pub fn named(&self, param: &str) -> Option<String> {
        const NAMES: [(&str, &str); 6] = [
            ("messages", "input"),
            ("prompt", "input"),
            ("max_completion_tokens", "max_output_tokens"),
            ("reasoning_effort", "reasoning.effort"),
            ("tool_choice.function.name", "tool_choice.name"),
            ("logprobs", "include"),
        ];
        if let Some((_, name)) = NAMES.iter().find(|(chats, _)| *chats == param) {
            return Some((*name).to_owned());
        }
        if let Some((place, rest)) = self.origins.find(param) {
            let rest = match rest {
                ".id" | ".tool_call_id" => ".call_id",
                rest => rest.strip_prefix(".function").unwrap_or(rest),
            };
            return Some(format!("{place}{rest}"));
        }
        if let Some(rest) = param.strip_prefix("messages.") {
            return Some(format!("input.{rest}"));
        }
        if let Some(rest) = param.strip_prefix("response_format") {
            return Some(format!("text.format{}", rest.strip_prefix(".json_schema").unwrap_or(rest)));
        }
        param.starts_with("tools[").then(|| param.replacen("].function", "]", 1))
    }

    /// A message of what stands at `place`.
    fn push(&mut self, place: impl Into<String>, message: Value) {
        self.origins.message(place);
        self.messages.push(message);
    }

    fn item(&mut self, fields: &mut Fields, index: usize, item: Value) -> Result<(), RequestError> {
        let at = |name: &str| format!("input[{index}]{name}");
        let Value::Object(object) = item else { return Err(wrong(&at(""), "an object", &item)) };
        let mut item = Fields::inside("input[].", object);
        // Where an item came from says nothing about what it means.
        drop((item.take("id"), item.take("status"), item.take("phase")));
        let kind = match item.take("type") {
            None => "message".to_owned(),
            Some(Value::String(kind)) => kind,
            Some(other) => return Err(wrong(&at(".type"), "a string", &other)),
        };
        match kind.as_str() {
            "message" => self.message(index, &mut item)?,
            "function_call" => self.call(index, &mut item)?,
            "function_call_output" => {
                let output = match item.take("output") {
                    None => return Err(RequestError::invalid(at(".output"), "is required")),
                    Some(output) => parts(&at(".output"), output)?,
                };
                let id = required(&at(".call_id"), item.take("call_id"))?;
                self.push(at(""), json!({"role": "tool", "tool_call_id": id, "content": output}));
            }
            "reasoning" => self.reasoning(index, &mut item, fields)?,
            other => {
                let shown: String = other.chars().take(40).collect();
                let message = format!("items of the type '{shown}' are not implemented");
                return Err(RequestError::Unsupported { param: at(".type"), message });
            }
        }
        fields.absorb("input", item);
        Ok(())
    }

    fn message(&mut self, index: usize, item: &mut Fields) -> Result<(), RequestError> {
        let at = |name: &str| format!("input[{index}]{name}");
        let role = item.take("role");
        let content = match item.take("content") {
            None => return Err(RequestError::invalid(at(".content"), "is required")),
            Some(content) => parts(&at(".content"), content)?,
        };
        if role == Some(json!("assistant"))
            && let Some(open) = self.open_thought()
        {
            open["content"] = content;
            return Ok(());
        }
        self.push(at(""), json!({"role": role, "content": content}));
        Ok(())
    }

    /// A message of the assistant that has nothing but thoughts so far.
    fn open_thought(&mut self) -> Option<&mut Value> {
        self.messages
            .last_mut()
            .filter(|last| last["role"] == "assistant" && last["content"].is_null() && last.get("tool_calls").is_none())
    }

    /// A call belongs to the assistant's message before it.
    fn call(&mut self, index: usize, item: &mut Fields) -> Result<(), RequestError> {
        let at = |name: &str| format!("input[{index}]{name}");
        let id = required(&at(".call_id"), item.take("call_id"))?;
        let name = required(&at(".name"), item.take("name"))?;
        let arguments = required(&at(".arguments"), item.take("arguments"))?;
        let call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        if self.messages.last().is_none_or(|last| last["role"] != "assistant") {
            self.push(at(""), json!({"role": "assistant", "content": null}));
        }
        self.origins.call(at(""));
        if let Some(last) = self.messages.last_mut() {
            match last.get_mut("tool_calls").and_then(Value::as_array_mut) {
                Some(calls) => calls.push(call),
                None => last["tool_calls"] = json!([call]),
            }
        }
        Ok(())
    }

    fn reasoning(&mut self, index: usize, item: &mut Fields, fields: &mut Fields) -> Result<(), RequestError> {
        let at = |name: &str| format!("input[{index}]{name}");
        if item.take("encrypted_content").is_some() {
            fields.ignore("input.encrypted_content");
        }
        // Shown to people; what was thought is in the content.
        let summary = item.take("summary");
        let thought = match item.take("content") {
            Some(content) => Some(parts(&at(".content"), content)?),
            None => match summary {
                Some(Value::Array(list)) if !list.is_empty() => Some(parts(&at(".summary"), list.into())?),
                None | Some(Value::Array(_)) => None,
                Some(other) => return Err(wrong(&at(".summary"), "a list", &other)),
            },
        };
        if let Some(thought) = thought {
            self.push(at(""), json!({"role": "assistant", "content": null, "reasoning_content": thought}));
        }
        Ok(())
    }
}

fn required(param: &str, value: Option<Value>) -> Result<Value, RequestError> {
    match value {
        Some(Value::String(text)) => Ok(Value::String(text)),
        Some(other) => Err(wrong(param, "a string", &other)),
        None => Err(RequestError::invalid(param, "is required")),
    }
}

/// A string, or parts that are text, joined.
fn parts(param: &str, content: Value) -> Result<Value, RequestError> {
    let list = match content {
        Value::String(text) => return Ok(Value::String(text)),
        Value::Array(list) => list,
        other => return Err(wrong(param, "a string or a list of parts", &other)),
    };
    let mut joined = String::new();
    for (index, part) in list.iter().enumerate() {
        let field = match part["type"].as_str() {
            Some("input_text" | "output_text" | "reasoning_text" | "summary_text" | "text") => "text",
            Some("refusal") => "refusal",
            Some(_) => {
                let param = format!("{param}[{index}].type");
                return Err(RequestError::Unsupported { param, message: "only text is implemented".into() });
            }
            None => return Err(RequestError::invalid(format!("{param}[{index}].type"), "must be a string")),
        };
        match part[field].as_str() {
            Some(text) => joined.push_str(text),
            None => return Err(RequestError::invalid(format!("{param}[{index}].{field}"), "must be a string")),
        }
    }
    Ok(Value::String(joined))
}
