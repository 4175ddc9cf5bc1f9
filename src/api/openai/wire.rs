//! What the answers of both endpoints share: identity, usage, finish reasons, `x-ignored-params`, and the frames of a
//! stream around each endpoint's own chunks.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::http::{HeaderValue, Response};
use axum::response::sse::Event;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde_json::{Value, json};

use super::head::Head;
use super::running::{Finished, Running, Said};
use super::sampling::Delivery;
use crate::api::metrics::StreamFault;
use crate::api::{State, error, sse};
use crate::clock::unix_seconds;
use crate::engine::EngineHandle;
use crate::engine::trace::{Trace, TraceFact, TraceLine};
use crate::generate::TextDelta;
use crate::metrics::{Metrics, Route};
use crate::request::FinishReason;
use crate::units::Micros;

/// The fields that all chunks of a stream repeat.
#[derive(Clone, Debug)]
pub struct Identity {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub system_fingerprint: String,
}

impl Identity {
    pub fn new(state: &State, head: &Head, object: &'static str) -> Identity {
        Identity {
            id: head.id.clone(),
            object,
            created: unix_seconds(),
            model: state.generator.model_id().to_owned(),
            system_fingerprint: state.info.system_fingerprint.clone(),
        }
    }

    /// A body or chunk with these choices.
    pub fn wrap(&self, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "object": self.object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.system_fingerprint,
            "choices": choices,
        })
    }
}

pub fn usage(prompt_tokens: usize, completion_tokens: usize) -> Value {
    json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    })
}

pub fn usage_of(running: &Running, choices: &[Finished]) -> Value {
    usage(running.prompt_token_count(), choices.iter().map(|choice| choice.completion_tokens as usize).sum())
}

/// JSON has no infinity; OpenAI writes this for what cannot happen.
pub fn logprob(value: f32) -> f32 {
    if value.is_finite() { value } else { -9999.0 }
}

/// The headers of a completion's answer: what was ignored, and when the first token was expected.
pub fn headers<B>(response: &mut Response<B>, ignored: Vec<String>, clamped: bool, predicted_ttft: Option<Micros>) {
    name_ignored(response, ignored, clamped);
    if let Some(predicted) = predicted_ttft {
        response.headers_mut().insert("x-predicted-ttft-ms", HeaderValue::from(predicted.as_millis()));
    }
}

/// How the sequences of an answer were scheduled, for `x-forebay-trace`. `null` when the engine has gone.
pub async fn trace(engine: &EngineHandle, id: &str) -> Value {
    let traces = engine.traces(id.to_owned()).await.unwrap_or_default();
    traces.iter().map(trace_object).collect()
}

/// Times are microseconds since the request was received.
pub fn trace_object(trace: &Trace) -> Value {
    let fact = |(name, fact): (&'static str, TraceFact)| match fact {
        TraceFact::Number(number) => (name.to_owned(), json!(number)),
        TraceFact::Text(text) => (name.to_owned(), json!(text)),
    };
    let line = |line: TraceLine| {
        let mut object = json!({"at_us": line.at.0, "what": line.what});
        if line.until > line.at {
            object["until_us"] = json!(line.until.0);
        }
        line.facts.into_iter().map(fact).for_each(|(name, value)| object[name] = value);
        object
    };
    json!({
        "sequence": trace.seq.to_string(),
        "priority": trace.priority.name(),
        "events": trace.lines().into_iter().map(line).collect::<Vec<_>>(),
        "events_left_out": trace.dropped,
    })
}

/// Names in `x-ignored-params` what was not acted on. Names come from the client, so they are bounded and made harmless.
pub fn name_ignored<B>(response: &mut Response<B>, mut names: Vec<String>, max_tokens_clamped: bool) {
    const MOST: usize = 16;
    const LONGEST: usize = 64;
    if max_tokens_clamped {
        names.insert(0, "max_tokens".into());
    }
    let harmless = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
    let shown = |name: &String| name.chars().take(LONGEST).map(harmless).collect::<String>();
    let list = names.iter().take(MOST).map(shown).collect::<Vec<_>>().join(",");
    if let (false, Ok(value)) = (list.is_empty(), HeaderValue::try_from(list)) {
        response.headers_mut().insert("x-ignored-params", value);
    }
}

/// An endpoint's own chunks.
pub trait Chunks: Send + 'static {
    /// Sent before anything of any choice.
    fn opening(&mut self, running: &Running) -> Vec<Value>;
    /// `None` where the delta shows nothing that was asked for.
    fn text(&mut self, index: usize, delta: TextDelta) -> Option<Value>;
    fn finish(&mut self, index: usize, reason: FinishReason) -> Value;
}

/// A stream under way.
struct Frames<C> {
    running: Option<Running>,
    identity: Identity,
    chunks: C,
    delivery: Delivery,
    engine: EngineHandle,
    completion_tokens: usize,
    ready: VecDeque<Event>,
    fault: StreamFault,
    metrics: Arc<Metrics>,
    route: Route,
}

/// The response of a stream: opening chunks, text, finish reasons, usage if asked for, `[DONE]`. An error takes the place
/// of what would follow, and the other choices are aborted.
pub fn stream<C: Chunks>(
    state: &State,
    route: Route,
    identity: Identity,
    running: Running,
    chunks: C,
    delivery: Delivery,
) -> axum::response::Response {
    let fault = StreamFault::default();
    let frames = Frames {
        running: Some(running),
        identity,
        chunks,
        delivery,
        engine: state.engine.clone(),
        completion_tokens: 0,
        ready: VecDeque::new(),
        fault: fault.clone(),
        metrics: state.metrics.clone(),
        route,
    };
    let mut response = sse::response(frames.into_stream());
    response.extensions_mut().insert(fault);
    response
}

impl<C: Chunks> Frames<C> {
    fn into_stream(mut self) -> impl Stream<Item = Event> + Send {
        if let Some(running) = &self.running {
            let opening = self.chunks.opening(running);
            opening.into_iter().for_each(|chunk| self.push(vec![chunk]));
        }
        unfold(self, |mut frames| async move { Some((frames.next().await?, frames)) })
    }

    async fn next(&mut self) -> Option<Event> {
        while self.ready.is_empty() {
            match self.running.as_mut()?.next().await {
                Some(Ok(Said::Text(index, delta))) => {
                    if let Some(chunk) = self.chunks.text(index, delta) {
                        self.push(vec![chunk]);
                    }
                }
                Some(Ok(Said::Finished { index, reason, completion_tokens })) => {
                    self.completion_tokens += completion_tokens as usize;
                    let chunk = self.chunks.finish(index, reason);
                    self.push(vec![chunk]);
                }
                Some(Err(failed)) => {
                    self.fault.set();
                    self.metrics.error(error::face(&failed).code, self.route);
                    self.ready.push_back(sse::data(&error::object(&failed)));
                    self.end();
                }
                None => {
                    self.last_chunk().await;
                    self.end();
                }
            }
        }
        self.ready.pop_front()
    }

    /// A chunk; where usage is asked for, it holds `null`.
    fn push(&mut self, choices: Vec<Value>) {
        let mut chunk = self.identity.wrap(choices);
        if self.delivery.usage_chunk {
            chunk["usage"] = Value::Null;
        }
        self.ready.push_back(sse::data(&chunk));
    }

    /// The chunk without choices, with what was asked for about the whole.
    async fn last_chunk(&mut self) {
        if !self.delivery.usage_chunk && !self.delivery.traced {
            return;
        }
        let mut chunk = self.identity.wrap(Vec::new());
        if self.delivery.usage_chunk {
            let prompt = self.running.as_ref().map_or(0, Running::prompt_token_count);
            chunk["usage"] = usage(prompt, self.completion_tokens);
        }
        if self.delivery.traced {
            chunk["forebay_trace"] = trace(&self.engine, &self.identity.id).await;
        }
        self.ready.push_back(sse::data(&chunk));
    }

    fn end(&mut self) {
        self.ready.push_back(sse::done());
        self.running = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_names_are_bounded_and_harmless() {
        let named = |names: Vec<String>, clamped| {
            let mut response = Response::new(());
            name_ignored(&mut response, names, clamped);
            response.headers().get("x-ignored-params").map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(named(vec![], false), None);
        assert_eq!(named(vec!["a".into(), "b\r\nc,é".into()], true).unwrap(), "max_tokens,a,b__c__");
        let many = named(vec!["x".repeat(1000); 100], false).unwrap();
        assert_eq!(many.len(), 16 * 65 - 1);
    }

    #[test]
    fn logprobs_are_always_numbers() {
        assert_eq!([-0.5, f32::NEG_INFINITY, f32::NAN].map(logprob), [-0.5, -9999.0, -9999.0]);
    }
}
