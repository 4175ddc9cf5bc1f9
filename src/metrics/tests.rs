//! Series as a scraper sees them.

use super::*;
use crate::report::StepFacts;

fn value(metrics: &Metrics, series: &str) -> f64 {
    let text = metrics.render();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let value = lines.next().unwrap_or_else(|| panic!("no {series} in\n{text}"));
    assert!(lines.next().is_none(), "{series} has two lines");
    value.parse().unwrap()
}

#[test]
fn sequences_are_conserved() {
    let metrics = Metrics::new();
    let latency = Micros::from_millis(5);
    metrics.admitted(6, 60);
    metrics.finished(FinishReason::Stop, latency, Micros(7));
    metrics.finished(FinishReason::Length, latency, Micros(7));
    metrics.finished(FinishReason::Abort, latency, Micros(7));
    metrics.failed();
    let of = |series| value(&metrics, series);
    let finished = of("forebay_sequences_finished_total{finished_reason=\"stop\"}")
        + of("forebay_sequences_finished_total{finished_reason=\"length\"}");
    let ended = finished + of("forebay_sequences_cancelled_total") + of("forebay_sequences_failed_total");
    assert_eq!(ended, 4.0);
    assert_eq!(of("forebay_sequences_admitted_total"), ended + of("forebay_sequences_live"));
    assert_eq!(of("forebay_prompt_tokens_total"), 60.0);
    assert_eq!(of("forebay_e2e_request_latency_seconds_count"), 2.0, "cancelled ones have no latency");
}

#[test]
fn vllm_gauges_exist_from_the_start_with_one_series_each() {
    let metrics = Metrics::new();
    let names = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"];
    for name in names {
        assert_eq!(value(&metrics, name), 0.0);
    }
    metrics.state(
        &Snapshot { queued: 2, waiting: 1, running: 5, blocks_total: 8, blocks_used: 2, ..Snapshot::default() },
        16,
    );
    assert_eq!(names.map(|name| value(&metrics, name)), [5.0, 3.0, 0.25]);
    assert_eq!(value(&metrics, "forebay_kv_cache_usage_perc"), 0.25);
}

#[test]
fn latencies_tokens_and_steps_are_counted_under_both_names() {
    let metrics = Metrics::new();
    metrics.first_token(Micros::from_millis(30), Some(Micros::from_millis(50)), Micros(7));
    metrics.next_token(Micros::from_millis(12), Micros(7));
    metrics.next_token(Micros::from_millis(12), Micros(7));
    let facts = StepFacts { sequences: 3, prefill_tokens: 10, decode_tokens: 2, preempted: 1, ..StepFacts::default() };
    metrics.steps(&StepReport { steps: vec![facts.clone(), facts], ..StepReport::default() });
    for prefix in ["forebay_", "vllm:"] {
        let of = |series: &str| value(&metrics, &format!("{prefix}{series}"));
        assert_eq!(of("generation_tokens_total"), 3.0);
        assert_eq!(of("time_to_first_token_seconds_bucket{le=\"0.02\"}"), 0.0);
        assert_eq!(of("time_to_first_token_seconds_bucket{le=\"0.04\"}"), 1.0);
        assert_eq!(of("inter_token_latency_seconds_count"), 2.0);
    }
    assert_eq!(value(&metrics, "forebay_preemptions_total"), 2.0);
    assert_eq!(value(&metrics, "vllm:num_preemptions_total"), 2.0);
    assert_eq!(value(&metrics, "forebay_engine_steps_total"), 2.0);
    assert_eq!(value(&metrics, "forebay_batcher_batch_size_sum"), 6.0);
    assert_eq!(value(&metrics, "forebay_batcher_batch_tokens_sum"), 24.0);
}

#[test]
fn requests_errors_and_panics_have_bounded_labels() {
    let metrics = Metrics::new();
    metrics.request(Route::Chat, Outcome::Cancelled);
    metrics.error("queue_full", Route::Completions);
    metrics.panicked();
    let series = metrics.render().lines().filter(|line| line.starts_with("forebay_requests_total{")).count();
    assert_eq!(series, Route::ALL.len() * Outcome::ALL.len());
    assert_eq!(value(&metrics, "forebay_requests_total{outcome=\"cancelled\",route=\"chat\"}"), 1.0);
    assert_eq!(value(&metrics, "forebay_errors_total{code=\"queue_full\",route=\"completions\"}"), 1.0);
    assert_eq!(value(&metrics, "forebay_panics_total"), 1.0);
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_is_measured() {
    assert!(value(&Metrics::new(), "process_resident_memory_bytes") > 0.0);
}
