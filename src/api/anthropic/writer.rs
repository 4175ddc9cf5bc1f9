//! Writes an answer as a message, whole or event by event, all of the same parts.

use super::answer::{
    BlockDelta, ContentBlock, EventDelta, MessageAnswer, MessageEnd, MessageEvent, MessageUsage, stop_reason,
};
use super::error::MessageErrorObject;
use crate::api::State;
use crate::api::pipeline::answer_format::{AnswerFormat, End, Named};
use crate::api::pipeline::head::Head;
use crate::api::pipeline::parts::{Change, Parts};
use crate::api::pipeline::running::Running;
use forebay_core::request::RequestError;
use forebay_engine::metrics::Route;

pub struct MessageWriter {
    id: String,
    model: String,
}

impl MessageWriter {
    pub fn new(state: &State, head: &Head) -> MessageWriter {
        MessageWriter { id: head.id.clone(), model: state.generator.name(head.adapter).to_owned() }
    }

    fn message(&self, content: Vec<ContentBlock>, end: Option<End>, usage: MessageUsage) -> MessageAnswer {
        let stop_reason = end.as_ref().map(stop_reason);
        let (stop_sequence, forebay_trace) = end.map_or((None, None), |end| (end.stop, end.trace));
        MessageAnswer {
            id: self.id.clone(),
            r#type: "message",
            role: "assistant",
            model: self.model.clone(),
            content,
            stop_reason,
            stop_sequence,
            usage,
            forebay_trace,
        }
    }
}

/// An event whose data has its name as type.
fn named(event: MessageEvent) -> Named<MessageEvent> {
    (event.r#type, event)
}

impl AnswerFormat for MessageWriter {
    const ROUTE: Route = Route::Messages;
    type Event = MessageEvent;
    type Whole = MessageAnswer;

    /// What the cache holds is known later; the last usage counts.
    fn begin(&mut self, running: &Running) -> Vec<Named<MessageEvent>> {
        let message = Some(self.message(Vec::new(), None, MessageUsage::of(running)));
        let start = MessageEvent { message, r#type: "message_start", ..MessageEvent::default() };
        vec![named(start), named(MessageEvent { r#type: "ping", ..MessageEvent::default() })]
    }

    fn change(&mut self, parts: &Parts, change: Change) -> Vec<Named<MessageEvent>> {
        let part = |index: usize| parts.list().get(index);
        let event = match change {
            Change::Opened(index) => part(index).map(|part| MessageEvent {
                index: Some(index),
                content_block: Some(ContentBlock::empty(part)),
                r#type: "content_block_start",
                ..MessageEvent::default()
            }),
            Change::Grew(index, text, _) => part(index).map(|part| MessageEvent {
                index: Some(index),
                delta: Some(EventDelta::Block(BlockDelta::of(part, text))),
                r#type: "content_block_delta",
                ..MessageEvent::default()
            }),
            Change::Closed(index) => {
                Some(MessageEvent { index: Some(index), r#type: "content_block_stop", ..MessageEvent::default() })
            }
        };
        event.map(named).into_iter().collect()
    }

    fn end(&mut self, _parts: &Parts, running: &Running, end: End) -> Vec<Named<MessageEvent>> {
        let delta = MessageEnd { stop_reason: stop_reason(&end), stop_sequence: end.stop };
        let last = MessageEvent {
            delta: Some(EventDelta::Message(delta)),
            usage: Some(MessageUsage::of(running)),
            forebay_trace: end.trace,
            r#type: "message_delta",
            ..MessageEvent::default()
        };
        vec![named(last), named(MessageEvent { r#type: "message_stop", ..MessageEvent::default() })]
    }

    fn fail(&mut self, _parts: &Parts, failed: &RequestError) -> Vec<Named<MessageEvent>> {
        let error = Some(MessageErrorObject::of(failed));
        vec![named(MessageEvent { error, r#type: "error", ..MessageEvent::default() })]
    }

    fn whole(&mut self, parts: &Parts, running: &Running, end: End) -> MessageAnswer {
        let content = parts.list().iter().map(ContentBlock::of).collect();
        self.message(content, Some(end), MessageUsage::of(running))
    }
}
