//! `batching`, `thermal` and `engine`: the queue, who computes first, and the loop.

use std::path::PathBuf;
use std::time::Duration;

use forebay_core::intake::{self, Capacity, FairnessConfig, FlushConfig, StrategyKind};
use forebay_core::scheduler::policy::{PolicyConfig, PolicyKind};
use forebay_core::scheduler::thermal::Thresholds;
use forebay_core::scheduler::{Preemption, Speculative};
use forebay_core::units::Micros;

use super::ConfigError;
use super::values::Reader;

#[derive(Clone, Debug)]
pub struct ThermalConfig {
    /// A folder of thermal zones; `None` reads none.
    pub path: Option<PathBuf>,
    pub interval: Duration,
    pub thresholds: Thresholds,
}

#[derive(Clone, Debug)]
pub struct EngineConfig {
    pub max_num_seqs: usize,
    pub max_num_batched_tokens: usize,
    /// `None` is the model's context.
    pub max_model_len: Option<u32>,
    pub preemption: Preemption,
    /// How long prefills may keep running streams waiting; `None` is for ever.
    pub max_stall: Option<Micros>,
    pub multi_step_count: usize,
    /// Whether the last step's events are delivered while the next one runs.
    pub overlap: bool,
    /// `None` is what the container may use.
    pub threads: Option<usize>,
    pub drain_timeout: Duration,
    pub stall_timeout: Duration,
    /// Whether decodes carry guesses at how they go on.
    pub speculative: Speculative,
}

pub fn intake(read: &Reader) -> Result<intake::Config, ConfigError> {
    let whole = |key| read.integer(key).map(|n| n as usize);
    let config = intake::Config {
        capacity: Capacity {
            requests: whole("batching.queue_capacity")?,
            tokens: whole("batching.queue_token_capacity")?,
        },
        flush: FlushConfig {
            strategy: read.one_of("batching.strategy", &StrategyKind::ALL.map(|kind| (kind.name(), kind)))?,
            min_batch_size: whole("batching.min_batch_size")?,
            max_batch_size: whole("batching.max_batch_size")?,
            min_wait: read.ms("batching.min_wait_ms")?,
            max_wait: read.ms("batching.max_wait_ms")?,
            queue_depth_low: whole("batching.queue_depth_low_threshold")?,
            queue_depth_high: whole("batching.queue_depth_high_threshold")?,
            target_p99: read.ms("batching.target_p99_ms")?,
            idle_release: read.boolean("batching.idle_release")?,
            bucketing: read.boolean("batching.token_bucketing_enabled")?,
            priorities: read.boolean("batching.priority_enabled")?,
        },
        max_waits: [
            read.ms("batching.max_wait_critical_ms")?,
            read.ms("batching.max_wait_high_ms")?,
            read.ms("batching.max_wait_normal_ms")?,
            read.ms("batching.max_wait_low_ms")?,
        ],
        aging: read.ms("batching.aging_ms")?,
        fairness: FairnessConfig {
            max_seat_share: read.share("batching.fair_share_max")?,
            ..FairnessConfig::default()
        },
        queue_timeout: read.micros("batching.queue_timeout")?,
    };
    config.check().map_err(|(param, message)| read.contradiction("batching", param, message))?;
    Ok(config)
}

pub fn policy(read: &Reader) -> Result<PolicyConfig, ConfigError> {
    Ok(PolicyConfig {
        kind: read.one_of("batching.policy", &PolicyKind::ALL.map(|kind| (kind.name(), kind)))?,
        decode_burst_budget: read.integer("batching.decode_burst_budget")? as usize,
        ..PolicyConfig::default()
    })
}

pub fn thermal(read: &Reader) -> Result<ThermalConfig, ConfigError> {
    let celsius = |key| read.integer(key).map(|n| n as f64);
    let thresholds = Thresholds {
        fair: celsius("thermal.fair_celsius")?,
        serious: celsius("thermal.serious_celsius")?,
        critical: celsius("thermal.critical_celsius")?,
        emergency: celsius("thermal.emergency_celsius")?,
    };
    if ![thresholds.fair, thresholds.serious, thresholds.critical, thresholds.emergency].is_sorted() {
        let message = "fair, serious, critical and emergency must rise".to_owned();
        return Err(read.contradiction("thermal", "fair_celsius", message));
    }
    let path = Some(read.text("thermal.path")).filter(|path| !path.is_empty()).map(PathBuf::from);
    Ok(ThermalConfig { path, interval: read.duration("thermal.interval")?, thresholds })
}

pub fn engine(read: &Reader) -> Result<EngineConfig, ConfigError> {
    let victims = [
        ("most_recent", Preemption::MostRecent),
        ("longest", Preemption::Longest),
        ("lowest_priority", Preemption::LowestPriority),
    ];
    Ok(EngineConfig {
        max_num_seqs: read.integer("engine.max_num_seqs")? as usize,
        max_num_batched_tokens: read.integer("engine.max_num_batched_tokens")? as usize,
        max_model_len: read.auto("engine.max_model_len")?.map(|n| n as u32),
        speculative: read.one_of("engine.speculative", &Speculative::ALL.map(|kind| (kind.name(), kind)))?,
        preemption: read.one_of("engine.preemption", &victims)?,
        max_stall: Some(read.ms("batching.max_stall_ms")?).filter(|stall| *stall > Micros::ZERO),
        multi_step_count: read.integer("engine.multi_step_count")? as usize,
        overlap: read.boolean("engine.overlap")?,
        threads: read.auto("engine.threads")?.map(|n| n as usize),
        drain_timeout: read.duration("engine.drain_timeout")?,
        stall_timeout: read.duration("engine.stall_timeout")?,
    })
}
