//! What operators read: typed handles, resolved once, and their text form.
//!
//! Engine and api call the methods below with facts; nobody else knows names or labels. Label sets are closed, so the
//! number of series has a bound. What vLLM's dashboards and routers read is given under its names too (`prometheus.rs`).

mod prometheus;

use std::sync::Arc;

use ::prometheus::{Gauge, Histogram, IntCounter, IntCounterVec, IntGauge, Registry};

use crate::report::{Snapshot, StepReport};
use crate::request::FinishReason;
use crate::units::Micros;

use self::prometheus::{counter, counter_with, gauge, histogram, ratio};

/// Seconds, as vLLM buckets them, so that its dashboards work unchanged.
const TTFT_BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const ITL_BUCKETS: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const LATENCY_BUCKETS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
const BATCH_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

pub struct Metrics {
    registry: Registry,
    http_requests: IntCounterVec,
    errors: IntCounterVec,
    panics: IntCounter,
    admitted: IntCounter,
    ended_stop: IntCounter,
    ended_length: IntCounter,
    ended_cancelled: IntCounter,
    ended_failed: IntCounter,
    live: IntGauge,
    prompt_tokens: IntCounter,
    generation_tokens: IntCounter,
    preemptions: IntCounter,
    running: IntGauge,
    waiting: IntGauge,
    kv_usage: Gauge,
    kv_blocks: IntGauge,
    kv_blocks_used: IntGauge,
    steps: IntCounter,
    step_reruns: IntCounter,
    prefill_tokens: IntCounter,
    decode_tokens: IntCounter,
    batch_size: Histogram,
    ttft: Histogram,
    itl: Histogram,
    latency: Histogram,
}

impl Metrics {
    pub fn new() -> Arc<Metrics> {
        let registry = prometheus::registry();
        let r = &registry;
        let ended = counter_with(r, "forebay_sequences_ended_total", "Sequences that ended, by outcome", &["outcome"]);
        let computed = counter_with(r, "forebay_step_tokens_total", "Tokens computed, by kind", &["kind"]);
        Arc::new(Metrics {
            http_requests: counter_with(r, "forebay_http_requests_total", "Requests answered", &["route", "status"]),
            errors: counter_with(r, "forebay_errors_total", "Errors told to clients", &["code", "route"]),
            panics: counter(r, "forebay_panics_total", "Panics caught at a boundary"),
            admitted: counter(r, "forebay_sequences_admitted_total", "Sequences acknowledged to clients"),
            ended_stop: ended.with_label_values(&["stop"]),
            ended_length: ended.with_label_values(&["length"]),
            ended_cancelled: ended.with_label_values(&["cancelled"]),
            ended_failed: ended.with_label_values(&["failed"]),
            live: gauge(r, "forebay_sequences_live", "Sequences acknowledged and not ended"),
            prompt_tokens: counter(r, "forebay_prompt_tokens_total", "Prompt tokens of acknowledged sequences"),
            generation_tokens: counter(r, "forebay_generation_tokens_total", "Tokens drawn"),
            preemptions: counter(r, "forebay_preemptions_total", "Sequences preempted"),
            running: gauge(r, "forebay_requests_running", "Sequences with blocks in the KV cache"),
            waiting: gauge(r, "forebay_requests_waiting", "Sequences queued or waiting for blocks"),
            kv_usage: ratio(r, "forebay_kv_cache_usage_ratio", "Used part of the KV cache's blocks, 0 to 1"),
            kv_blocks: gauge(r, "forebay_kv_blocks", "Blocks of the KV cache"),
            kv_blocks_used: gauge(r, "forebay_kv_blocks_used", "Blocks of the KV cache in use"),
            steps: counter(r, "forebay_steps_total", "Forward passes"),
            step_reruns: counter(r, "forebay_step_reruns_total", "Steps that failed whole and were rerun one by one"),
            prefill_tokens: computed.with_label_values(&["prefill"]),
            decode_tokens: computed.with_label_values(&["decode"]),
            batch_size: histogram(r, "batcher_batch_size", "Sequences per step", BATCH_BUCKETS),
            ttft: histogram(r, "forebay_time_to_first_token_seconds", "Submission to first token", TTFT_BUCKETS),
            itl: histogram(r, "forebay_inter_token_latency_seconds", "Token to next token", ITL_BUCKETS),
            latency: histogram(r, "forebay_e2e_request_latency_seconds", "Submission to end", LATENCY_BUCKETS),
            registry,
        })
    }

    /// A group was acknowledged. At any time admitted = ended (all outcomes) + live.
    pub fn admitted(&self, sequences: usize, prompt_tokens: usize) {
        self.admitted.inc_by(sequences as u64);
        self.live.add(sequences as i64);
        self.prompt_tokens.inc_by(prompt_tokens as u64);
    }

    pub fn first_token(&self, after: Micros) {
        self.generation_tokens.inc();
        self.ttft.observe(after.as_secs_f64());
    }

    pub fn next_token(&self, after: Micros) {
        self.generation_tokens.inc();
        self.itl.observe(after.as_secs_f64());
    }

    pub fn finished(&self, reason: FinishReason, after: Micros) {
        self.live.dec();
        self.latency.observe(after.as_secs_f64());
        match reason {
            FinishReason::Stop => self.ended_stop.inc(),
            FinishReason::Length => self.ended_length.inc(),
            FinishReason::Abort => self.ended_cancelled.inc(),
        }
    }

    pub fn failed(&self) {
        self.live.dec();
        self.ended_failed.inc();
    }

    pub fn steps(&self, report: &StepReport) {
        for facts in &report.steps {
            self.steps.inc();
            self.step_reruns.inc_by(u64::from(facts.rerun));
            self.prefill_tokens.inc_by(facts.prefill_tokens as u64);
            self.decode_tokens.inc_by(facts.decode_tokens as u64);
            self.preemptions.inc_by(facts.preempted as u64);
            self.batch_size.observe(facts.sequences as f64);
        }
    }

    pub fn state(&self, snapshot: &Snapshot) {
        self.running.set(snapshot.running as i64);
        self.waiting.set((snapshot.queued + snapshot.waiting) as i64);
        self.kv_blocks.set(snapshot.blocks_total as i64);
        self.kv_blocks_used.set(snapshot.blocks_used as i64);
        self.kv_usage.set(snapshot.blocks_used as f64 / snapshot.blocks_total.max(1) as f64);
    }

    /// `route` is one of the router's own patterns, never a path from outside.
    pub fn answered(&self, route: &'static str, status: u16) {
        self.http_requests.with_label_values(&[route, &status.to_string()]).inc();
    }

    /// `code` as in the error object; `route` as in [`Metrics::answered`].
    pub fn refused(&self, code: &'static str, route: &'static str) {
        self.errors.with_label_values(&[code, route]).inc();
    }

    pub fn panicked(&self) {
        self.panics.inc();
    }

    /// Prometheus' text format, version 0.0.4.
    pub fn render(&self) -> String {
        prometheus::render(&self.registry)
    }
}

#[cfg(test)]
mod tests;
