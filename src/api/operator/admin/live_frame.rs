//! A frame of the dashboard's stream.

use serde::Serialize;
use utoipa::ToSchema;

use super::block_map::BlockMap;
use super::requests::LiveSequence;
use super::state::AdminState;
use crate::api::operator::measured::Measures;
use forebay_core::report::Decision;
use forebay_core::units::Micros;
use forebay_engine::phases::{Phase, phases};
use forebay_engine::stats::Recent;
use forebay_engine::trace::{Entry, Trace};

/// Everything that the dashboard shows.
#[derive(Serialize, ToSchema)]
pub struct LiveFrame {
    /// Milliseconds since 1970.
    pub at: i64,
    /// As `/metrics/json` has them.
    pub metrics: Measures,
    /// As `/admin/state` has it.
    pub engine: AdminState,
    /// Of each loop; `null` before the first answered.
    #[schema(required = true)]
    pub blocks: Option<Vec<BlockMap>>,
    /// The newest: live ones, then ended ones.
    pub requests: Vec<Timeline>,
}

/// A sequence and what it spent its time on; times are in microseconds.
#[derive(Serialize, ToSchema)]
pub struct Timeline {
    #[serde(flatten)]
    sequence: TimelineSequence,
    /// How it ended; `null` while it is live.
    #[schema(required = true)]
    ended: Option<&'static str>,
    received_ago_us: u64,
    #[schema(required = true)]
    lasted_us: Option<u64>,
    #[schema(required = true)]
    cached_tokens: Option<usize>,
    /// From queued to the first token, as it was predicted when it was queued; `null` before a step's cost is known.
    #[schema(required = true)]
    predicted_ttft_us: Option<u64>,
    /// The same, as it came; `null` before.
    #[schema(required = true)]
    ttft_us: Option<u64>,
    preemptions: usize,
    /// Each an array: what it was spent on, from when and until when since the request was received, and what it waited for.
    #[schema(value_type = Vec<Vec<Value>>)]
    phases: Vec<(&'static str, u64, u64, Option<String>)>,
}

/// What `/admin/requests` tells of live ones, and for ended ones the same as far as it is known.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum TimelineSequence {
    Live(Box<LiveSequence>),
    Ended(EndedSequence),
}

#[derive(Serialize, ToSchema)]
pub struct EndedSequence {
    id: String,
    sequence: String,
    /// `ended`.
    state: &'static str,
    priority: &'static str,
    tenant: String,
    prompt_tokens: u32,
    generated_tokens: u32,
}

impl Timeline {
    pub fn of(recent: &Recent) -> Timeline {
        let trace = &recent.trace;
        let spans = phases(trace, recent.now);
        let preempted = |entry: &&Entry| matches!(entry.decision, Decision::Preempted { .. });
        Timeline {
            sequence: TimelineSequence::of(recent),
            ended: trace.entries.last().and_then(ended),
            received_ago_us: recent.now.since(trace.origin.received).0,
            lasted_us: spans.last().map(|span| span.until.0),
            cached_tokens: trace.entries.iter().find_map(cached_tokens),
            predicted_ttft_us: trace.entries.iter().find_map(predicted_ttft).map(|predicted| predicted.0),
            ttft_us: ttft(trace).map(|ttft| ttft.0),
            preemptions: trace.entries.iter().filter(preempted).count(),
            phases: spans.into_iter().map(phase).collect(),
        }
    }
}

fn ended(last: &Entry) -> Option<&'static str> {
    match last.decision {
        Decision::Ended { how } => Some(how),
        _ => None,
    }
}

fn cached_tokens(entry: &Entry) -> Option<usize> {
    match entry.decision {
        Decision::Admitted { cached_tokens, .. } => Some(cached_tokens),
        _ => None,
    }
}

fn predicted_ttft(entry: &Entry) -> Option<Micros> {
    match entry.decision {
        Decision::Queued { predicted_ttft, .. } => predicted_ttft,
        _ => None,
    }
}

fn ttft(trace: &Trace) -> Option<Micros> {
    let at = |wanted: fn(&Decision) -> bool| trace.entries.iter().find(|entry| wanted(&entry.decision)).map(|e| e.at);
    let queued = at(|decision| matches!(decision, Decision::Queued { .. }))?;
    Some(at(|decision| matches!(decision, Decision::FirstToken))?.since(queued))
}

fn phase(span: Phase) -> (&'static str, u64, u64, Option<String>) {
    (span.doing.name(), span.from.0, span.until.0, span.cause)
}

impl TimelineSequence {
    fn of(recent: &Recent) -> TimelineSequence {
        match &recent.live {
            Some(live) => TimelineSequence::Live(Box::new(LiveSequence::of(live))),
            None => TimelineSequence::Ended(EndedSequence::of(&recent.trace)),
        }
    }
}

impl EndedSequence {
    fn of(trace: &Trace) -> EndedSequence {
        EndedSequence {
            id: trace.origin.id.to_string(),
            sequence: trace.seq.to_string(),
            state: "ended",
            priority: trace.priority.name(),
            tenant: trace.origin.tenant.to_string(),
            prompt_tokens: trace.prompt_tokens,
            generated_tokens: trace.course.tokens,
        }
    }
}
