//! `workers` and `health`: who takes requests, and what may go wrong with them.

use std::time::Duration;

use forebay_core::settings::Setting;
use forebay_core::units::Micros;
use forebay_core::workers::balance::Balancer;
use forebay_core::workers::breaker::BreakerConfig;
use forebay_engine::workers::{UpstreamConfig, base, breaker_settings, upstream_settings};

use super::checks::Reader;
use super::error::ConfigError;
use super::model::ModelConfig;

/// What `workers.count: auto` means for the simulated model: enough to see a balancer at work.
const SIMULATED_LOOPS: usize = 4;

#[derive(Clone, Debug)]
pub struct WorkersConfig {
    /// As the user wrote it; `None` is `auto`.
    asked: Option<usize>,
    /// Engine loops; 0 where only upstreams answer.
    pub count: usize,
    /// Their URLs, as [`base`] makes them.
    pub upstreams: Vec<String>,
    pub upstream: UpstreamConfig,
    pub balancer: Balancer,
    pub breaker: BreakerConfig,
    pub check_interval: Duration,
    pub simulated: Simulated,
}

impl Default for WorkersConfig {
    fn default() -> WorkersConfig {
        WorkersConfig {
            asked: None,
            count: 1,
            upstreams: Vec::new(),
            upstream: UpstreamConfig::default(),
            balancer: Balancer::default(),
            breaker: BreakerConfig::default(),
            check_interval: Duration::from_secs(5),
            simulated: Simulated::default(),
        }
    }
}

/// What a step of the simulated model costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Simulated {
    pub base_ms: f64,
    pub per_token_ms: f64,
    /// Standard deviation of the base, as a part of it.
    pub variance: f64,
    /// Per step.
    pub max_batch_tokens: usize,
}

impl Default for Simulated {
    fn default() -> Simulated {
        Simulated { base_ms: 10.0, per_token_ms: 0.5, variance: 0.1, max_batch_tokens: 8_192 }
    }
}

pub fn settings() -> Vec<Setting<WorkersConfig>> {
    let upstream = upstream_settings().into_iter();
    let upstream = upstream.map(|row| row.within(|c: &WorkersConfig| &c.upstream, |c| &mut c.upstream));
    let breaker = breaker_settings().into_iter();
    let breaker = breaker.map(|row| row.within(|c: &WorkersConfig| &c.breaker, |c| &mut c.breaker));
    let simulated = simulated().into_iter();
    let simulated = simulated.map(|row| row.within(|c: &WorkersConfig| &c.simulated, |c| &mut c.simulated));
    pool().into_iter().chain(upstream).chain(simulated).chain(breaker).collect()
}

fn pool() -> [Setting<WorkersConfig>; 4] {
    [
        Setting::new("workers.count", |c: &mut WorkersConfig| &mut c.asked).whole(0..=64).flag("workers").help(
            "engine loops; auto is 1, 4 of the simulated model, none where there are upstreams and no model.path",
        ),
        Setting::new("workers.upstreams", |c: &mut WorkersConfig| &mut c.upstreams)
            .flag("upstreams")
            .help("other OpenAI-compatible servers that take requests, such as http://host:8000 or https://host"),
        Setting::one_of(
            "workers.balancer",
            |c: &mut WorkersConfig| &mut c.balancer,
            Balancer::ALL.map(|balancer| (balancer.name(), balancer)),
        )
        .flag("balancer")
        .tuned("balancer")
        .help("which worker takes a request"),
        Setting::new("health.check_interval", |c: &mut WorkersConfig| &mut c.check_interval)
            .duration(Micros::MILLISECOND..=Micros::HOUR)
            .help("between two checks of an upstream"),
    ]
}

fn simulated() -> [Setting<Simulated>; 4] {
    [
        Setting::new("workers.base_latency_ms", |c: &mut Simulated| &mut c.base_ms)
            .real(0.0..=3.6e6)
            .help("per step of the simulated model (--model sim)"),
        Setting::new("workers.per_token_latency_ms", |c: &mut Simulated| &mut c.per_token_ms)
            .real(0.0..=3.6e6)
            .help("per token of a step of the simulated model"),
        Setting::new("workers.latency_variance", |c: &mut Simulated| &mut c.variance)
            .real(0.0..=1.0)
            .help("standard deviation of base_latency_ms, as a part of it"),
        Setting::new("workers.max_batch_tokens", |c: &mut Simulated| &mut c.max_batch_tokens)
            .whole(1..=1 << 20)
            .help("per step of the simulated model, in place of engine.max_num_batched_tokens"),
    ]
}

/// What follows from the settings: upstreams as they are asked, and how many loops there are.
pub fn resolve(config: &mut WorkersConfig, model: &str, read: &Reader) -> Result<(), ConfigError> {
    for url in &mut config.upstreams {
        *url = base(url).map_err(|why| read.refuse("workers.upstreams", format!("a list of URLs; {url:?} {why}")))?;
    }
    config.count = match config.asked {
        Some(0) if config.upstreams.is_empty() => {
            let message = "it is 0 and there are no workers.upstreams, so nobody would answer".into();
            return Err(read.contradiction("workers", "count", message));
        }
        Some(count) => count,
        None if model == ModelConfig::SIMULATED => SIMULATED_LOOPS,
        None if model.is_empty() && !config.upstreams.is_empty() => 0,
        None => 1,
    };
    Ok(())
}
