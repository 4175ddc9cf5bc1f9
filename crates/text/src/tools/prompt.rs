//! Tools for a model whose chat template has no place for them: told in plain words. Pure.

use crate::{ChatMessage, MessageCall};

const ASK: &str = "You can call tools. To call some, answer with nothing but a JSON list of calls, each of the form \
                   {\"name\": \"...\", \"arguments\": {...}}. If no tool is needed, answer in plain words. The tools are:\n";

/// The chat with its tools in the system message, calls as the JSON that is asked for, and results in the user's words,
/// for such templates know no other roles.
pub fn in_plain_words(messages: &[ChatMessage], tools_json: Option<&str>) -> Vec<ChatMessage> {
    let mut plain: Vec<ChatMessage> = messages.iter().map(spelled_out).collect();
    let Some(ask) = tools_json.map(|json| format!("{ASK}{json}")) else { return plain };
    match plain.first_mut().filter(|first| first.role == "system") {
        Some(system) => system.content = format!("{}\n\n{ask}", system.content),
        None => plain.insert(0, ChatMessage::new("system", ask)),
    }
    plain
}

fn spelled_out(message: &ChatMessage) -> ChatMessage {
    match message.role.as_str() {
        "tool" => {
            let name = message.name.as_deref().unwrap_or("the tool");
            ChatMessage::new("user", format!("The result of {name}:\n{}", message.content))
        }
        "assistant" if !message.tool_calls.is_empty() => {
            let call = |call: &MessageCall| {
                let name = serde_json::Value::from(call.name.as_str());
                format!("{{\"name\": {name}, \"arguments\": {}}}", call.arguments)
            };
            let calls: Vec<String> = message.tool_calls.iter().map(call).collect();
            let gap = if message.content.is_empty() { "" } else { "\n" };
            ChatMessage::new("assistant", format!("{}{gap}[{}]", message.content, calls.join(", ")))
        }
        _ => message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chat_with_calls_in_plain_words() {
        let call = MessageCall { id: "1".into(), name: "f".into(), arguments: "{\"a\":1}".into() };
        let chat = [
            ChatMessage::new("system", "Be kind."),
            ChatMessage::new("user", "hi"),
            ChatMessage { tool_calls: vec![call.clone(), call], ..ChatMessage::new("assistant", "") },
            ChatMessage { name: Some("f".into()), ..ChatMessage::new("tool", "42") },
        ];
        let plain = in_plain_words(&chat, Some("[{}]"));
        let shown: Vec<(&str, &str)> = plain.iter().map(|m| (m.role.as_str(), m.content.as_str())).collect();
        assert_eq!(shown[0], ("system", format!("Be kind.\n\n{ASK}[{{}}]").as_str()));
        let calls = r#"[{"name": "f", "arguments": {"a":1}}, {"name": "f", "arguments": {"a":1}}]"#;
        assert_eq!(shown[1..], [("user", "hi"), ("assistant", calls), ("user", "The result of f:\n42")]);
        assert_eq!(in_plain_words(&chat[1..2], Some("[]"))[0].role, "system");
        assert_eq!(in_plain_words(&chat[1..2], None), chat[1..2]);
    }
}
