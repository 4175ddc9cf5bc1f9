//! The text of `/metrics`. Routers ask for it twenty times a second, so nothing is formatted twice that can be kept.

use ::prometheus::TextEncoder;
use ::prometheus::proto::MetricFamily;

use super::compat;
use super::config::Compat;
use super::record::Metrics;

impl Metrics {
    /// The text exposition format, process metrics and other servers' names included, at this Unix time.
    pub fn render(&self, unix_seconds: u64) -> String {
        render(self, unix_seconds)
    }
}

fn render(metrics: &Metrics, unix_seconds: u64) -> String {
    let model = metrics.model.get().map(String::as_str);
    let families = metrics.registry.gather();
    let mut text = String::with_capacity(64 << 10);
    encode(&families, &mut text);
    encode(&metrics.process.families(), &mut text);
    if let Some(model) = model {
        compat::model_info(model, &mut text);
    }
    let shown = |compat| metrics.config().compat.contains(&compat);
    if shown(Compat::LlamaServer) {
        compat::llama_server(metrics, &mut text);
    }
    if shown(Compat::Vllm) {
        compat::vllm(metrics, model, unix_seconds, &mut text);
        // Last, since it takes ours apart.
        encode(&compat::rename(families, model), &mut text);
    }
    text
}

fn encode(families: &[MetricFamily], text: &mut String) {
    // Writing to memory fails only for families without series, which `gather` leaves out.
    if let Err(error) = TextEncoder::new().encode_utf8(families, text) {
        tracing::error!(%error, "metrics could not be written");
    }
}
