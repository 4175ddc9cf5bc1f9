//! The text of `/metrics`. Routers ask for it twenty times a second, so nothing is formatted twice that can be kept.

use std::sync::{Arc, Mutex, PoisonError};

use ::prometheus::TextEncoder;
use ::prometheus::proto::MetricFamily;

use super::Metrics;
use super::compat::{self, Compat};

/// The process' memory, descriptors and time, as they were lately: reading them walks through `/proc`, which takes longer than
/// everything else together.
#[derive(Clone, Debug, Default)]
pub(super) struct Process(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    families: Vec<MetricFamily>,
    read_ms: i64,
}

/// Between two readings.
const FRESH_MS: i64 = 1_000;

impl Process {
    /// Reads them, unless that was done within the last second.
    pub fn refresh(&self, at_ms: i64) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.families.is_empty() || (at_ms - kept.read_ms).abs() >= FRESH_MS {
            *kept = Kept { families: read(), read_ms: at_ms };
        }
    }

    fn families(&self) -> Vec<MetricFamily> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.families.is_empty() {
            kept.families = read();
        }
        kept.families.clone()
    }
}

#[cfg(target_os = "linux")]
fn read() -> Vec<MetricFamily> {
    use ::prometheus::core::Collector;
    ::prometheus::process_collector::ProcessCollector::for_self().collect()
}

#[cfg(not(target_os = "linux"))]
fn read() -> Vec<MetricFamily> {
    Vec::new()
}

pub(super) fn render(metrics: &Metrics, unix_seconds: u64) -> String {
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
