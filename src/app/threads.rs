//! How many threads compute.

use crate::config::Config;

/// Threads for compute: what was configured, else what the container's quota allows.
pub fn compute_threads(config: &Config) -> usize {
    config.engine.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}
