//! A response told: the object itself, its items, and the events of its stream, all of the same parts.

use serde_json::{Map, Value, json};

use crate::api::openai::chat::token_logprobs;
use crate::api::pipeline::answer_format::{self, End, Named};
use crate::api::pipeline::head::Head;
use crate::api::pipeline::params::{Fields, wrong};
use crate::api::pipeline::parts::{Change, Part, Parts};
use crate::api::pipeline::running::Running;
use crate::api::{State, error};
use crate::generate::TokenLogprob;
use forebay_clock::unix_seconds;
use forebay_core::request::{FinishReason, RequestError};
use forebay_engine::metrics::Route;

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
    parallel_tool_calls: Value,
    metadata: Value,
    user: Value,
    service_tier: Value,
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

pub struct ResponseWriter {
    id: String,
    /// What the ids of items end with.
    tail: String,
    created: u64,
    model: String,
    echo: Echo,
    /// Drawn with, defaults of the model's makers included.
    temperature: Value,
    top_p: Value,
    /// Of the next event.
    sequence: u64,
    /// What is closed from now on was cut.
    cut: bool,
}

impl ResponseWriter {
    pub fn new(state: &State, head: &Head, echo: Echo) -> ResponseWriter {
        ResponseWriter {
            id: head.id.clone(),
            tail: head.id.trim_start_matches("resp_").to_owned(),
            created: unix_seconds(),
            model: state.generator.name(head.adapter).to_owned(),
            echo,
            temperature: Value::Null,
            top_p: Value::Null,
            sequence: 0,
            cut: false,
        }
    }

    fn look_at(&mut self, running: &Running) {
        if let Some(effective) = running.started.first().and_then(|started| started.effective.as_ref()) {
            self.temperature = json!(effective.sampling.temperature);
            self.top_p = json!(effective.sampling.top_p);
        }
    }

    fn event(&mut self, name: &'static str, mut data: Value) -> Named {
        data["type"] = json!(name);
        data["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        (name, data)
    }

    /// The object, without usage.
    fn response(&self, status: &str, output: Vec<Value>) -> Value {
        let echo = &self.echo;
        json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": false,
            "completed_at": null,
            "error": null,
            "incomplete_details": null,
            "instructions": echo.instructions,
            "max_output_tokens": echo.max_output_tokens,
            "metadata": echo.metadata,
            "model": self.model,
            "output": output,
            "parallel_tool_calls": echo.parallel_tool_calls,
            "previous_response_id": null,
            "reasoning": {"effort": echo.effort, "summary": null},
            "service_tier": echo.service_tier,
            "store": false,
            "temperature": self.temperature,
            "text": {"format": echo.format},
            "tool_choice": echo.tool_choice,
            "tools": echo.tools,
            "top_logprobs": echo.top_logprobs,
            "top_p": self.top_p,
            "truncation": "disabled",
            "usage": null,
            "user": echo.user,
        })
    }

    fn ended(&mut self, parts: &Parts, running: &Running, end: End) -> Value {
        let cut = end.reason == FinishReason::Length;
        let last = parts.list().len().saturating_sub(1);
        let status = |index| if cut && index == last { "incomplete" } else { "completed" };
        let items = parts.list().iter().enumerate().map(|(index, part)| self.item(index, part, status(index)));
        let mut response = self.response(if cut { "incomplete" } else { "completed" }, items.collect());
        if cut {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        } else {
            response["completed_at"] = json!(unix_seconds());
        }
        response["usage"] = usage(running);
        if let Some(trace) = end.trace {
            response["forebay_trace"] = trace;
        }
        response
    }

    fn item_id(&self, index: usize, part: &Part) -> String {
        let kind = match part {
            Part::Thinking(_) => "rs",
            Part::Text { .. } => "msg",
            Part::Call { .. } => "fc",
        };
        format!("{kind}_{}_{index}", self.tail)
    }

    fn item(&self, index: usize, part: &Part, status: &str) -> Value {
        let id = self.item_id(index, part);
        match part {
            Part::Thinking(_) => {
                json!({"id": id, "type": "reasoning", "status": status, "summary": [], "content": [content(part)]})
            }
            Part::Text { .. } => {
                json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": [content(part)]})
            }
            Part::Call { id: call, name, arguments } => {
                json!({"id": id, "type": "function_call", "status": status, "call_id": call, "name": name, "arguments": arguments})
            }
        }
    }

    /// Where in the output an event belongs.
    fn place(&self, index: usize, part: &Part) -> Value {
        let mut place = json!({"item_id": self.item_id(index, part), "output_index": index});
        if !matches!(part, Part::Call { .. }) {
            place["content_index"] = json!(0);
        }
        place
    }

    fn opened(&mut self, index: usize, part: &Part) -> Vec<Named> {
        let fresh = emptied(part);
        let mut item = self.item(index, &fresh, "in_progress");
        let place = self.place(index, part);
        if matches!(part, Part::Call { .. }) {
            return vec![self.event("response.output_item.added", json!({"output_index": index, "item": item}))];
        }
        item["content"] = json!([]);
        let added = with(place, json!({"part": content(&fresh)}));
        vec![
            self.event("response.output_item.added", json!({"output_index": index, "item": item})),
            self.event("response.content_part.added", added),
        ]
    }

    fn grew(&mut self, index: usize, part: &Part, delta: String, logprobs: &[TokenLogprob]) -> Named {
        let place = self.place(index, part);
        match part {
            Part::Thinking(_) => self.event("response.reasoning_text.delta", with(place, json!({"delta": delta}))),
            Part::Text { .. } => {
                let data = json!({"delta": delta, "logprobs": token_logprobs(logprobs)});
                self.event("response.output_text.delta", with(place, data))
            }
            Part::Call { .. } => {
                self.event("response.function_call_arguments.delta", with(place, json!({"delta": delta})))
            }
        }
    }

    fn closed(&mut self, index: usize, part: &Part) -> Vec<Named> {
        let place = self.place(index, part);
        let mut events = match part {
            Part::Thinking(text) => {
                vec![self.event("response.reasoning_text.done", with(place.clone(), json!({"text": text})))]
            }
            Part::Text { text, logprobs } => {
                let data = json!({"text": text, "logprobs": token_logprobs(logprobs)});
                vec![self.event("response.output_text.done", with(place.clone(), data))]
            }
            Part::Call { name, arguments, .. } => {
                let data = json!({"name": name, "arguments": arguments});
                vec![self.event("response.function_call_arguments.done", with(place.clone(), data))]
            }
        };
        if !matches!(part, Part::Call { .. }) {
            events.push(self.event("response.content_part.done", with(place, json!({"part": content(part)}))));
        }
        let item = self.item(index, part, if self.cut { "incomplete" } else { "completed" });
        events.push(self.event("response.output_item.done", json!({"output_index": index, "item": item})));
        events
    }
}

impl answer_format::AnswerFormat for ResponseWriter {
    const ROUTE: Route = Route::Responses;

    fn begin(&mut self, running: &Running) -> Vec<Named> {
        self.look_at(running);
        let response = self.response("in_progress", Vec::new());
        ["response.created", "response.in_progress"].map(|name| self.event(name, json!({"response": response}))).into()
    }

    fn change(&mut self, parts: &Parts, change: Change) -> Vec<Named> {
        let part = |index: usize| parts.list().get(index).cloned();
        match change {
            Change::Opened(index) => part(index).map_or(Vec::new(), |part| self.opened(index, &part)),
            Change::Grew(index, delta, logprobs) => {
                part(index).map(|part| self.grew(index, &part, delta, &logprobs)).into_iter().collect()
            }
            Change::Closed(index) => part(index).map_or(Vec::new(), |part| self.closed(index, &part)),
        }
    }

    fn close(&mut self, parts: &mut Parts, reason: FinishReason) -> Vec<Change> {
        self.cut = reason == FinishReason::Length;
        parts.close_with_words()
    }

    fn end(&mut self, parts: &Parts, running: &Running, end: End) -> Vec<Named> {
        let name = if end.reason == FinishReason::Length { "response.incomplete" } else { "response.completed" };
        let response = self.ended(parts, running, end);
        vec![self.event(name, json!({"response": response}))]
    }

    fn fail(&mut self, parts: &Parts, failed: &RequestError) -> Vec<Named> {
        let items =
            parts.list().iter().enumerate().map(|(index, part)| {
                self.item(index, part, if parts.is_open(index) { "incomplete" } else { "completed" })
            });
        let mut response = self.response("failed", items.collect());
        response["error"] = json!({"code": error::face(failed).code, "message": failed.to_string()});
        vec![self.event("response.failed", json!({"response": response}))]
    }

    fn whole(&mut self, parts: &Parts, running: &Running, end: End) -> Value {
        self.look_at(running);
        self.ended(parts, running, end)
    }
}

/// The part of an item that holds its text.
fn content(part: &Part) -> Value {
    match part {
        Part::Thinking(text) => json!({"type": "reasoning_text", "text": text}),
        Part::Text { text, logprobs } => {
            json!({"type": "output_text", "text": text, "annotations": [], "logprobs": token_logprobs(logprobs)})
        }
        Part::Call { arguments, .. } => json!(arguments),
    }
}

/// As it was when it was opened.
fn emptied(part: &Part) -> Part {
    match part {
        Part::Thinking(_) => Part::Thinking(String::new()),
        Part::Text { .. } => Part::Text { text: String::new(), logprobs: Vec::new() },
        Part::Call { id, name, .. } => Part::Call { id: id.clone(), name: name.clone(), arguments: String::new() },
    }
}

fn with(mut place: Value, data: Value) -> Value {
    if let (Some(place), Value::Object(data)) = (place.as_object_mut(), data) {
        place.extend(data);
    }
    place
}

fn usage(running: &Running) -> Value {
    let (input, output) = (running.prompt_token_count(), running.completion_tokens);
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": running.cached_token_count()},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": running.reasoning_tokens},
        "total_tokens": input + output,
    })
}
