//! A message told: the object itself, its blocks, and the events of its stream, all of the same parts.

use serde_json::{Value, json};

use super::error;
use crate::api::State;
use crate::api::pipeline::answer_format::{self, End, Named};
use crate::api::pipeline::head::Head;
use crate::api::pipeline::parts::{Change, Part, Parts};
use crate::api::pipeline::running::Running;
use forebay_core::request::{FinishReason, RequestError};
use forebay_engine::metrics::Route;

pub struct MessageWriter {
    id: String,
    model: String,
}

impl MessageWriter {
    pub fn new(state: &State, head: &Head) -> MessageWriter {
        MessageWriter { id: head.id.clone(), model: state.generator.name(head.adapter).to_owned() }
    }

    fn message(&self, content: Vec<Value>, end: Option<&End>, usage: Value) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": end.map(stop_reason),
            "stop_sequence": end.and_then(|end| end.stop.clone()),
            "usage": usage,
        })
    }
}

fn event(name: &'static str, mut data: Value) -> Named {
    data["type"] = json!(name);
    (name, data)
}

impl answer_format::AnswerFormat for MessageWriter {
    const ROUTE: Route = Route::Messages;

    /// What the cache holds is known later; the last usage counts.
    fn begin(&mut self, running: &Running) -> Vec<Named> {
        let message = self.message(Vec::new(), None, usage(running));
        vec![event("message_start", json!({"message": message})), event("ping", json!({}))]
    }

    fn change(&mut self, parts: &Parts, change: Change) -> Vec<Named> {
        let part = |index: usize| parts.list().get(index);
        match change {
            Change::Opened(index) => part(index)
                .map(|part| event("content_block_start", json!({"index": index, "content_block": fresh(part)})))
                .into_iter()
                .collect(),
            Change::Grew(index, text, _) => part(index)
                .map(|part| event("content_block_delta", json!({"index": index, "delta": grown(part, text)})))
                .into_iter()
                .collect(),
            Change::Closed(index) => vec![event("content_block_stop", json!({"index": index}))],
        }
    }

    fn end(&mut self, _parts: &Parts, running: &Running, end: End) -> Vec<Named> {
        let delta = json!({"stop_reason": stop_reason(&end), "stop_sequence": end.stop});
        let mut last = json!({"delta": delta, "usage": usage(running)});
        if let Some(trace) = end.trace {
            last["forebay_trace"] = trace;
        }
        vec![event("message_delta", last), event("message_stop", json!({}))]
    }

    fn fail(&mut self, _parts: &Parts, failed: &RequestError) -> Vec<Named> {
        vec![("error", error::object(failed))]
    }

    fn whole(&mut self, parts: &Parts, running: &Running, end: End) -> Value {
        let mut message = self.message(parts.list().iter().map(block).collect(), Some(&end), usage(running));
        if let Some(trace) = end.trace {
            message["forebay_trace"] = trace;
        }
        message
    }
}

fn stop_reason(end: &End) -> &'static str {
    match end.reason {
        FinishReason::Stop if end.stop.is_some() => "stop_sequence",
        FinishReason::Stop | FinishReason::Abort => "end_turn",
        FinishReason::ToolCalls => "tool_use",
        FinishReason::Length => "max_tokens",
    }
}

fn block(part: &Part) -> Value {
    match part {
        Part::Thinking(text) => json!({"type": "thinking", "thinking": text, "signature": ""}),
        Part::Text { text, .. } => json!({"type": "text", "text": text}),
        Part::Call { id, name, arguments } => {
            // A call that was cut has no whole object.
            let input = serde_json::from_str::<Value>(arguments).ok().filter(Value::is_object);
            json!({"type": "tool_use", "id": id, "name": name, "input": input.unwrap_or_else(|| json!({}))})
        }
    }
}

/// As it is when it begins.
fn fresh(part: &Part) -> Value {
    match part {
        Part::Thinking(_) => json!({"type": "thinking", "thinking": "", "signature": ""}),
        Part::Text { .. } => json!({"type": "text", "text": ""}),
        Part::Call { id, name, .. } => json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
    }
}

fn grown(part: &Part, text: String) -> Value {
    match part {
        Part::Thinking(_) => json!({"type": "thinking_delta", "thinking": text}),
        Part::Text { .. } => json!({"type": "text_delta", "text": text}),
        Part::Call { .. } => json!({"type": "input_json_delta", "partial_json": text}),
    }
}

/// What came from the cache counts apart.
fn usage(running: &Running) -> Value {
    let cached = running.cached_token_count();
    json!({
        "input_tokens": running.prompt_token_count() - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": running.completion_tokens,
    })
}
