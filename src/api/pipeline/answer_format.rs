//! Answers of one choice told as named events, or whole: what `/v1/responses` and `/v1/messages` share.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::response::Response;
use axum::response::sse::Event;
use futures_util::stream::unfold;
use serde::Serialize;

use super::head::Head;
use super::parts::{Change, Parts};
use super::running::{ChoiceEvent, Running};
use super::traces::{SequenceTrace, traces};
use crate::api::request_metrics::StreamFault;
use crate::api::{State, error, sse};
use forebay_core::request::{FinishReason, RequestError};
use forebay_engine::metrics::{Metrics, Route};
use forebay_engine::workers::Pool;

/// How an answer ended.
#[derive(Clone, Debug)]
pub struct End {
    pub reason: FinishReason,
    /// The stop string that ended it.
    pub stop: Option<String>,
    /// With `x-forebay-trace`.
    pub trace: Option<Vec<SequenceTrace>>,
}

/// An event: its name and its data.
pub type Named<E> = (&'static str, E);

/// An endpoint's own format of an answer.
pub trait AnswerFormat: Send + 'static {
    const ROUTE: Route;
    /// The data of an event.
    type Event: Serialize + Send;
    /// The whole answer, as a body.
    type Whole: Serialize;

    fn begin(&mut self, running: &Running) -> Vec<Named<Self::Event>>;
    fn change(&mut self, parts: &Parts, change: Change) -> Vec<Named<Self::Event>>;
    /// The last changes, before the end is told.
    fn close(&mut self, parts: &mut Parts, _reason: FinishReason) -> Vec<Change> {
        parts.close().into_iter().collect()
    }
    fn end(&mut self, parts: &Parts, running: &Running, end: End) -> Vec<Named<Self::Event>>;
    /// In the place of all that would follow.
    fn fail(&mut self, parts: &Parts, error: &RequestError) -> Vec<Named<Self::Event>>;
    /// The whole answer, as a body.
    fn whole(&mut self, parts: &Parts, running: &Running, end: End) -> Self::Whole;
}

/// Waits for the end.
pub async fn whole<T: AnswerFormat>(
    state: &State,
    head: &Head,
    mut running: Running,
    mut format: T,
) -> Result<T::Whole, RequestError> {
    let mut parts = Parts::default();
    let mut ended = None;
    while let Some(event) = running.next().await {
        match event? {
            ChoiceEvent::Prompt(..) => {}
            ChoiceEvent::Text(_, delta) => drop(parts.add(delta)),
            ChoiceEvent::Finished { reason, stop, .. } => ended = Some((reason, stop)),
        }
    }
    let (reason, stop) = ended.ok_or(RequestError::Internal)?;
    drop(format.close(&mut parts, reason));
    let trace = if head.traced { Some(traces(&state.workers, &head.id).await) } else { None };
    Ok(format.whole(&parts, &running, End { reason, stop, trace }))
}

/// A stream under way.
struct Stream<T: AnswerFormat> {
    format: T,
    parts: Parts,
    running: Option<Running>,
    ended: Option<(FinishReason, Option<String>)>,
    ready: VecDeque<Named<T::Event>>,
    workers: Pool,
    /// Of the request, where its trace is wanted.
    traced: Option<String>,
    fault: StreamFault,
    metrics: Arc<Metrics>,
}

/// The response of a stream; an error where there never was a seat.
pub async fn stream<T: AnswerFormat>(
    state: &State,
    head: &Head,
    mut running: Running,
    mut format: T,
) -> Result<Response, RequestError> {
    running.seated(state.stream_hold).await?;
    let fault = StreamFault::default();
    let stream = Stream {
        ready: format.begin(&running).into(),
        format,
        parts: Parts::default(),
        running: Some(running),
        ended: None,
        workers: state.workers.clone(),
        traced: head.traced.then(|| head.id.clone()),
        fault: fault.clone(),
        metrics: state.metrics.clone(),
    };
    let events = unfold(stream, |mut stream| async move {
        let (name, data) = stream.next().await?;
        Some((Event::default().event(name).data(sse::data(&data)), stream))
    });
    let mut response = sse::response(events);
    response.extensions_mut().insert(fault);
    Ok(response)
}

impl<T: AnswerFormat> Stream<T> {
    async fn next(&mut self) -> Option<Named<T::Event>> {
        while self.ready.is_empty() {
            match self.running.as_mut()?.next().await {
                Some(Ok(ChoiceEvent::Prompt(..))) => {}
                Some(Ok(ChoiceEvent::Text(_, delta))) => {
                    let changes = self.parts.add(delta);
                    self.push(changes);
                }
                Some(Ok(ChoiceEvent::Finished { reason, stop, .. })) => self.ended = Some((reason, stop)),
                Some(Err(failed)) => self.fail(&failed),
                None => self.end().await,
            }
        }
        self.ready.pop_front()
    }

    fn push(&mut self, changes: Vec<Change>) {
        for change in changes {
            self.ready.extend(self.format.change(&self.parts, change));
        }
    }

    fn fail(&mut self, failed: &RequestError) {
        self.fault.set();
        self.metrics.error(error::face(failed).code, T::ROUTE);
        self.ready.extend(self.format.fail(&self.parts, failed));
        self.running = None;
    }

    async fn end(&mut self) {
        let (Some(running), Some((reason, stop))) = (self.running.take(), self.ended.take()) else {
            return self.fail(&RequestError::Internal);
        };
        let changes = self.format.close(&mut self.parts, reason);
        self.push(changes);
        let trace = match &self.traced {
            Some(id) => Some(traces(&self.workers, id).await),
            None => None,
        };
        self.ready.extend(self.format.end(&self.parts, &running, End { reason, stop, trace }));
    }
}
