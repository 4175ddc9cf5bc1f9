//! A stream under way: the frames around each endpoint's own chunks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use axum::response::sse::Event;
use futures_util::stream::unfold;
use futures_util::{Stream, StreamExt};
use serde::Serialize;
use utoipa::ToSchema;

use super::head::Head;
use super::running::{ChoiceEvent, Running};
use super::sampling::Delivery;
use super::traces::{SequenceTrace, traces};
use super::usage::{Timings, Usage};
use super::wire::Identity;
use crate::api::request_metrics::StreamFault;
use crate::api::{State, error, sse};
use crate::generate::{TextDelta, TokenLogprob};
use forebay_core::report::Decision;
use forebay_core::request::{FinishReason, RequestError};
use forebay_engine::metrics::{Metrics, Route};
use forebay_engine::trace::Trace;
use forebay_engine::workers::Pool;

/// An endpoint's own chunks.
pub trait Chunks: Send + 'static {
    const ROUTE: Route;
    /// OpenAI's name of a chunk.
    const OBJECT: &'static str;
    /// What a chunk holds of a choice.
    type Choice: Serialize + Send;

    /// Sent before anything of any choice.
    fn opening(&mut self, running: &Running) -> Vec<Self::Choice>;
    /// A prompt's logprobs, before its choice's text.
    fn prompt(&mut self, _index: usize, _logprobs: Vec<TokenLogprob>) -> Option<Self::Choice> {
        None
    }
    /// None where the delta shows nothing that was asked for.
    fn text(&mut self, index: usize, delta: TextDelta) -> Vec<Self::Choice>;
    fn finish(&mut self, index: usize, reason: FinishReason) -> Self::Choice;
}

/// A frame of a stream.
#[derive(Serialize, ToSchema)]
pub struct Chunk<'a, C> {
    id: &'a str,
    /// `chat.completion.chunk` or `text_completion`.
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'a str,
    choices: &'a [C],
    /// With `stream_options`; `null` where it comes at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Usage>)]
    usage: Option<Option<Usage>>,
    /// With the last word of the last choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Timings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_progress: Option<Progress>,
    /// With `x-forebay-trace`, in the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    forebay_trace: Option<Vec<SequenceTrace>>,
}

/// With `return_progress`.
#[derive(Serialize, ToSchema)]
pub struct Progress {
    total: usize,
    cache: usize,
    processed: usize,
    time_ms: u64,
}

impl<'a, C> Chunk<'a, C> {
    /// One with nothing but these choices.
    fn new(identity: &'a Identity, choices: &'a [C]) -> Chunk<'a, C> {
        Chunk {
            id: &identity.id,
            object: identity.object,
            created: identity.created,
            model: &identity.model,
            system_fingerprint: &identity.system_fingerprint,
            choices,
            usage: None,
            timings: None,
            prompt_progress: None,
            forebay_trace: None,
        }
    }
}

/// What a stream does next.
enum Turn {
    /// `None` when all choices have finished.
    Event(Option<Result<ChoiceEvent, RequestError>>),
    /// Nothing was event for a while, and the client wants to know how far the prompt is.
    Tick,
}

/// How many tokens of its sequences' prompts a request has computed, by its traces.
async fn progress(workers: &Pool, id: &str) -> usize {
    let traces = workers.traces(id.to_owned()).await.unwrap_or_default();
    let computed = |trace: &Trace| {
        let to = |decision: &Decision| if let Decision::Prefill { to, .. } = decision { *to as usize } else { 0 };
        trace.entries.iter().map(|entry| to(&entry.decision)).max().unwrap_or(0)
    };
    traces.iter().map(computed).sum()
}

/// Between two looks at how far a prompt is.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// A stream under way.
struct Frames<C> {
    /// The first token has come.
    prompt_done: bool,
    /// Tokens of the prompt, as the client knows it, where `return_progress` asks for it.
    last_progress: Option<usize>,
    running: Option<Running>,
    identity: Identity,
    chunks: C,
    delivery: Delivery,
    workers: Pool,
    unfinished: usize,
    /// Payloads of `data:` lines.
    ready: VecDeque<String>,
    fault: StreamFault,
    metrics: Arc<Metrics>,
    route: Route,
}

/// The response of a stream: opening chunks, text, finish reasons, usage if asked for, `[DONE]`. An error takes the place
/// of what would follow, and the other choices are aborted; the response itself is one where there never was a seat.
pub async fn stream<C: Chunks>(
    state: &State,
    head: &Head,
    mut running: Running,
    chunks: C,
    delivery: Delivery,
) -> Result<Response, RequestError> {
    // Who means to come back for a stream must know at once that there is one.
    if head.conversation.is_none() {
        running.seated(state.stream_hold).await?;
    }
    let fault = StreamFault::default();
    let frames = Frames {
        prompt_done: false,
        last_progress: None,
        unfinished: running.total(),
        running: Some(running),
        identity: Identity::new(state, head, C::OBJECT),
        chunks,
        delivery,
        workers: state.workers.clone(),
        ready: VecDeque::new(),
        fault: fault.clone(),
        metrics: state.metrics.clone(),
        route: C::ROUTE,
    };
    let mut response = match head.conversation.clone() {
        // It goes on when nobody reads it, and counts as running as long.
        Some(id) => sse::response(state.replays.begin(id, &state.clock, frames.into_stream(), head.place())?),
        None => sse::response(frames.into_stream().map(|payload| Event::default().data(payload))),
    };
    response.extensions_mut().insert(fault);
    Ok(response)
}

impl<C: Chunks> Frames<C> {
    fn into_stream(mut self) -> impl Stream<Item = String> + Send {
        if let Some(running) = &self.running {
            let opening = self.chunks.opening(running);
            opening.iter().for_each(|choice| self.push(choice));
        }
        unfold(self, |mut frames| async move { Some((frames.next().await?, frames)) })
    }

    async fn next(&mut self) -> Option<String> {
        while self.ready.is_empty() {
            let event = match self.turn().await? {
                Turn::Event(event) => event,
                Turn::Tick => {
                    let computed = progress(&self.workers, &self.identity.id).await;
                    self.push_progress(computed);
                    continue;
                }
            };
            match event {
                Some(Ok(ChoiceEvent::Prompt(index, logprobs))) => {
                    if let Some(choice) = self.chunks.prompt(index, logprobs) {
                        self.push(&choice);
                    }
                }
                Some(Ok(ChoiceEvent::Text(index, delta))) => {
                    let choices = self.chunks.text(index, delta);
                    choices.iter().for_each(|choice| self.push(choice));
                }
                Some(Ok(ChoiceEvent::Finished { index, reason, .. })) => {
                    self.unfinished -= 1;
                    let choice = self.chunks.finish(index, reason);
                    self.push(&choice);
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

    /// What comes next; `None` when this stream is over.
    async fn turn(&mut self) -> Option<Turn> {
        let running = self.running.as_mut()?;
        if !self.delivery.progress || self.prompt_done {
            return Some(Turn::Event(running.next().await));
        }
        let event = tokio::select! { biased;
            event = running.next() => event,
            () = tokio::time::sleep(PROGRESS_EVERY) => return Some(Turn::Tick),
        };
        self.prompt_done = true;
        self.push_progress(usize::MAX);
        Some(Turn::Event(event))
    }

    /// `computed` tokens of the prompts of all choices.
    fn push_progress(&mut self, computed: usize) {
        let Some(running) = &self.running else { return };
        let total = running.prompt_token_count();
        let processed = (computed / running.choices).min(total);
        // A prompt that waits, for a place or for others, has nothing new to tell.
        if self.last_progress.replace(processed) == Some(processed) {
            return;
        }
        let time_ms = running.times().prompt.as_millis();
        let cache = running.cached_token_count();
        let progress = Progress { total, cache, processed, time_ms };
        let chunk = Chunk::<C::Choice> { prompt_progress: Some(progress), ..Chunk::new(&self.identity, &[]) };
        self.ready.push_back(sse::data(&chunk));
    }

    /// A chunk; where usage is asked for, it holds `null`.
    fn push(&mut self, choice: &C::Choice) {
        let mut chunk = Chunk::new(&self.identity, std::slice::from_ref(choice));
        chunk.usage = match &self.running {
            Some(running) if self.delivery.continuous_usage => Some(Some(Usage::of(running))),
            _ if self.delivery.usage_chunk => Some(None),
            _ => None,
        };
        // With the last word of the last choice, where llama-server has them.
        chunk.timings = self.running.as_ref().filter(|_| self.unfinished == 0).map(Timings::of);
        let payload = sse::data(&chunk);
        self.ready.push_back(payload);
    }

    /// The chunk without choices, with what was asked for about the whole.
    async fn last_chunk(&mut self) {
        if !self.delivery.usage_chunk && !self.delivery.traced {
            return;
        }
        let forebay_trace = match self.delivery.traced {
            true => Some(traces(&self.workers, &self.identity.id).await),
            false => None,
        };
        let usage = self.delivery.usage_chunk.then(|| self.running.as_ref().map(Usage::of));
        let chunk = Chunk::<C::Choice> { usage, forebay_trace, ..Chunk::new(&self.identity, &[]) };
        let payload = sse::data(&chunk);
        self.ready.push_back(payload);
    }

    fn end(&mut self) {
        self.ready.push_back(sse::DONE.to_owned());
        self.running = None;
    }
}
