//! What the server counts, as typed handles resolved at start: recording is a few atomic additions and never a lookup by
//! name (the two exceptions, errors by code and requests by route, are per request, not per token).
//!
//! Conservation, at any moment between two calls: admitted = finished (stop, length) + cancelled (abort) + failed + live, and
//! prompt tokens = computed + cached + abandoned + pending.
//!
//! ```text
//! record.rs     what is counted, by which call  life.rs    a sequence's life in numbers
//! prometheus.rs names, help texts, buckets      compat.rs  other servers' names for the same
//! text.rs       the text of /metrics            history.rs /metrics/json, from recent.rs:
//!                                               reservoir.rs percentiles, timeline.rs the past
//! ```

mod adapters;
mod compat;
mod config;
mod history;
mod life;
mod part;
mod process;
mod prometheus;
mod recent;
mod record;
mod reservoir;
mod route;
mod selected;
mod settings;
mod text;
pub mod timeline;
mod workers;

pub use adapters::AdapterUse;
pub use config::{Compat, Config};
pub use life::{Life, Progress};
pub use record::Metrics;
pub use route::{Outcome, Route};
pub use settings::settings;
pub use workers::WorkerMetrics;

#[cfg(test)]
mod docs;
#[cfg(test)]
mod tests;
