//! Names, help texts, buckets.

use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use std::sync::Arc;

use super::config::Config;
use super::part::{Live, Part};
use super::process::Process;
use super::recent::Recent;
use super::record::Metrics;
use super::route::{Outcome, Route};
use super::selected::Selected;
use super::workers::WorkerFamilies;
use forebay_core::request::Priority;

// vLLM's buckets, so that its dashboards fit.
const TTFT: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const INTER_TOKEN: [f64; 19] =
    [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const E2E: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
const STEP: [f64; 15] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];
const GAP: [f64; 11] = [0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.1];
const SEQUENCES: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
const TOKENS: [f64; 13] = [1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];

/// 1, 2, 5, 10 and so on, up to the longest contexts.
const LENGTHS: [f64; 20] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6];
const UP_TO_64: [f64; 7] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
const MILLIS: [f64; 12] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0, 2_048.0];

impl Metrics {
    pub fn new() -> Arc<Metrics> {
        Metrics::with(&Config::default())
    }

    pub fn with(config: &Config) -> Arc<Metrics> {
        Arc::new(register(Registry::new(), config))
    }
}

fn register(registry: Registry, config: &Config) -> Metrics {
    let counter = |name: &str, help: &str| add(&registry, must(IntCounter::new(name, help)));
    let gauge = |name: &str, help: &str| add(&registry, must(IntGauge::new(name, help)));
    let histogram = |name: &str, help: &str, buckets: &[f64]| {
        add(&registry, must(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))))
    };
    let labelled = |name: &str, help: &str, labels: &[&str]| {
        add(&registry, must(IntCounterVec::new(Opts::new(name, help), labels)))
    };
    let requests = labelled(
        "forebay_requests_total",
        "HTTP requests that ended, by route and outcome (ok, client_error, server_error, cancelled).",
        &["route", "outcome"],
    );
    let finished = labelled(
        "forebay_sequences_finished_total",
        "Sequences that completed, by finish reason.",
        &["finished_reason"],
    );
    let reloads = labelled(
        "forebay_config_reloads_total",
        "Times that the configuration was read again, by result (applied, refused).",
        &["result"],
    );
    let grammar_tokens = labelled(
        "forebay_grammar_tokens_total",
        "Tokens drawn under a grammar, by whether it allowed more than one there (choice, only).",
        &["kind"],
    );
    let labelled_gauge =
        |name: &str, help: &str, label: &str| add(&registry, must(IntGaugeVec::new(Opts::new(name, help), &[label])));
    let depths = labelled_gauge("forebay_batcher_queue_depth", "Queued requests by priority.", "priority");
    let running = labelled_gauge("forebay_running", "Sequences that hold KV blocks, by priority.", "priority");
    let sources = labelled(
        "forebay_prompt_tokens_by_source_total",
        "Prompt tokens that were computed, and that were found in the cache.",
        &["source"],
    );
    let positions = labelled(
        "forebay_spec_accepted_per_pos_total",
        "Guessed tokens that were right, by their place in the guess; the last place stands for all after it.",
        &["position"],
    );
    let asked = labelled(
        "requests_total",
        "HTTP requests that ask the model and ended, by outcome (ok, client_error, server_error, cancelled).",
        &["outcome"],
    );
    let promises = labelled(
        "forebay_promises_total",
        "Sequences that ended, by whether what slo_<class>_ttft_ms and slo_<class>_itl_ms promise was kept; the kept ones are the goodput.",
        &["priority", "outcome"],
    );
    let abandoned = counter(
        "forebay_prompt_tokens_abandoned_total",
        "Prompt tokens of sequences that ended before they were computed.",
    );
    let failed = counter("forebay_sequences_failed_total", "Sequences that ended with an error.");
    let part = |name: &str, help: &str| Part::new(gauge(name, help));
    // Summed over the loops, but not shown.
    let hidden = |name: &str| Part::new(must(IntGauge::new(name, "hidden")));
    let errors_of = add(
        &registry,
        must(HistogramVec::new(
            HistogramOpts::new(
                "forebay_ttft_prediction_error_seconds",
                "How far the first token was from its prediction, by side (early, late).",
            )
            .buckets(TTFT.to_vec()),
            &["side"],
        )),
    );
    Metrics {
        requests: Route::ALL
            .map(|route| Outcome::ALL.map(|outcome| requests.with_label_values(&[route.label(), outcome.label()]))),
        errors: labelled("forebay_errors_total", "Error objects sent, by code and route.", &["code", "route"]),
        panics: counter("forebay_panics_total", "Panics caught in request handlers."),
        reloads: ["applied", "refused"].map(|result| reloads.with_label_values(&[result])),
        log_lines_lost: counter("forebay_log_lines_lost_total", "Log lines dropped because nobody took them in time."),
        admitted: counter("forebay_sequences_admitted_total", "Sequences queued."),
        stopped: finished.with_label_values(&["stop"]),
        length: finished.with_label_values(&["length"]),
        cancelled: counter("forebay_sequences_cancelled_total", "Sequences whose client left or that were ended."),
        live: Live {
            part: part("forebay_sequences_live", "Sequences queued, waiting or running."),
            failed: failed.clone(),
        },
        failed,
        prompt_tokens: counter("forebay_prompt_tokens_total", "Prompt tokens of queued sequences."),
        prompt_by_source: ["local_compute", "local_cache_hit"].map(|source| sources.with_label_values(&[source])),
        prompt_pending: Live {
            part: part(
                "forebay_prompt_tokens_pending",
                "Prompt tokens of live sequences that are still to be computed.",
            ),
            failed: abandoned.clone(),
        },
        prompt_abandoned: abandoned,
        recomputed: counter("forebay_tokens_recomputed_total", "Tokens computed again after a preemption."),
        generation_tokens: counter("forebay_generation_tokens_total", "Tokens generated."),
        time_to_first_token: histogram("forebay_time_to_first_token_seconds", "From queued to the first token.", &TTFT),
        inter_token_latency: histogram(
            "forebay_inter_token_latency_seconds",
            "Between two tokens of a sequence.",
            &INTER_TOKEN,
        ),
        e2e_latency: histogram("forebay_e2e_request_latency_seconds", "From queued to the last token.", &E2E),
        prefill_time: histogram(
            "forebay_request_prefill_time_seconds",
            "From released from the queue to the first token, of sequences that completed.",
            &E2E,
        ),
        decode_time: histogram(
            "forebay_request_decode_time_seconds",
            "From the first token to the last, of sequences that completed.",
            &E2E,
        ),
        inference_time: histogram(
            "forebay_request_inference_time_seconds",
            "From released from the queue to the last token, of sequences that completed.",
            &E2E,
        ),
        time_per_token: histogram(
            "forebay_time_per_output_token_seconds",
            "Mean time between two tokens of a sequence that completed.",
            &INTER_TOKEN,
        ),
        request_prompt_tokens: histogram(
            "forebay_request_prompt_tokens",
            "Prompt tokens of sequences that completed.",
            &LENGTHS,
        ),
        request_generation_tokens: histogram(
            "forebay_request_generation_tokens",
            "Generated tokens of sequences that completed.",
            &LENGTHS,
        ),
        request_max_tokens: histogram(
            "forebay_request_max_tokens",
            "Most tokens that sequences which completed might have generated.",
            &LENGTHS,
        ),
        longest: must(IntGauge::new("longest", "hidden")),
        running: part("forebay_num_requests_running", "Sequences that hold KV blocks."),
        waiting: part("forebay_num_requests_waiting", "Sequences queued or waiting for blocks, all classes."),
        kv_blocks: ["blocks_used", "blocks_total", "blocks_cached"].map(hidden),
        block_size: must(IntGauge::new("block_size", "hidden")),
        kv_usage: add(&registry, must(Gauge::new("forebay_kv_cache_usage_perc", "Used part of the KV cache, 0 to 1."))),
        preemptions: counter("forebay_preemptions_total", "Sequences that gave their blocks back to be recomputed."),
        prefix_queries: counter("forebay_prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache."),
        prefix_hits: counter("forebay_prefix_cache_hits_total", "Prompt tokens that were found there, not computed."),
        spec_proposed: counter(
            "forebay_spec_proposed_total",
            "Tokens that were guessed and checked in a step, those that a grammar forces included.",
        ),
        spec_accepted: counter("forebay_spec_accepted_total", "Those of them that were right."),
        spec_drafts: counter("forebay_spec_drafts_total", "Guesses that were checked, of one or more tokens."),
        spec_positions: std::array::from_fn(|at| positions.with_label_values(&[at.to_string().as_str()])),
        grammar_tokens: ["choice", "only"].map(|kind| grammar_tokens.with_label_values(&[kind])),
        steps: counter("forebay_engine_steps_total", "Forward passes."),
        step_reruns: counter("forebay_engine_step_reruns_total", "Passes that failed and were rerun one by one."),
        batch_size: histogram("forebay_batcher_batch_size", "Sequences per forward pass.", &SEQUENCES),
        batch_tokens: histogram("forebay_batcher_batch_tokens", "Tokens per forward pass.", &TOKENS),
        step_duration: histogram("forebay_engine_step_seconds", "One call of the engine's step.", &STEP),
        engine_gap: histogram(
            "forebay_engine_gap_seconds",
            "From the end of a pass of the model to the start of the next while there was work.",
            &GAP,
        ),
        stalls: counter(
            "forebay_stall_budget_exceeded_total",
            "Steps that took longer than max_stall_ms, or what the policy makes of it, while sequences decoded.",
        ),
        stall_excess: histogram("forebay_stall_excess_seconds", "By how much those steps took longer.", &STEP),
        batches: labelled(
            "forebay_batches_released_total",
            "Batches that left the queue, by what made them flow.",
            &["cause"],
        ),
        flushed_requests: histogram(
            "forebay_released_batch_size",
            "Requests per batch that left the queue.",
            &SEQUENCES,
        ),
        queue_time: histogram("forebay_request_queue_time_seconds", "From queued to released.", &TTFT),
        queue_depth: Priority::ALL.map(|priority| Part::new(depths.with_label_values(&[priority.name()]))),
        queue_total: part("batcher_queue_depth", "Queued requests."),
        released_size: histogram("batcher_batch_size", "Requests per batch that left the queue.", &UP_TO_64),
        asked: Outcome::ALL.map(|outcome| asked.with_label_values(&[outcome.label()])),
        request_ms: histogram(
            "request_latency_ms",
            "From a request's head to the end of its answer, of requests that ask the model.",
            &MILLIS,
        ),
        drained: hidden("drained"),
        drain_rate: add(
            &registry,
            must(Gauge::new("forebay_queue_drain_rate", "Requests that leave the queue per second, lately.")),
        ),
        running_by_priority: Priority::ALL.map(|priority| Part::new(running.with_label_values(&[priority.name()]))),
        seatless: hidden("seatless"),
        selected: Selected::new([
            labelled_gauge("forebay_strategy_selected", "1 for the strategy in force.", "strategy"),
            labelled_gauge("forebay_policy_selected", "1 for the policy in force.", "policy"),
        ]),
        recent: Arc::new(Recent::new(config)),
        promises: std::array::from_fn(|class| {
            ["kept", "broken"].map(|outcome| promises.with_label_values(&[Priority::ALL[class].name(), outcome]))
        }),
        ttft_prediction_error: ["early", "late"].map(|side| errors_of.with_label_values(&[side])),
        thermal_level: gauge("forebay_thermal_level", "0 nominal, 1 fair, 2 serious, 3 critical, 4 emergency."),
        workers: workers(&registry),
        model: Arc::default(),
        adapters: Arc::default(),
        process: Process::default(),
        registry,
    }
}

fn workers(registry: &Registry) -> WorkerFamilies {
    let counters = |name: &str, help: &str, labels: &[&str]| {
        add(registry, must(IntCounterVec::new(Opts::new(name, help), labels)))
    };
    let gauges =
        |name: &str, help: &str, labels: &[&str]| add(registry, must(IntGaugeVec::new(Opts::new(name, help), labels)));
    WorkerFamilies {
        status: gauges(
            "forebay_worker_status",
            "1 for what a worker is: idle, busy or unhealthy.",
            &["worker", "status"],
        ),
        pending: gauges("forebay_worker_pending", "Sequences under way at a worker.", &["worker"]),
        utilisation: add(
            registry,
            must(GaugeVec::new(
                Opts::new("forebay_worker_utilisation", "Part of its time that a worker had work, lately."),
                &["worker"],
            )),
        ),
        utilization: add(
            registry,
            must(GaugeVec::new(
                Opts::new("worker_utilization", "Part of its time that a worker had work, lately."),
                &["worker_id"],
            )),
        ),
        breaker: gauges("forebay_breaker_state", "0 closed, 1 half-open, 2 open.", &["worker"]),
        transitions: counters(
            "forebay_breaker_transitions_total",
            "Changes of a worker's breaker, by what it became.",
            &["worker", "to"],
        ),
        requests: counters(
            "forebay_worker_requests_total",
            "Requests that ended at a worker, by what that says of it (success, failure, uncounted).",
            &["worker", "verdict"],
        ),
        retries: counters(
            "forebay_worker_retries_total",
            "Requests that failed at a worker before their first token and were begun again elsewhere.",
            &["worker"],
        ),
        restarts: counters(
            "forebay_worker_restarts_total",
            "Engine loops that died and were begun again.",
            &["worker"],
        ),
    }
}

fn add<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> C {
    must(registry.register(Box::new(collector.clone())));
    collector
}

/// Only a name that is invalid or taken fails, and the names are the constants above.
fn must<T>(made: prometheus::Result<T>) -> T {
    made.expect("metric names are valid and unique")
}
