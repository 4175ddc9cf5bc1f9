//! `thermal`, `engine` and `kv_cache`, as far as they are the server's own: heat is read, loops are run, memory is shared out.

use std::path::PathBuf;
use std::time::Duration;

use forebay_core::scheduler;
use forebay_core::scheduler::thermal::Thresholds;
use forebay_core::settings::Setting;
use forebay_core::units::Micros;

use super::checks::Reader;
use super::error::ConfigError;

#[derive(Clone, Debug)]
pub struct ThermalConfig {
    /// A folder of thermal zones; `None` reads none.
    pub path: Option<PathBuf>,
    pub interval: Duration,
    pub thresholds: Thresholds,
}

impl Default for ThermalConfig {
    fn default() -> ThermalConfig {
        ThermalConfig { path: None, interval: Duration::from_secs(1), thresholds: Thresholds::default() }
    }
}

pub fn thermal_settings() -> Vec<Setting<ThermalConfig>> {
    let reading = [
        Setting::new("thermal.path", |c: &mut ThermalConfig| &mut c.path)
            .flag("thermal-path")
            .live()
            .help("folder of thermal zones, such as /sys/class/thermal; empty reads none"),
        Setting::new("thermal.interval", |c: &mut ThermalConfig| &mut c.interval)
            .duration(Micros::from_millis(10)..=Micros::HOUR)
            .live()
            .help("between two readings"),
    ];
    let levels = scheduler::thermal_settings();
    let levels = levels.into_iter().map(|row| row.within(|c: &ThermalConfig| &c.thresholds, |c| &mut c.thresholds));
    reading.into_iter().chain(levels).collect()
}

pub fn check_thermal(config: &ThermalConfig, read: &Reader) -> Result<(), ConfigError> {
    let Thresholds { fair, serious, critical, emergency } = config.thresholds;
    match [fair, serious, critical, emergency].is_sorted() {
        true => Ok(()),
        false => {
            let message = "fair, serious, critical and emergency must rise".to_owned();
            Err(read.contradiction("thermal", "fair_celsius", message))
        }
    }
}

/// The loops, beside what their schedulers are told.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    pub multi_step_count: usize,
    /// Whether the last step's events are delivered while the next one runs.
    pub overlap: bool,
    /// `None` is what the container may use.
    pub threads: Option<usize>,
    pub drain_timeout: Duration,
    pub stall_timeout: Duration,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig {
            multi_step_count: 1,
            overlap: true,
            threads: None,
            drain_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
        }
    }
}

pub fn engine_settings() -> Vec<Setting<EngineConfig>> {
    vec![
        Setting::new("engine.multi_step_count", |c: &mut EngineConfig| &mut c.multi_step_count)
            .whole(1..=64)
            .flag("multi-step-count")
            .help("decode steps per call; commands are heard between calls"),
        Setting::new("engine.overlap", |c: &mut EngineConfig| &mut c.overlap).help(
            "deliver the last step's events while the next one runs; false does it between steps, for the same answers",
        ),
        Setting::new("engine.threads", |c: &mut EngineConfig| &mut c.threads)
            .whole(1..=1_024)
            .flag("threads")
            .help("compute threads; auto is what the container may use"),
        Setting::new("engine.drain_timeout", |c: &mut EngineConfig| &mut c.drain_timeout)
            .duration(Micros::ZERO..=Micros::DAY)
            .flag("drain-timeout")
            .live()
            .help("running requests may take so long to finish at shutdown"),
        Setting::new("engine.stall_timeout", |c: &mut EngineConfig| &mut c.stall_timeout)
            .duration(Micros::from_millis(100)..=Micros::DAY)
            .help("a step that takes longer makes the server not ready"),
    ]
}

#[derive(Clone, Debug)]
pub struct KvCacheConfig {
    /// Tokens per block.
    pub block_size: usize,
    /// `None` is a share of what is free.
    pub memory_bytes: Option<usize>,
}

impl Default for KvCacheConfig {
    fn default() -> KvCacheConfig {
        KvCacheConfig { block_size: 32, memory_bytes: None }
    }
}

pub fn kv_cache_settings() -> Vec<Setting<KvCacheConfig>> {
    vec![
        Setting::new("kv_cache.block_size", |c: &mut KvCacheConfig| &mut c.block_size)
            .whole(1..=1_024)
            .flag("block-size")
            .help("tokens per block"),
        Setting::new("kv_cache.memory", |c: &mut KvCacheConfig| &mut c.memory_bytes)
            .gib(0.000001..=1e9)
            .flag("kv-memory")
            .help(
                "GiB for the KV cache; auto is 40 % of what is free (85 % of a GPU's), at most what all seats can use",
            ),
    ]
}
