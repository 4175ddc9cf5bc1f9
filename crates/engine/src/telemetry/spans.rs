//! Spans of requests and of the sequences that end, on their way to the exporter.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{SpanId, SpanKind, Status, TraceFlags, TraceId};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::export::Export;
use crate::trace::Trace;
use forebay_clock::Clock;
use forebay_core::units::Micros;

use super::config::Config;
use super::context::SpanContext;
use super::otlp::{self, TelemetryError};
use super::pieces::{self, Piece};

/// Ended sequences that may wait to be made spans of.
const TRACES: usize = 1_024;
/// At the end, for what is still on its way.
const LAST_EXPORT: Duration = Duration::from_secs(2);

/// Makes spans. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Telemetry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
    sample: f64,
    /// The wall clock when ours was 0.
    epoch: SystemTime,
}

/// An HTTP request that has been answered.
#[derive(Clone, Debug)]
pub struct Answered<'a> {
    pub began: Micros,
    pub ended: Micros,
    pub method: &'a str,
    /// Of the router, not of the client.
    pub route: &'a str,
    /// 0 where the client left before there was one.
    pub status: u16,
    pub request_id: &'a str,
    /// The answer's own id.
    pub id: Option<&'a str>,
    pub prompt_tokens: Option<u32>,
    pub completion_tokens: Option<u32>,
    pub finish_reason: Option<&'static str>,
    pub failed: bool,
}

/// Who makes spans, who gives it traces, and those.
pub type Spans = (Telemetry, Export, mpsc::Receiver<Arc<Trace>>);

impl Telemetry {
    /// What takes ended traces from the engine loops, and who makes spans of all; `None` where nobody wants them. Spans are
    /// sent on `runtime`.
    pub fn start(config: &Config, clock: &Clock, runtime: &Handle) -> Result<Option<Spans>, TelemetryError> {
        let Some(exporter) = otlp::exporter(config.endpoint.as_deref(), runtime)? else { return Ok(None) };
        let mut processor = BatchSpanProcessor::builder(exporter).build();
        processor.set_resource(&otlp::resource());
        let now = Duration::from_micros(clock.now().0);
        let wall = UNIX_EPOCH + Duration::from_millis(clock.unix_millis().max(0) as u64);
        let inner = Inner {
            processor,
            scope: InstrumentationScope::builder("forebay").with_version(env!("CARGO_PKG_VERSION")).build(),
            sample: otlp::sample(config.sample),
            epoch: wall.checked_sub(now).unwrap_or(UNIX_EPOCH),
        };
        let (export, ended) = Export::new(TRACES);
        Ok(Some((Telemetry(Arc::new(inner)), export, ended)))
    }

    /// The span of a request that comes with these headers, or begins a trace of its own.
    pub fn enter(&self, traceparent: Option<&str>, tracestate: Option<&str>) -> SpanContext {
        SpanContext::enter(traceparent, tracestate, self.0.sample)
    }

    /// The request has been answered.
    pub fn request(&self, context: &SpanContext, answered: &Answered) {
        if !context.sampled {
            return;
        }
        let Answered { method, route, status, .. } = answered;
        let mut attributes = vec![
            KeyValue::new("http.request.method", (*method).to_owned()),
            KeyValue::new("http.route", (*route).to_owned()),
            KeyValue::new("forebay.request_id", answered.request_id.to_owned()),
        ];
        if *status > 0 {
            attributes.push(KeyValue::new("http.response.status_code", i64::from(*status)));
        }
        attributes.extend(answered.id.map(|id| KeyValue::new("gen_ai.response.id", id.to_owned())));
        let tokens = |name, count: Option<u32>| count.map(|count| KeyValue::new(name, i64::from(count)));
        attributes.extend(tokens("gen_ai.usage.input_tokens", answered.prompt_tokens));
        attributes.extend(tokens("gen_ai.usage.output_tokens", answered.completion_tokens));
        attributes.extend(answered.finish_reason.map(|why| KeyValue::new("gen_ai.response.finish_reason", why)));
        self.end(Piece {
            context: context.clone(),
            kind: SpanKind::Server,
            name: format!("{method} {route}"),
            began: answered.began,
            ended: answered.ended,
            attributes,
            status: if answered.failed { Status::error("") } else { Status::Unset },
        });
    }

    /// Makes spans of the sequences that end, until `stop` completes and of all that have ended by then.
    pub async fn follow(self, mut ended: mpsc::Receiver<Arc<Trace>>, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let make = |trace: Arc<Trace>| pieces::of(&trace).into_iter().for_each(|piece| self.end(piece));
        loop {
            tokio::select! { biased;
                Some(trace) = ended.recv() => make(trace),
                () = &mut stop => break,
            }
        }
        while let Ok(trace) = ended.try_recv() {
            make(trace);
        }
    }

    /// Sends what is still there. Waits for no longer than [`LAST_EXPORT`].
    pub async fn close(self, export: &Export) {
        if export.lost() > 0 {
            tracing::warn!(
                event = "spans_lost",
                sequences = export.lost(),
                "sequences ended faster than spans were made"
            );
        }
        let closing = tokio::task::spawn_blocking(move || self.0.processor.shutdown_with_timeout(LAST_EXPORT));
        match tokio::time::timeout(LAST_EXPORT + LAST_EXPORT, closing).await {
            Ok(Ok(Ok(()))) => {}
            _ => tracing::warn!(event = "spans_not_sent", "the last spans were not sent"),
        }
    }

    /// Handed to a bounded queue; where that is full the span is left out.
    fn end(&self, piece: Piece) {
        let Piece { context, kind, name, began, ended, attributes, status } = piece;
        let at = |at: Micros| self.0.epoch + Duration::from_micros(at.0);
        self.0.processor.on_end(SpanData {
            span_context: opentelemetry::trace::SpanContext::new(
                TraceId::from_bytes(context.trace.to_be_bytes()),
                SpanId::from_bytes(context.span.to_be_bytes()),
                TraceFlags::SAMPLED,
                false,
                context.state,
            ),
            parent_span_id: context.parent.map_or(SpanId::INVALID, |parent| SpanId::from_bytes(parent.to_be_bytes())),
            parent_span_is_remote: context.parent_is_remote,
            span_kind: kind,
            name: name.into(),
            start_time: at(began),
            end_time: at(ended.max(began)),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: self.0.scope.clone(),
        });
    }
}
