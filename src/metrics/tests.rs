//! The text that scrapers get.

use super::*;
use crate::report::StepFacts;

fn value(text: &str, series: &str) -> f64 {
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with(&format!("{series} "))).collect();
    assert_eq!(lines.len(), 1, "exactly one {series} in\n{text}");
    lines[0].rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

#[test]
fn every_admitted_sequence_is_live_or_ended() {
    let metrics = Metrics::new();
    metrics.admitted(5, 40);
    metrics.finished(FinishReason::Stop, Micros(1));
    metrics.finished(FinishReason::Length, Micros(1));
    metrics.finished(FinishReason::Abort, Micros(1));
    metrics.failed();
    let text = metrics.render();
    let ended: f64 = ["stop", "length", "cancelled", "failed"]
        .iter()
        .map(|outcome| value(&text, &format!("forebay_sequences_ended_total{{outcome=\"{outcome}\"}}")))
        .sum();
    let (admitted, live) = (value(&text, "forebay_sequences_admitted_total"), value(&text, "forebay_sequences_live"));
    assert_eq!((admitted, ended, live), (5.0, 4.0, 1.0));
    assert_eq!(value(&text, "vllm:prompt_tokens_total"), 40.0);
}

#[test]
fn routers_find_vllms_gauges_once_each() {
    let metrics = Metrics::new();
    metrics.state(&Snapshot {
        queued: 2,
        waiting: 1,
        running: 4,
        blocks_total: 8,
        blocks_used: 6,
        ..Snapshot::default()
    });
    let text = metrics.render();
    assert_eq!(value(&text, "vllm:num_requests_running"), 4.0);
    assert_eq!(value(&text, "vllm:num_requests_waiting"), 3.0);
    assert_eq!(value(&text, "vllm:kv_cache_usage_perc"), 0.75);
}

#[test]
fn steps_and_latencies_are_counted() {
    let metrics = Metrics::new();
    metrics.first_token(Micros::from_millis(30));
    metrics.next_token(Micros::from_millis(20));
    let facts = StepFacts { sequences: 3, prefill_tokens: 7, decode_tokens: 2, preempted: 1, rerun: true };
    metrics.steps(&StepReport { steps: vec![facts], ..StepReport::default() });
    let text = metrics.render();
    assert_eq!(value(&text, "vllm:time_to_first_token_seconds_count"), 1.0);
    assert_eq!(value(&text, "vllm:time_to_first_token_seconds_bucket{le=\"0.02\"}"), 0.0);
    assert_eq!(value(&text, "vllm:time_to_first_token_seconds_bucket{le=\"0.04\"}"), 1.0);
    assert_eq!(value(&text, "vllm:inter_token_latency_seconds_sum"), 0.02);
    assert_eq!(value(&text, "batcher_batch_size_sum"), 3.0);
    assert_eq!(value(&text, "forebay_step_tokens_total{kind=\"prefill\"}"), 7.0);
    assert_eq!(value(&text, "forebay_step_reruns_total"), 1.0);
}
