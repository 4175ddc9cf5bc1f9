//! Answers of a chat, whole and as chunks of a stream.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::pipeline::logprobs::{ChatLogprob, PromptLogprob, PromptLogprobs, token_logprobs};
use crate::api::pipeline::running::{Call, Finished};
use crate::api::pipeline::traces::SequenceTrace;
use crate::api::pipeline::usage::{Timings, Usage};
use crate::generate::{CallDelta, TokenLogprob};
use forebay_core::units::TokenId;

#[derive(Serialize, ToSchema)]
pub struct ChatCompletion {
    pub id: String,
    /// `chat.completion`.
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub system_fingerprint: String,
    pub choices: Vec<ChatChoice>,
    pub usage: Usage,
    pub timings: Timings,
    /// For each token of the prompt an object by token id; `null` for the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Option<BTreeMap<String, PromptLogprob>>>>)]
    pub prompt_logprobs: Option<PromptLogprobs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<TokenId>>,
    /// With `x-forebay-trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forebay_trace: Option<Vec<SequenceTrace>>,
}

#[derive(Serialize, ToSchema)]
pub struct ChatChoice {
    pub index: usize,
    pub message: AnswerMessage,
    #[schema(required = true)]
    pub logprobs: Option<ChatLogprobs>,
    /// `stop`, `length` or `tool_calls`.
    #[schema(required = true)]
    pub finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<TokenId>>,
}

#[derive(Serialize, ToSchema)]
pub struct AnswerMessage {
    /// `assistant`.
    role: &'static str,
    /// `null` where only calls came.
    #[schema(required = true)]
    content: Option<String>,
    /// Always `null`: what a model refuses, it says.
    #[schema(required = true)]
    refusal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<AnswerCall>>,
}

impl AnswerMessage {
    /// What a choice said, but for its tokens.
    pub fn of(finished: Finished) -> AnswerMessage {
        let Finished { text, reasoning, calls, .. } = finished;
        AnswerMessage {
            role: "assistant",
            content: Some(text).filter(|text| !text.is_empty() || calls.is_empty()),
            refusal: None,
            reasoning_content: Some(reasoning).filter(|text| !text.is_empty()),
            tool_calls: Some(calls.into_iter().map(AnswerCall::of).collect())
                .filter(|calls: &Vec<_>| !calls.is_empty()),
        }
    }
}

/// A whole call of a tool.
#[derive(Serialize, ToSchema)]
pub struct AnswerCall {
    id: String,
    /// `function`.
    r#type: &'static str,
    function: CalledFunction,
}

#[derive(Serialize, ToSchema)]
pub struct CalledFunction {
    name: String,
    /// JSON as far as the model could write it.
    arguments: String,
}

impl AnswerCall {
    fn of(Call { id, name, arguments }: Call) -> AnswerCall {
        AnswerCall { id, r#type: "function", function: CalledFunction { name, arguments } }
    }
}

#[derive(Serialize, ToSchema)]
pub struct ChatLogprobs {
    content: Vec<ChatLogprob>,
    /// Always `null`.
    #[schema(required = true)]
    refusal: Option<Vec<ChatLogprob>>,
}

impl ChatLogprobs {
    pub fn of(tokens: Vec<TokenLogprob>) -> ChatLogprobs {
        ChatLogprobs { content: token_logprobs(tokens), refusal: None }
    }
}

/// What a chunk tells of a choice.
#[derive(Default, Serialize, ToSchema)]
pub struct ChatDelta {
    pub index: usize,
    pub delta: MessageDelta,
    #[schema(required = true)]
    pub logprobs: Option<ChatLogprobs>,
    #[schema(required = true)]
    pub finish_reason: Option<&'static str>,
    /// With `return_token_ids`, in a choice's first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<TokenId>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<TokenId>>,
}

#[derive(Default, Serialize, ToSchema)]
pub struct MessageDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCallDelta>>,
}

/// A part of a call: the first has its id, its type and its name.
#[derive(Serialize, ToSchema)]
pub struct ToolCallDelta {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// `function`.
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    function: FunctionDelta,
}

#[derive(Serialize, ToSchema)]
pub struct FunctionDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    arguments: String,
}

impl ToolCallDelta {
    pub fn of(CallDelta { index, begins, arguments }: CallDelta) -> ToolCallDelta {
        let (id, name) = begins.map(|begins| (begins.id, begins.name)).unzip();
        let r#type = id.is_some().then_some("function");
        ToolCallDelta { index, id, r#type, function: FunctionDelta { name, arguments } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::CallBegins;

    #[test]
    fn messages_leave_out_what_did_not_come() {
        let text = |finished| serde_json::to_string(&AnswerMessage::of(finished)).unwrap();
        let call = Call { id: "c".into(), name: "f".into(), arguments: "{}".into() };
        let silent = r#"{"role":"assistant","content":"","refusal":null}"#;
        assert_eq!(text(Finished::default()), silent);
        let calls = r#"[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]"#;
        assert_eq!(
            text(Finished { reasoning: "hm".into(), calls: vec![call], ..Finished::default() }),
            format!(
                r#"{{"role":"assistant","content":null,"refusal":null,"reasoning_content":"hm","tool_calls":{calls}}}"#
            )
        );
    }

    #[test]
    fn a_calls_first_part_names_it() {
        let text = |delta| serde_json::to_string(&ToolCallDelta::of(delta)).unwrap();
        let begins = Some(CallBegins { id: "c".into(), name: "f".into() });
        assert_eq!(
            text(CallDelta { index: 1, begins, arguments: String::new() }),
            r#"{"index":1,"id":"c","type":"function","function":{"name":"f","arguments":""}}"#
        );
        assert_eq!(
            text(CallDelta { index: 1, begins: None, arguments: "{".into() }),
            r#"{"index":1,"function":{"arguments":"{"}}"#
        );
    }
}
