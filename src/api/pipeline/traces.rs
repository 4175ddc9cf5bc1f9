//! How the sequences of an answer were scheduled, for `x-forebay-trace` and for the operator.

use serde::Serialize;
use utoipa::ToSchema;

use super::ordered::Ordered;
use forebay_engine::trace::{Trace, TraceFact, TraceLine};
use forebay_engine::workers::Pool;

/// How one sequence was scheduled.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SequenceTrace {
    sequence: String,
    priority: &'static str,
    events: Vec<SequenceEvent>,
    events_left_out: u32,
    steps: SequenceSteps,
    /// That were drawn.
    tokens: u32,
}

/// One decision. Times are microseconds since the request was received.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SequenceEvent {
    at_us: u64,
    what: &'static str,
    /// Of what held for a while.
    #[serde(skip_serializing_if = "Option::is_none")]
    until_us: Option<u64>,
    /// Numbers and texts of the decision's own.
    #[serde(flatten)]
    #[schema(value_type = BTreeMap<String, SequenceFact>)]
    facts: Ordered<SequenceFact>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum SequenceFact {
    Number(u64),
    Text(String),
}

/// Forward passes that computed some of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SequenceSteps {
    prefill: u32,
    decode: u32,
}

/// The traces of a request's sequences; none when the engine has gone.
pub async fn traces(workers: &Pool, id: &str) -> Vec<SequenceTrace> {
    let traces = workers.traces(id.to_owned()).await.unwrap_or_default();
    traces.iter().map(SequenceTrace::of).collect()
}

impl SequenceTrace {
    pub fn of(trace: &Trace) -> SequenceTrace {
        SequenceTrace {
            sequence: trace.seq.to_string(),
            priority: trace.priority.name(),
            events: trace.lines().into_iter().map(SequenceEvent::of).collect(),
            events_left_out: trace.dropped,
            steps: SequenceSteps { prefill: trace.course.prefill_steps, decode: trace.course.decode_steps },
            tokens: trace.course.tokens,
        }
    }
}

impl SequenceEvent {
    fn of(line: TraceLine) -> SequenceEvent {
        let fact = |(name, fact): (&'static str, TraceFact)| match fact {
            TraceFact::Number(number) => (name.to_owned(), SequenceFact::Number(number)),
            TraceFact::Text(text) => (name.to_owned(), SequenceFact::Text(text)),
        };
        SequenceEvent {
            at_us: line.at.0,
            what: line.what,
            until_us: (line.until > line.at).then_some(line.until.0),
            facts: line.facts.into_iter().map(fact).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::units::Micros;

    #[test]
    fn facts_stand_beside_what_happened() {
        let facts = vec![("batch", TraceFact::Number(3)), ("cause", TraceFact::Text("full".into()))];
        let line = TraceLine { at: Micros(5), until: Micros(5), what: "released", facts };
        let text = |line| serde_json::to_string(&SequenceEvent::of(line)).unwrap();
        assert_eq!(text(line.clone()), r#"{"at_us":5,"what":"released","batch":3,"cause":"full"}"#);
        let held = TraceLine { until: Micros(9), facts: Vec::new(), ..line };
        assert_eq!(text(held), r#"{"at_us":5,"what":"released","until_us":9}"#);
    }
}
