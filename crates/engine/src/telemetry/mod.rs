//! Spans of requests, for OpenTelemetry collectors: one for the request, and inside it queue, prefill and decode of each of its
//! sequences, made of the trace that the engine keeps anyway.
//!
//! ```text
//! api: traceparent ─▶ Telemetry::enter ─▶ SpanContext ─▶ Origin ─▶ engine ─ ended Trace ─▶ Export (bounded) ─┐
//!  └─ the answer's last byte ─▶ Telemetry::request ─┐                                    Telemetry::follow ◀┘
//!                                    BatchSpanProcessor (bounded queue, thread of its own) ─▶ otlp.rs: HTTP
//! ```
//! Off unless an endpoint is configured. Nothing waits for it: what does not fit a queue is left out and counted.

mod config;
mod context;
mod otlp;
mod pieces;
mod spans;

pub use config::{Config, settings};
pub use context::SpanContext;
pub use otlp::TelemetryError;
pub use spans::{Answered, Spans, Telemetry};
