//! A message as an answer, and the events of its stream.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::error::MessageErrorObject;
use crate::api::pipeline::answer_format::End;
use crate::api::pipeline::parts::Part;
use crate::api::pipeline::running::Running;
use crate::api::pipeline::traces::SequenceTrace;
use forebay_core::request::FinishReason;

#[derive(Serialize, ToSchema)]
pub struct MessageAnswer {
    pub id: String,
    /// `message`.
    pub r#type: &'static str,
    /// `assistant`.
    pub role: &'static str,
    pub model: String,
    pub content: Vec<ContentBlock>,
    /// `end_turn`, `max_tokens`, `stop_sequence` or `tool_use`.
    #[schema(required = true)]
    pub stop_reason: Option<&'static str>,
    #[schema(required = true)]
    pub stop_sequence: Option<String>,
    pub usage: MessageUsage,
    /// With `x-forebay-trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forebay_trace: Option<Vec<SequenceTrace>>,
}

#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    Thinking {
        thinking: String,
        /// Empty: what is thought here is not signed.
        signature: &'static str,
    },
    Text {
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        /// Empty where the call was cut.
        #[schema(value_type = Object)]
        input: Map<String, Value>,
    },
}

impl ContentBlock {
    pub fn of(part: &Part) -> ContentBlock {
        match part {
            Part::Thinking(text) => ContentBlock::Thinking { thinking: text.clone(), signature: "" },
            Part::Text { text, .. } => ContentBlock::Text { text: text.clone() },
            Part::Call { id, name, arguments } => ContentBlock::ToolUse {
                id: id.clone(),
                name: name.clone(),
                // A call that was cut has no whole object.
                input: serde_json::from_str(arguments).unwrap_or_default(),
            },
        }
    }

    /// As it is when it begins.
    pub fn empty(part: &Part) -> ContentBlock {
        match part {
            Part::Thinking(_) => ContentBlock::Thinking { thinking: String::new(), signature: "" },
            Part::Text { .. } => ContentBlock::Text { text: String::new() },
            Part::Call { id, name, .. } => {
                ContentBlock::ToolUse { id: id.clone(), name: name.clone(), input: Map::new() }
            }
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct MessageUsage {
    /// Those of the prompt that were not in the KV cache.
    input_tokens: usize,
    cache_creation_input_tokens: usize,
    cache_read_input_tokens: usize,
    output_tokens: usize,
}

impl MessageUsage {
    pub fn of(running: &Running) -> MessageUsage {
        let cached = running.cached_token_count();
        MessageUsage {
            input_tokens: running.prompt_token_count() - cached,
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: cached,
            output_tokens: running.completion_tokens,
        }
    }
}

/// The data of an event; its name is `type`.
#[derive(Default, Serialize, ToSchema)]
pub struct MessageEvent {
    /// Of `message_start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageAnswer>,
    /// Of the events of a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// Of `content_block_start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_block: Option<ContentBlock>,
    /// Of `content_block_delta` and `message_delta`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta: Option<EventDelta>,
    /// Of `message_delta`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<MessageUsage>,
    /// Of `message_delta`, with `x-forebay-trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forebay_trace: Option<Vec<SequenceTrace>>,
    pub r#type: &'static str,
    /// Of `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<MessageErrorObject>,
}

/// Of a block, or of the whole message.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum EventDelta {
    Block(BlockDelta),
    Message(MessageEnd),
}

#[derive(Serialize, ToSchema)]
#[serde(tag = "type")]
pub enum BlockDelta {
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
}

impl BlockDelta {
    /// What was added to `part`.
    pub fn of(part: &Part, added: String) -> BlockDelta {
        match part {
            Part::Thinking(_) => BlockDelta::Thinking { thinking: added },
            Part::Text { .. } => BlockDelta::Text { text: added },
            Part::Call { .. } => BlockDelta::InputJson { partial_json: added },
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct MessageEnd {
    /// `end_turn`, `max_tokens`, `stop_sequence` or `tool_use`.
    pub stop_reason: &'static str,
    #[schema(required = true)]
    pub stop_sequence: Option<String>,
}

/// Anthropic's name of how an answer ended.
pub fn stop_reason(end: &End) -> &'static str {
    match end.reason {
        FinishReason::Stop if end.stop.is_some() => "stop_sequence",
        FinishReason::Stop | FinishReason::Abort => "end_turn",
        FinishReason::ToolCalls => "tool_use",
        FinishReason::Length => "max_tokens",
    }
}

#[derive(Serialize, ToSchema)]
pub struct TokenCount {
    pub input_tokens: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &impl Serialize) -> String {
        serde_json::to_string(value).unwrap()
    }

    #[test]
    fn blocks_and_deltas_begin_with_their_type() {
        let call = Part::Call { id: "c".into(), name: "f".into(), arguments: r#"{"b": 1, "a": [2]}"#.into() };
        let whole = r#"{"type":"tool_use","id":"c","name":"f","input":{"b":1,"a":[2]}}"#;
        assert_eq!(text(&ContentBlock::of(&call)), whole);
        let cut = Part::Call { id: "c".into(), name: "f".into(), arguments: "[1".into() };
        let empty = r#"{"type":"tool_use","id":"c","name":"f","input":{}}"#;
        assert_eq!((text(&ContentBlock::of(&cut)), text(&ContentBlock::empty(&call))), (empty.into(), empty.into()));
        let thought = r#"{"type":"thinking","thinking":"hm","signature":""}"#;
        assert_eq!(text(&ContentBlock::of(&Part::Thinking("hm".into()))), thought);
        assert_eq!(text(&BlockDelta::of(&call, "{".into())), r#"{"type":"input_json_delta","partial_json":"{"}"#);
    }

    #[test]
    fn events_end_with_their_type() {
        let end = MessageEnd { stop_reason: "end_turn", stop_sequence: None };
        let delta = Some(EventDelta::Message(end));
        let event = MessageEvent { delta, r#type: "message_delta", ..MessageEvent::default() };
        let expected = r#"{"delta":{"stop_reason":"end_turn","stop_sequence":null},"type":"message_delta"}"#;
        assert_eq!(serde_json::to_string(&event).unwrap(), expected);
    }
}
