//! Series as a scraper sees them.

use super::*;
use forebay_core::report::{Snapshot, StepFacts, StepReport};
use forebay_core::request::FinishReason;
use forebay_core::units::Micros;

fn value(metrics: &Metrics, series: &str) -> f64 {
    let text = metrics.render(0);
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
    metrics.request(Route::Chat, Outcome::Cancelled, Micros(7));
    metrics.error("queue_full", Route::Completions);
    metrics.panicked();
    let series = metrics.render(0).lines().filter(|line| line.starts_with("forebay_requests_total{")).count();
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

#[test]
fn prompt_tokens_are_conserved() {
    let metrics = Metrics::new();
    metrics.admitted(3, 100);
    metrics.prompt_computed(40, 7);
    metrics.prompt_cached(20);
    metrics.prompt_ended(10, false);
    let of = |series: &str| value(&metrics, &format!("forebay_{series}"));
    assert_eq!(of("prompt_tokens_total"), 100.0);
    assert_eq!(of("prompt_tokens_by_source_total{source=\"local_compute\"}"), 40.0);
    assert_eq!(of("prompt_tokens_by_source_total{source=\"local_cache_hit\"}"), 20.0);
    assert_eq!((of("prompt_tokens_abandoned_total"), of("prompt_tokens_pending")), (10.0, 30.0));
    assert_eq!(of("tokens_recomputed_total"), 7.0);
    assert_eq!(value(&metrics, "vllm:prompt_tokens_total"), 60.0);
    // Whoever completes has nothing left; where that is wrong, the sum is.
    metrics.prompt_ended(30, true);
    assert_eq!((of("prompt_tokens_abandoned_total"), of("prompt_tokens_pending")), (10.0, 0.0));
}

#[test]
fn a_loop_that_dies_leaves_balanced_books() {
    let metrics = Metrics::new();
    let another = metrics.of_another_loop();
    another.admitted(2, 50);
    another.prompt_computed(30, 0);
    drop(another);
    let of = |series: &str| value(&metrics, &format!("forebay_{series}"));
    assert_eq!((of("sequences_failed_total"), of("sequences_live")), (2.0, 0.0));
    assert_eq!((of("prompt_tokens_abandoned_total"), of("prompt_tokens_pending")), (20.0, 0.0));
}

#[test]
fn a_life_is_told_in_its_parts() {
    let metrics = Metrics::new();
    let millis = Micros::from_millis;
    metrics.lived(&Life {
        prompt_tokens: 30,
        generated_tokens: 5,
        max_tokens: 16,
        released: millis(100),
        first_token: Some(millis(400)),
        last_token: millis(600),
    });
    for (name, sum) in [
        ("request_prefill_time_seconds", 0.3),
        ("request_decode_time_seconds", 0.2),
        ("request_inference_time_seconds", 0.5),
        ("request_time_per_output_token_seconds", 0.05),
        ("request_prompt_tokens", 30.0),
        ("request_generation_tokens", 5.0),
        ("request_params_max_tokens", 16.0),
    ] {
        let told = value(&metrics, &format!("vllm:{name}_sum"));
        assert!((told - sum).abs() < 1e-9, "{name}: {told}");
    }
}

#[test]
fn other_servers_names_are_shown_as_configured() {
    let shown = |compat: &[Compat]| {
        let text = Metrics::with(&Config { compat: compat.to_vec(), ..Config::default() }).render(0);
        ["vllm:num_requests_running", "llamacpp:requests_processing", "forebay_num_requests_running"]
            .map(|name| text.lines().any(|line| line.starts_with(name)))
    };
    assert_eq!(shown(&[]), [false, false, true]);
    assert_eq!(shown(&[Compat::Vllm]), [true, false, true]);
    assert_eq!(shown(&[Compat::LlamaServer]), [false, true, true]);
    assert_eq!(shown(&Compat::ALL), [true, true, true]);
}

#[test]
fn a_models_name_is_a_label_and_is_escaped() {
    let metrics = Metrics::new();
    metrics.serves("a \"b\" \\c");
    metrics.state(&Snapshot { blocks_total: 9, ..Snapshot::default() }, 32);
    let common = r#"engine="0",model_name="a \"b\" \\c""#;
    assert_eq!(value(&metrics, &format!("vllm:num_requests_running{{{common}}}")), 0.0);
    let config = format!("vllm:cache_config_info{{block_size=\"32\",num_gpu_blocks=\"9\",{common}}}");
    assert_eq!(value(&metrics, &config), 1.0);
    assert_eq!(value(&metrics, &format!("vllm:request_success_total{{finished_reason=\"abort\",{common}}}")), 0.0);
}

#[test]
fn requests_that_ask_the_model_are_timed_and_probes_are_not() {
    let metrics = Metrics::new();
    metrics.request(Route::Chat, Outcome::Ok, Micros::from_millis(3));
    metrics.request(Route::Metrics, Outcome::Ok, Micros::from_millis(3));
    let of = |series: &str| value(&metrics, series);
    assert_eq!(of("requests_total{outcome=\"ok\"}"), 1.0);
    assert_eq!((of("request_latency_ms_bucket{le=\"2\"}"), of("request_latency_ms_bucket{le=\"4\"}")), (0.0, 1.0));
    assert_eq!(of("request_latency_ms_bucket{le=\"2048\"}"), 1.0);
    metrics.queue([1, 2, 0, 0, 4], 0.0);
    metrics.released([Micros(1); 3].into_iter(), "full");
    assert_eq!((of("batcher_queue_depth"), of("batcher_batch_size_bucket{le=\"4\"}")), (7.0, 1.0));
    metrics.worker("engine-0").state("busy", 0, 3, 0.5);
    assert_eq!(of("worker_utilization{worker_id=\"engine-0\"}"), 0.5);
}
