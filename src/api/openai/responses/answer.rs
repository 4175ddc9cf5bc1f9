//! A response as an answer, its items, and the events of its stream.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::request::{FunctionChoice, FunctionTool, TextFormat};
use crate::api::error::face;
use crate::api::pipeline::logprobs::{ChatLogprob, token_logprobs};
use crate::api::pipeline::parts::Part;
use crate::api::pipeline::running::Running;
use crate::api::pipeline::traces::SequenceTrace;
use crate::api::pipeline::usage::{CompletionDetails, PromptDetails};
use forebay_core::request::RequestError;

/// What repeats the request is as the client sent it.
#[derive(Clone, Serialize, ToSchema)]
pub struct ResponseAnswer {
    pub id: String,
    /// `response`.
    pub object: &'static str,
    pub created_at: u64,
    /// `completed`, `incomplete`; in streams also `in_progress` and `failed`.
    pub status: &'static str,
    pub background: bool,
    #[schema(required = true)]
    pub completed_at: Option<u64>,
    #[schema(required = true)]
    pub error: Option<ResponseFault>,
    #[schema(required = true)]
    pub incomplete_details: Option<IncompleteDetails>,
    #[schema(required = true)]
    pub instructions: Option<String>,
    #[schema(required = true, value_type = Option<i64>)]
    pub max_output_tokens: Value,
    #[schema(value_type = BTreeMap<String, String>)]
    pub metadata: Value,
    pub model: String,
    pub output: Vec<OutputItem>,
    #[schema(value_type = bool)]
    pub parallel_tool_calls: Value,
    /// Always `null`: nothing is stored.
    #[schema(required = true)]
    pub previous_response_id: Option<String>,
    pub reasoning: ReasoningEcho,
    #[schema(value_type = String)]
    pub service_tier: Value,
    pub store: bool,
    #[schema(required = true)]
    pub temperature: Option<f64>,
    pub text: TextEcho,
    #[schema(value_type = FunctionChoice)]
    pub tool_choice: Value,
    #[schema(value_type = Vec<FunctionTool>)]
    pub tools: Value,
    #[schema(value_type = i64)]
    pub top_logprobs: Value,
    #[schema(required = true)]
    pub top_p: Option<f64>,
    pub truncation: &'static str,
    #[schema(required = true)]
    pub usage: Option<ResponseUsage>,
    #[schema(required = true, value_type = Option<String>)]
    pub user: Value,
    /// With `x-forebay-trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forebay_trace: Option<Vec<SequenceTrace>>,
}

#[derive(Clone, Serialize, ToSchema)]
pub struct ResponseFault {
    code: &'static str,
    message: String,
}

impl ResponseFault {
    pub fn of(error: &RequestError) -> ResponseFault {
        ResponseFault { code: face(error).code, message: error.to_string() }
    }
}

#[derive(Clone, Serialize, ToSchema)]
pub struct IncompleteDetails {
    /// `max_output_tokens`.
    pub reason: &'static str,
}

#[derive(Clone, Serialize, ToSchema)]
pub struct ReasoningEcho {
    #[schema(required = true, value_type = Option<String>)]
    pub effort: Value,
    /// Always `null`: thinking is shown as it is.
    #[schema(required = true)]
    pub summary: Option<String>,
}

#[derive(Clone, Serialize, ToSchema)]
pub struct TextEcho {
    #[schema(value_type = TextFormat)]
    pub format: Value,
}

#[derive(Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum OutputItem {
    Reasoning(ReasoningItem),
    Message(MessageItem),
    Call(CallItem),
}

#[derive(Clone, Serialize, ToSchema)]
pub struct ReasoningItem {
    id: String,
    /// `reasoning`.
    r#type: &'static str,
    status: &'static str,
    /// Empty: thinking is shown as it is.
    #[schema(value_type = Vec<Value>)]
    summary: [(); 0],
    content: Vec<OutputPart>,
}

#[derive(Clone, Serialize, ToSchema)]
pub struct MessageItem {
    id: String,
    /// `message`.
    r#type: &'static str,
    status: &'static str,
    /// `assistant`.
    role: &'static str,
    content: Vec<OutputPart>,
}

#[derive(Clone, Serialize, ToSchema)]
pub struct CallItem {
    id: String,
    /// `function_call`.
    r#type: &'static str,
    status: &'static str,
    call_id: String,
    name: String,
    arguments: String,
}

impl OutputItem {
    /// `part` as an item.
    pub fn of(part: &Part, id: String, status: &'static str) -> OutputItem {
        let content = OutputPart::of(part).into_iter().collect();
        match part {
            Part::Thinking(_) => {
                OutputItem::Reasoning(ReasoningItem { id, r#type: "reasoning", status, summary: [], content })
            }
            Part::Text { .. } => {
                OutputItem::Message(MessageItem { id, r#type: "message", status, role: "assistant", content })
            }
            Part::Call { id: call_id, name, arguments } => OutputItem::Call(CallItem {
                id,
                r#type: "function_call",
                status,
                call_id: call_id.clone(),
                name: name.clone(),
                arguments: arguments.clone(),
            }),
        }
    }

    /// Without its parts, which are told of by themselves.
    pub fn without_content(mut self) -> OutputItem {
        match &mut self {
            OutputItem::Reasoning(ReasoningItem { content, .. }) | OutputItem::Message(MessageItem { content, .. }) => {
                content.clear();
            }
            OutputItem::Call(_) => {}
        }
        self
    }
}

/// The part of an item that holds its text: `output_text` or `reasoning_text`.
#[derive(Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputPart {
    ReasoningText {
        text: String,
    },
    OutputText {
        text: String,
        /// Empty.
        #[schema(value_type = Vec<Value>)]
        annotations: [(); 0],
        logprobs: Vec<ChatLogprob>,
    },
}

impl OutputPart {
    /// Calls have none.
    pub fn of(part: &Part) -> Option<OutputPart> {
        match part {
            Part::Thinking(text) => Some(OutputPart::ReasoningText { text: text.clone() }),
            Part::Text { text, logprobs } => Some(OutputPart::OutputText {
                text: text.clone(),
                annotations: [],
                logprobs: token_logprobs(logprobs.clone()),
            }),
            Part::Call { .. } => None,
        }
    }
}

#[derive(Clone, Serialize, ToSchema)]
pub struct ResponseUsage {
    input_tokens: usize,
    input_tokens_details: PromptDetails,
    output_tokens: usize,
    output_tokens_details: CompletionDetails,
    total_tokens: usize,
}

impl ResponseUsage {
    pub fn of(running: &Running) -> ResponseUsage {
        let (input_tokens, output_tokens) = (running.prompt_token_count(), running.completion_tokens);
        ResponseUsage {
            input_tokens,
            input_tokens_details: PromptDetails { cached_tokens: running.cached_token_count() },
            output_tokens,
            output_tokens_details: CompletionDetails { reasoning_tokens: running.reasoning_tokens },
            total_tokens: input_tokens + output_tokens,
        }
    }
}

/// The data of an event; its name is `type`.
#[derive(Default, Serialize, ToSchema)]
pub struct ResponseEvent {
    /// Of the events of the whole: created, in_progress, completed, incomplete, failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Box<ResponseAnswer>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_index: Option<usize>,
    /// Of the events of an item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<OutputItem>,
    /// Of the events of a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<OutputPart>,
    /// What was added to a text or to the arguments of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta: Option<String>,
    /// The whole text, at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<ChatLogprob>>,
    /// Of a call, at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    pub r#type: &'static str,
    pub sequence_number: u64,
}

/// The event that ends a relayed stream which failed: the response itself is the other server's.
#[derive(Serialize, ToSchema)]
pub struct ResponseErrorEvent {
    /// `error`.
    r#type: &'static str,
    code: &'static str,
    message: String,
    #[schema(required = true)]
    param: Option<String>,
}

impl ResponseErrorEvent {
    pub fn of(error: &RequestError) -> ResponseErrorEvent {
        ResponseErrorEvent { r#type: "error", code: face(error).code, message: error.to_string(), param: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_hold_what_their_kind_holds() {
        let text = |part: &Part| serde_json::to_string(&OutputItem::of(part, "i".into(), "completed")).unwrap();
        assert_eq!(
            text(&Part::Thinking("hm".into())),
            r#"{"id":"i","type":"reasoning","status":"completed","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]}"#
        );
        assert_eq!(
            text(&Part::Text { text: "a".into(), logprobs: Vec::new() }),
            r#"{"id":"i","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[]}]}"#
        );
        assert_eq!(
            text(&Part::Call { id: "c".into(), name: "f".into(), arguments: "{}".into() }),
            r#"{"id":"i","type":"function_call","status":"completed","call_id":"c","name":"f","arguments":"{}"}"#
        );
    }

    #[test]
    fn events_end_with_their_type_and_number() {
        let event = ResponseEvent {
            output_index: Some(0),
            item_id: Some("i".into()),
            delta: Some("a".into()),
            logprobs: Some(Vec::new()),
            r#type: "response.output_text.delta",
            sequence_number: 4,
            ..ResponseEvent::default()
        };
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"item_id":"i","output_index":0,"delta":"a","logprobs":[],"type":"response.output_text.delta","sequence_number":4}"#
        );
    }
}
