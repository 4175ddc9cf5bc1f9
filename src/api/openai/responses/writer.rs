//! Writes an answer as a response, whole or event by event, all of the same parts.

use super::answer::{
    IncompleteDetails, OutputItem, OutputPart, ReasoningEcho, ResponseAnswer, ResponseEvent, ResponseFault,
    ResponseUsage, TextEcho,
};
use super::echo::Echo;
use crate::api::State;
use crate::api::pipeline::answer_format::{AnswerFormat, End, Named};
use crate::api::pipeline::head::Head;
use crate::api::pipeline::logprobs::token_logprobs;
use crate::api::pipeline::parts::{Change, Part, Parts};
use crate::api::pipeline::running::Running;
use crate::generate::TokenLogprob;
use forebay_clock::unix_seconds;
use forebay_core::request::{FinishReason, RequestError};
use forebay_engine::metrics::Route;

pub struct ResponseWriter {
    id: String,
    /// What the ids of items end with.
    tail: String,
    created: u64,
    model: String,
    echo: Echo,
    /// Drawn with, defaults of the model's makers included.
    temperature: Option<f64>,
    top_p: Option<f64>,
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
            temperature: None,
            top_p: None,
            sequence: 0,
            cut: false,
        }
    }

    fn look_at(&mut self, running: &Running) {
        if let Some(effective) = running.started.first().and_then(|started| started.effective.as_ref()) {
            self.temperature = Some(f64::from(effective.sampling.temperature));
            self.top_p = Some(f64::from(effective.sampling.top_p));
        }
    }

    /// `event` under this name, with the next number.
    fn event(&mut self, name: &'static str, event: ResponseEvent) -> Named<ResponseEvent> {
        let sequence_number = self.sequence;
        self.sequence += 1;
        (name, ResponseEvent { r#type: name, sequence_number, ..event })
    }

    /// An event of the whole.
    fn whole_event(&mut self, name: &'static str, response: ResponseAnswer) -> Named<ResponseEvent> {
        self.event(name, ResponseEvent { response: Some(Box::new(response)), ..ResponseEvent::default() })
    }

    /// An event of an item.
    fn item_event(&mut self, name: &'static str, index: usize, item: OutputItem) -> Named<ResponseEvent> {
        self.event(name, ResponseEvent { output_index: Some(index), item: Some(item), ..ResponseEvent::default() })
    }

    /// The object, without usage.
    fn response(&self, status: &'static str, output: Vec<OutputItem>) -> ResponseAnswer {
        let echo = self.echo.clone();
        ResponseAnswer {
            id: self.id.clone(),
            object: "response",
            created_at: self.created,
            status,
            background: false,
            completed_at: None,
            error: None,
            incomplete_details: None,
            instructions: echo.instructions,
            max_output_tokens: echo.max_output_tokens,
            metadata: echo.metadata,
            model: self.model.clone(),
            output,
            parallel_tool_calls: echo.parallel_tool_calls,
            previous_response_id: None,
            reasoning: ReasoningEcho { effort: echo.effort, summary: None },
            service_tier: echo.service_tier,
            store: false,
            temperature: self.temperature,
            text: TextEcho { format: echo.format },
            tool_choice: echo.tool_choice,
            tools: echo.tools,
            top_logprobs: echo.top_logprobs,
            top_p: self.top_p,
            truncation: "disabled",
            usage: None,
            user: echo.user,
            forebay_trace: None,
        }
    }

    fn ended(&self, parts: &Parts, running: &Running, end: End) -> ResponseAnswer {
        let cut = end.reason == FinishReason::Length;
        let last = parts.list().len().saturating_sub(1);
        let status = |index| if cut && index == last { "incomplete" } else { "completed" };
        let items = parts.list().iter().enumerate().map(|(index, part)| self.item(index, part, status(index)));
        ResponseAnswer {
            completed_at: (!cut).then(unix_seconds),
            incomplete_details: cut.then_some(IncompleteDetails { reason: "max_output_tokens" }),
            usage: Some(ResponseUsage::of(running)),
            forebay_trace: end.trace,
            ..self.response(if cut { "incomplete" } else { "completed" }, items.collect())
        }
    }

    fn item_id(&self, index: usize, part: &Part) -> String {
        let kind = match part {
            Part::Thinking(_) => "rs",
            Part::Text { .. } => "msg",
            Part::Call { .. } => "fc",
        };
        format!("{kind}_{}_{index}", self.tail)
    }

    fn item(&self, index: usize, part: &Part, status: &'static str) -> OutputItem {
        OutputItem::of(part, self.item_id(index, part), status)
    }

    /// An event of a part, with where in the output it belongs and nothing more.
    fn place(&self, index: usize, part: &Part) -> ResponseEvent {
        ResponseEvent {
            item_id: Some(self.item_id(index, part)),
            output_index: Some(index),
            content_index: (!matches!(part, Part::Call { .. })).then_some(0),
            ..ResponseEvent::default()
        }
    }

    fn opened(&mut self, index: usize, part: &Part) -> Vec<Named<ResponseEvent>> {
        let fresh = emptied(part);
        let item = self.item(index, &fresh, "in_progress").without_content();
        let mut events = vec![self.item_event("response.output_item.added", index, item)];
        if let Some(part_added) = OutputPart::of(&fresh) {
            let added = ResponseEvent { part: Some(part_added), ..self.place(index, part) };
            events.push(self.event("response.content_part.added", added));
        }
        events
    }

    fn grew(&mut self, index: usize, part: &Part, delta: String, logprobs: Vec<TokenLogprob>) -> Named<ResponseEvent> {
        let (name, logprobs) = match part {
            Part::Thinking(_) => ("response.reasoning_text.delta", None),
            Part::Text { .. } => ("response.output_text.delta", Some(token_logprobs(logprobs))),
            Part::Call { .. } => ("response.function_call_arguments.delta", None),
        };
        let event = ResponseEvent { delta: Some(delta), logprobs, ..self.place(index, part) };
        self.event(name, event)
    }

    fn closed(&mut self, index: usize, part: &Part) -> Vec<Named<ResponseEvent>> {
        let place = self.place(index, part);
        let mut events = vec![match part {
            Part::Thinking(text) => {
                self.event("response.reasoning_text.done", ResponseEvent { text: Some(text.clone()), ..place })
            }
            Part::Text { text, logprobs } => {
                let (text, logprobs) = (Some(text.clone()), Some(token_logprobs(logprobs.clone())));
                self.event("response.output_text.done", ResponseEvent { text, logprobs, ..place })
            }
            Part::Call { name, arguments, .. } => {
                let (name, arguments) = (Some(name.clone()), Some(arguments.clone()));
                self.event("response.function_call_arguments.done", ResponseEvent { name, arguments, ..place })
            }
        }];
        if let Some(done) = OutputPart::of(part) {
            let done = ResponseEvent { part: Some(done), ..self.place(index, part) };
            events.push(self.event("response.content_part.done", done));
        }
        let item = self.item(index, part, if self.cut { "incomplete" } else { "completed" });
        events.push(self.item_event("response.output_item.done", index, item));
        events
    }
}

impl AnswerFormat for ResponseWriter {
    const ROUTE: Route = Route::Responses;
    type Event = ResponseEvent;
    type Whole = ResponseAnswer;

    fn begin(&mut self, running: &Running) -> Vec<Named<ResponseEvent>> {
        self.look_at(running);
        let response = self.response("in_progress", Vec::new());
        ["response.created", "response.in_progress"].map(|name| self.whole_event(name, response.clone())).into()
    }

    fn change(&mut self, parts: &Parts, change: Change) -> Vec<Named<ResponseEvent>> {
        let part = |index: usize| parts.list().get(index);
        match change {
            Change::Opened(index) => part(index).map_or(Vec::new(), |part| self.opened(index, part)),
            Change::Grew(index, delta, logprobs) => {
                part(index).map(|part| self.grew(index, part, delta, logprobs)).into_iter().collect()
            }
            Change::Closed(index) => part(index).map_or(Vec::new(), |part| self.closed(index, part)),
        }
    }

    fn close(&mut self, parts: &mut Parts, reason: FinishReason) -> Vec<Change> {
        self.cut = reason == FinishReason::Length;
        parts.close_with_words()
    }

    fn end(&mut self, parts: &Parts, running: &Running, end: End) -> Vec<Named<ResponseEvent>> {
        let name = if end.reason == FinishReason::Length { "response.incomplete" } else { "response.completed" };
        let response = self.ended(parts, running, end);
        vec![self.whole_event(name, response)]
    }

    fn fail(&mut self, parts: &Parts, failed: &RequestError) -> Vec<Named<ResponseEvent>> {
        let status = |index| if parts.is_open(index) { "incomplete" } else { "completed" };
        let items = parts.list().iter().enumerate().map(|(index, part)| self.item(index, part, status(index)));
        let error = Some(ResponseFault::of(failed));
        let response = ResponseAnswer { error, ..self.response("failed", items.collect()) };
        vec![self.whole_event("response.failed", response)]
    }

    fn whole(&mut self, parts: &Parts, running: &Running, end: End) -> ResponseAnswer {
        self.look_at(running);
        self.ended(parts, running, end)
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
