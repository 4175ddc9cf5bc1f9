//! The prometheus crate, wrapped: registration and text.

use prometheus::core::Collector;
use prometheus::{
    Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder, proto,
};

/// Our name and vLLM's for the same thing: its dashboards, and the routers that read its gauges, work unchanged.
const ALIASES: &[(&str, &str)] = &[
    ("forebay_requests_running", "vllm:num_requests_running"),
    ("forebay_requests_waiting", "vllm:num_requests_waiting"),
    ("forebay_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc"),
    ("forebay_prompt_tokens_total", "vllm:prompt_tokens_total"),
    ("forebay_generation_tokens_total", "vllm:generation_tokens_total"),
    ("forebay_preemptions_total", "vllm:num_preemptions_total"),
    ("forebay_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"),
    ("forebay_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"),
    ("forebay_e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds"),
];

/// A registry with the process's own figures (memory, CPU time, file descriptors) where the system gives them.
pub fn registry() -> Registry {
    let registry = Registry::new();
    #[cfg(target_os = "linux")]
    {
        let process = prometheus::process_collector::ProcessCollector::for_self();
        registry.register(Box::new(process)).expect("a name used once");
    }
    registry
}

pub fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    register(registry, IntCounter::new(name, help))
}

pub fn counter_with(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    register(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

pub fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    register(registry, IntGauge::new(name, help))
}

pub fn ratio(registry: &Registry, name: &str, help: &str) -> Gauge {
    register(registry, Gauge::new(name, help))
}

pub fn histogram(registry: &Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    register(registry, Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
}

/// Names are literals of this program: a bad or double one is a bug that the first start shows.
fn register<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> C {
    let metric = metric.expect("a valid metric");
    registry.register(Box::new(metric.clone())).expect("a name used once");
    metric
}

pub fn render(registry: &Registry) -> String {
    let mut families = registry.gather();
    let aliased: Vec<proto::MetricFamily> = families.iter().filter_map(alias).collect();
    families.extend(aliased);
    TextEncoder::new().encode_to_string(&families).expect("gathered families have names and values")
}

fn alias(family: &proto::MetricFamily) -> Option<proto::MetricFamily> {
    let (_, alias) = ALIASES.iter().find(|(ours, _)| *ours == family.name())?;
    let mut family = family.clone();
    family.set_name((*alias).into());
    Some(family)
}
