//! The same numbers under the names of other servers, for dashboards and routers that know those: vLLM's by default,
//! llama-server's if asked for. Each gauge has exactly one series, since endpoint pickers read only one.

use std::fmt::Write;

use ::prometheus::proto::{LabelPair, MetricFamily};

use super::adapters::in_use;
use super::record::Metrics;

/// Our name and vLLM's for the same series.
const TWINS: [(&str, &str); 24] = [
    ("forebay_num_requests_running", "vllm:num_requests_running"),
    ("forebay_num_requests_waiting", "vllm:num_requests_waiting"),
    ("forebay_kv_cache_usage_perc", "vllm:kv_cache_usage_perc"),
    ("forebay_generation_tokens_total", "vllm:generation_tokens_total"),
    ("forebay_preemptions_total", "vllm:num_preemptions_total"),
    ("forebay_prompt_tokens_by_source_total", "vllm:prompt_tokens_by_source_total"),
    ("forebay_tokens_recomputed_total", "vllm:prompt_tokens_recomputed_total"),
    ("forebay_prefix_cache_queries_total", "vllm:prefix_cache_queries_total"),
    ("forebay_prefix_cache_hits_total", "vllm:prefix_cache_hits_total"),
    ("forebay_spec_drafts_total", "vllm:spec_decode_num_drafts_total"),
    ("forebay_spec_proposed_total", "vllm:spec_decode_num_draft_tokens_total"),
    ("forebay_spec_accepted_total", "vllm:spec_decode_num_accepted_tokens_total"),
    ("forebay_spec_accepted_per_pos_total", "vllm:spec_decode_num_accepted_tokens_per_pos_total"),
    ("forebay_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"),
    ("forebay_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"),
    ("forebay_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds"),
    ("forebay_e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds"),
    ("forebay_request_queue_time_seconds", "vllm:request_queue_time_seconds"),
    ("forebay_request_prefill_time_seconds", "vllm:request_prefill_time_seconds"),
    ("forebay_request_decode_time_seconds", "vllm:request_decode_time_seconds"),
    ("forebay_request_inference_time_seconds", "vllm:request_inference_time_seconds"),
    ("forebay_request_prompt_tokens", "vllm:request_prompt_tokens"),
    ("forebay_request_generation_tokens", "vllm:request_generation_tokens"),
    ("forebay_request_max_tokens", "vllm:request_params_max_tokens"),
];
/// A histogram, although vLLM's name for it ends like a counter's.
const ITERATION: (&str, &str) = ("forebay_batcher_batch_tokens", "vllm:iteration_tokens_total");

/// Turns our families into those that vLLM has, with its labels.
pub(super) fn rename(families: Vec<MetricFamily>, model: Option<&str>) -> Vec<MetricFamily> {
    let twin = |mut family: MetricFamily| {
        let named = TWINS.iter().chain([&ITERATION]).find(|(ours, _)| *ours == family.name());
        let (_, name) = named?;
        family.set_name((*name).to_owned());
        for metric in family.mut_metric() {
            let mut labels = metric.take_label();
            labels.extend(common(model).into_iter().map(|(name, value)| {
                let mut pair = LabelPair::default();
                pair.set_name(name.to_owned());
                pair.set_value(value.to_owned());
                pair
            }));
            metric.set_label(labels);
        }
        Some(family)
    };
    families.into_iter().filter_map(twin).collect()
}

/// One engine, as far as others are concerned. A server without a model of its own has none to name.
fn common(model: Option<&str>) -> Vec<(&'static str, &str)> {
    model.map_or(Vec::new(), |model| vec![("engine", "0"), ("model_name", model)])
}

/// What vLLM has and we count otherwise.
pub(super) fn vllm(metrics: &Metrics, model: Option<&str>, unix_seconds: u64, text: &mut String) {
    let mut family = Family { text, prefix: "vllm:", common: common(model) };
    family.counter(
        "prompt_tokens_total",
        "Prompt tokens that were computed or found in the cache.",
        metrics.prompt_done(),
    );
    family.counter(
        "prompt_tokens_cached_total",
        "Prompt tokens that were found in the cache.",
        metrics.prompt_by_source[1].get(),
    );
    let ended = [
        ("stop", &metrics.stopped),
        ("length", &metrics.length),
        ("abort", &metrics.cancelled),
        ("error", &metrics.failed),
    ];
    family.head("request_success_total", "Sequences that ended, by why.", "counter");
    for (reason, count) in ended {
        family.line("request_success_total", &[("finished_reason", reason)], count.get() as f64);
    }
    family.head(
        "num_requests_waiting_by_reason",
        "The same as num_requests_waiting; nothing waits for anything else.",
        "gauge",
    );
    for (reason, count) in [("capacity", metrics.waiting.sum()), ("deferred", 0)] {
        family.line("num_requests_waiting_by_reason", &[("reason", reason)], count as f64);
    }
    let (size, blocks) = metrics.cache();
    if blocks > 0 {
        let (size, blocks) = (size.to_string(), blocks.to_string());
        family.head("cache_config_info", "The KV cache, in labels.", "gauge");
        family.line("cache_config_info", &[("block_size", &size), ("num_gpu_blocks", &blocks)], 1.0);
    }
    if let Some(adapters) = metrics.adapters.get() {
        let ([running, waiting], most) = (in_use(adapters), adapters.len().to_string());
        let labels = [("max_lora", &*most), ("running_lora_adapters", &*running), ("waiting_lora_adapters", &*waiting)];
        family.head("lora_requests_info", "Adapters in use, in labels; the value is the Unix time.", "gauge");
        family.line("lora_requests_info", &labels, unix_seconds as f64);
    }
}

/// All of llama-server's.
pub(super) fn llama_server(metrics: &Metrics, text: &mut String) {
    let mut family = Family { text, prefix: "llamacpp:", common: Vec::new() };
    let (prompt_s, predicted_s) = (metrics.prefill_time.get_sample_sum(), metrics.decode_time.get_sample_sum());
    let (prompt, predicted) = (metrics.prompt_by_source[0].get(), metrics.generation_tokens.get());
    let per = |count: f64, of: f64| if of > 0.0 { count / of } else { 0.0 };
    family.counter("prompt_tokens_total", "Prompt tokens that were computed.", prompt);
    family.head("prompt_seconds_total", "Time that sequences spent on their prompts.", "counter");
    family.line("prompt_seconds_total", &[], prompt_s);
    family.counter("tokens_predicted_total", "Tokens generated.", predicted);
    family.head("tokens_predicted_seconds_total", "Time that sequences spent generating.", "counter");
    family.line("tokens_predicted_seconds_total", &[], predicted_s);
    family.counter("n_decode_total", "Forward passes.", metrics.steps.get());
    family.counter("n_tokens_max", "Tokens of the longest sequence so far.", metrics.longest.get() as u64);
    family.counter("spec_decode_num_drafts_total", "Guesses, of one or more tokens.", metrics.spec_drafts.get());
    family.counter("spec_decode_num_draft_tokens_total", "Tokens in them.", metrics.spec_proposed.get());
    family.counter("spec_decode_num_accepted_tokens_total", "Those that were right.", metrics.spec_accepted.get());
    let name = "spec_decode_num_accepted_tokens_per_pos_total";
    family.head(name, "The same by their place in the guess.", "counter");
    for (position, count) in metrics.spec_positions.iter().enumerate() {
        family.line(name, &[("position", &position.to_string())], count.get() as f64);
    }
    family.gauge("prompt_tokens_seconds", "Prompt tokens per second, on average.", per(prompt as f64, prompt_s));
    family.gauge(
        "predicted_tokens_seconds",
        "Generated tokens per second, on average.",
        per(predicted as f64, predicted_s),
    );
    family.gauge("requests_processing", "Sequences that run.", metrics.running.sum() as f64);
    family.gauge("requests_deferred", "Sequences that wait.", metrics.waiting.sum() as f64);
    let busy = per(metrics.batch_size.get_sample_sum(), metrics.batch_size.get_sample_count() as f64);
    family.gauge("n_busy_slots_per_decode", "Sequences per forward pass, on average.", busy);
}

/// What is served, in labels.
pub(super) fn model_info(model: &str, text: &mut String) {
    let mut family = Family { text, prefix: "forebay_", common: Vec::new() };
    family.head("model_info", "1, labelled with the model that is served and the server's version.", "gauge");
    family.line("model_info", &[("model_name", model), ("version", env!("CARGO_PKG_VERSION"))], 1.0);
}

/// Writes series one by one.
struct Family<'a> {
    text: &'a mut String,
    prefix: &'static str,
    common: Vec<(&'static str, &'a str)>,
}

impl Family<'_> {
    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "counter");
        self.line(name, &[], value as f64);
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "gauge");
        self.line(name, &[], value);
    }

    // Writing to a string cannot fail.
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let prefix = self.prefix;
        let _ = writeln!(self.text, "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "{}{name}", self.prefix);
        for (index, (label, value)) in labels.iter().chain(&self.common).enumerate() {
            let _ = write!(self.text, "{}{label}=\"{}\"", if index == 0 { '{' } else { ',' }, escaped(value));
        }
        let end = if labels.is_empty() && self.common.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }
}

/// As a label's value must be.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
