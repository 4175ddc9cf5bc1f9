//! From the trace of a sequence to its spans: queue, prefill, decode.

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanKind, Status};

use super::context::SpanContext;
use crate::trace::{Course, Trace};
use forebay_core::report::Decision;
use forebay_core::units::Micros;

/// One span before it is put into OpenTelemetry's form.
pub struct Piece {
    pub context: SpanContext,
    pub kind: SpanKind,
    pub name: String,
    pub began: Micros,
    pub ended: Micros,
    pub attributes: Vec<KeyValue>,
    pub status: Status,
}

/// As far as it came. A sequence that was ended in the queue has no prefill, one without a token no decode.
pub fn of(trace: &Trace) -> Vec<Piece> {
    let (Some(parent), Some((how, ended))) = (trace.origin.span, trace.end()) else { return Vec::new() };
    let Course { begun, first_token, .. } = trace.course;
    let failed = matches!(how, "failed");
    let mut pieces = Vec::new();
    let mut piece = |name: &str, began: Micros, until: Micros, attributes: Vec<KeyValue>| {
        let last = until == ended;
        let mut attributes = attributes;
        attributes.push(KeyValue::new("forebay.sequence", trace.seq.to_string()));
        if last {
            attributes.push(KeyValue::new("gen_ai.response.finish_reason", how));
        }
        pieces.push(Piece {
            context: SpanContext::inside(parent),
            kind: SpanKind::Internal,
            name: name.to_owned(),
            began,
            ended: until,
            attributes,
            status: if last && failed { Status::error("") } else { Status::Unset },
        });
    };
    // Delivered late, a first token may be told of after a step that came later began.
    let begun = begun.map(|at| at.max(trace.origin.received).min(ended));
    piece("queue", trace.origin.received, begun.unwrap_or(ended), queued(trace));
    let Some(begun) = begun else { return pieces };
    let first = first_token.map(|at| at.max(begun).min(ended));
    piece("prefill", begun, first.unwrap_or(ended), prefilled(&trace.course));
    let Some(first) = first else { return pieces };
    piece("decode", first, ended, decoded(&trace.course));
    pieces
}

fn queued(trace: &Trace) -> Vec<KeyValue> {
    let mut attributes = vec![KeyValue::new("forebay.priority", trace.priority.name())];
    for entry in &trace.entries {
        match &entry.decision {
            Decision::Queued { depth, .. } => attributes.push(KeyValue::new("forebay.queue_depth", *depth as i64)),
            Decision::Released { batch, size, strategy, cause, .. } => attributes.extend([
                KeyValue::new("forebay.batch", *batch as i64),
                KeyValue::new("forebay.batch_size", *size as i64),
                KeyValue::new("forebay.strategy", *strategy),
                KeyValue::new("forebay.cause", *cause),
            ]),
            _ => {}
        }
    }
    attributes
}

fn prefilled(course: &Course) -> Vec<KeyValue> {
    vec![
        KeyValue::new("forebay.steps", i64::from(course.prefill_steps)),
        KeyValue::new("forebay.tokens", i64::from(course.prefill_tokens)),
        KeyValue::new("forebay.cached_tokens", i64::from(course.cached_tokens)),
    ]
}

fn decoded(course: &Course) -> Vec<KeyValue> {
    vec![
        KeyValue::new("forebay.steps", i64::from(course.decode_steps)),
        KeyValue::new("forebay.tokens", i64::from(course.tokens)),
        KeyValue::new("forebay.preemptions", i64::from(course.preemptions)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Traces;
    use forebay_core::request::{Origin, Priority, SpanParent};
    use forebay_core::units::SeqId;

    fn traced(live: impl FnOnce(&mut Traces)) -> Vec<(String, u64, u64)> {
        let mut traces = Traces::default();
        let origin =
            Origin { span: Some(SpanParent { trace: 7, span: 9 }), received: Micros(100), ..Origin::default() };
        traces.begin(SeqId(1), origin, Priority::Normal, 8);
        live(&mut traces);
        let ended = traces.end(SeqId(1), "length", Micros(900)).cloned().unwrap();
        let pieces = of(&ended);
        assert!(pieces.iter().all(|piece| piece.context.trace == 7 && piece.context.parent == Some(9)));
        pieces.into_iter().map(|piece| (piece.name, piece.began.0, piece.ended.0)).collect()
    }

    #[test]
    fn phases_follow_each_other_without_gaps() {
        let prefill = Decision::Prefill { from: 0, to: 8 };
        let whole = traced(|traces| {
            traces.step(SeqId(1), &prefill, Micros(300));
            traces.token(SeqId(1), Micros(500));
        });
        let expected = [("queue", 100, 300), ("prefill", 300, 500), ("decode", 500, 900)];
        assert_eq!(whole, expected.map(|(name, from, to)| (name.to_owned(), from, to)));
        let in_prefill = traced(|traces| traces.step(SeqId(1), &prefill, Micros(300)));
        assert_eq!(in_prefill.len(), 2);
        assert_eq!(in_prefill[1], ("prefill".to_owned(), 300, 900));
        assert_eq!(traced(|_| {}), [("queue".to_owned(), 100, 900)]);
    }
}
