//! What the system says of the process.

use std::sync::{Arc, Mutex, PoisonError};

use ::prometheus::proto::MetricFamily;

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

    pub fn families(&self) -> Vec<MetricFamily> {
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
