//! Messages of blocks as the messages of a chat, and the way back for the names in errors.

use serde_json::{Map, Value, json};

use crate::api::pipeline::messages::content_text;
use crate::api::pipeline::origins::Origins;
use crate::api::pipeline::params::{Fields, wrong};
use forebay_core::request::RequestError;

const MAX_MESSAGES: usize = 2_048;

pub struct Input {
    /// As a chat has them.
    pub messages: Vec<Value>,
    /// The assistant's last message is to be gone on with.
    pub continues: bool,
    origins: Origins,
}

impl Input {
    pub fn read(fields: &mut Fields) -> Result<Input, RequestError> {
        let mut input = Input { messages: Vec::new(), continues: false, origins: Origins::default() };
        if let Some(system) = fields.take("system") {
            let text = content_text("system", system)?;
            input.push("system", json!({"role": "system", "content": text}));
        }
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
        for (index, message) in list.into_iter().enumerate() {
            input.message(fields, index, message)?;
        }
        let last = input.messages.last();
        input.continues = last.is_some_and(|last| {
            last["role"] == "assistant" && last.get("tool_calls").is_none() && last["content"] != json!("")
        });
        Ok(input)
    }

    /// The name that a field of the chat has here; `None` for the same.
    pub fn named(&self, param: &str) -> Option<String> {
        const NAMES: [(&str, &str); 7] = [
            ("prompt", "messages"),
            ("stop", "stop_sequences"),
            ("max_thinking_tokens", "thinking.budget_tokens"),
            ("reasoning_effort", "output_config.effort"),
            ("user", "metadata.user_id"),
            ("tool_choice.function.name", "tool_choice.name"),
            ("continue_final_message", "messages"),
        ];
        if let Some((_, name)) = NAMES.iter().find(|(chats, _)| *chats == param) {
            return Some((*name).to_owned());
        }
        if let Some((place, rest)) = self.origins.find(param) {
            let rest = match rest {
                ".tool_call_id" => ".tool_use_id",
                rest => rest.strip_prefix(".function").unwrap_or(rest),
            };
            return Some(format!("{place}{rest}"));
        }
        if let Some(rest) = param.strip_prefix("response_format") {
            return Some(format!("output_config.format{}", rest.strip_prefix(".json_schema").unwrap_or(rest)));
        }
        let (tool, rest) = param.strip_prefix("tools[")?.split_once("].function")?;
        let rest =
            rest.strip_prefix(".parameters").map_or_else(|| rest.to_owned(), |rest| format!(".input_schema{rest}"));
        Some(format!("tools[{tool}]{rest}"))
    }

    /// A message of what stands at `place`.
    fn push(&mut self, place: impl Into<String>, message: Value) {
        self.origins.message(place);
        self.messages.push(message);
    }

    fn message(&mut self, fields: &mut Fields, index: usize, message: Value) -> Result<(), RequestError> {
        let at = |name: &str| format!("messages[{index}]{name}");
        let Value::Object(object) = message else { return Err(wrong(&at(""), "an object", &message)) };
        let mut message = Fields::inside("messages[].", object);
        let role = match message.take("role") {
            Some(Value::String(role)) if role == "user" || role == "assistant" => role,
            Some(other) => return Err(wrong(&at(".role"), "user or assistant", &other)),
            None => return Err(RequestError::invalid(at(".role"), "is required")),
        };
        let content = message.take("content");
        fields.absorb("messages", message);
        let blocks = match content {
            None => return Err(RequestError::invalid(at(".content"), "is required")),
            Some(Value::String(text)) => {
                self.push(at(""), json!({"role": role, "content": text}));
                return Ok(());
            }
            Some(Value::Array(blocks)) => blocks,
            Some(other) => return Err(wrong(&at(".content"), "a string or a list of blocks", &other)),
        };
        let mut words = Words::default();
        for (number, block) in blocks.into_iter().enumerate() {
            let at = format!("messages[{index}].content[{number}]");
            let Value::Object(object) = block else { return Err(wrong(&at, "an object", &block)) };
            let mut block = Fields::inside("messages[].content[].", object);
            drop(block.take("cache_control"));
            let result = words.block(&at, &role, &mut block, fields)?;
            fields.absorb("messages.content", block);
            if let Some(result) = result {
                self.push(at, result);
            }
        }
        let calls = std::mem::take(&mut words.places);
        if let Some(message) = words.into_message(role) {
            self.push(at(""), message);
            calls.into_iter().for_each(|place| self.origins.call(place));
        }
        Ok(())
    }
}

/// What the blocks of a message come to, its results of calls apart.
#[derive(Default)]
struct Words {
    text: Option<String>,
    thinking: Option<String>,
    calls: Vec<Value>,
    /// Of the calls.
    places: Vec<String>,
    has_results: bool,
}

impl Words {
    /// Takes a block in, or makes a message of its own of it.
    fn block(
        &mut self,
        at: &str,
        role: &str,
        block: &mut Fields,
        outer: &mut Fields,
    ) -> Result<Option<Value>, RequestError> {
        let of = |name: &str| format!("{at}.{name}");
        let kind = block.take("type").unwrap_or_default();
        match (kind.as_str(), role) {
            (Some("text"), _) => {
                let text = required(&of("text"), block.take("text"))?;
                drop(block.take("citations"));
                self.text.get_or_insert_default().push_str(&text);
            }
            (Some("thinking"), "assistant") => {
                let text = required(&of("thinking"), block.take("thinking"))?;
                // What is thought here is not signed.
                drop(block.take("signature"));
                self.thinking.get_or_insert_default().push_str(&text);
            }
            (Some("redacted_thinking"), "assistant") => {
                drop(block.take("data"));
                outer.ignore("messages.content.redacted_thinking");
            }
            (Some("tool_use"), "assistant") => {
                let id = required(&of("id"), block.take("id"))?;
                let name = required(&of("name"), block.take("name"))?;
                let input = match block.take("input") {
                    Some(Value::Object(input)) => Value::Object(input).to_string(),
                    Some(other) => return Err(wrong(&of("input"), "an object", &other)),
                    None => return Err(RequestError::invalid(of("input"), "is required")),
                };
                drop(block.take("caller"));
                self.places.push(at.to_owned());
                self.calls.push(json!({"id": id, "type": "function", "function": {"name": name, "arguments": input}}));
            }
            (Some("tool_result"), "user") => {
                if self.text.is_some() {
                    return Err(RequestError::invalid(at, "results of calls come before the text of a message"));
                }
                let id = required(&of("tool_use_id"), block.take("tool_use_id"))?;
                let content =
                    block.take("content").map_or(Ok(String::new()), |content| content_text(&of("content"), content))?;
                if block.flag("is_error")? {
                    // Templates have no place for it.
                    outer.ignore("messages.content.is_error");
                }
                self.has_results = true;
                return Ok(Some(json!({"role": "tool", "tool_call_id": id, "content": content})));
            }
            (Some("thinking" | "redacted_thinking" | "tool_use" | "tool_result"), _) => {
                return Err(RequestError::invalid(of("type"), format!("is not for the role {role}")));
            }
            (Some(other), _) => {
                let shown: String = other.chars().take(40).collect();
                let message = format!(
                    "blocks of the type '{shown}' are not implemented; only text, thinking, tool_use and tool_result"
                );
                return Err(RequestError::Unsupported { param: of("type"), message });
            }
            (None, _) => return Err(RequestError::invalid(of("type"), "must be a string")),
        }
        Ok(None)
    }

    /// `None` where there is nothing but results of calls.
    fn into_message(self, role: String) -> Option<Value> {
        if self.has_results && self.text.is_none() {
            return None;
        }
        let mut message = Map::from_iter([("role".to_owned(), Value::String(role))]);
        message.insert("content".into(), self.text.unwrap_or_default().into());
        message.extend(self.thinking.map(|thinking| ("reasoning_content".to_owned(), thinking.into())));
        if !self.calls.is_empty() {
            message.insert("tool_calls".into(), self.calls.into());
        }
        Some(message.into())
    }
}

fn required(param: &str, value: Option<Value>) -> Result<String, RequestError> {
    match value {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(wrong(param, "a string", &other)),
        None => Err(RequestError::invalid(param, "is required")),
    }
}
