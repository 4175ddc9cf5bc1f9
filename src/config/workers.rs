//! `workers` and `health`: who takes requests, and what may go wrong with them.

use std::time::Duration;

use super::values::Reader;
use super::{ConfigError, ModelConfig};
use forebay_core::units::Micros;
use forebay_engine::workers::balance::Balancer;
use forebay_engine::workers::breaker::BreakerConfig;
use forebay_engine::workers::{UpstreamConfig, base};

/// What `workers.count: auto` means for the simulated model: enough to see a balancer at work.
const SIMULATED_LOOPS: usize = 4;

#[derive(Clone, Debug)]
pub struct WorkersConfig {
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

pub fn workers(read: &Reader, model: &str) -> Result<WorkersConfig, ConfigError> {
    let upstreams = read.list("workers.upstreams");
    let upstreams = upstreams
        .iter()
        .map(|url| base(url).map_err(|why| read.refuse("workers.upstreams", format!("a list of URLs; {url:?} {why}"))));
    let upstreams = upstreams.collect::<Result<Vec<_>, _>>()?;
    let count = match read.auto("workers.count")? {
        Some(0) if upstreams.is_empty() => {
            let message = "it is 0 and there are no workers.upstreams, so nobody would answer".into();
            return Err(read.contradiction("workers", "count", message));
        }
        Some(count) => count as usize,
        None if model == ModelConfig::SIMULATED => SIMULATED_LOOPS,
        None if model.is_empty() && !upstreams.is_empty() => 0,
        None => 1,
    };
    Ok(WorkersConfig {
        count,
        upstreams,
        upstream: UpstreamConfig {
            connect_timeout: read.duration("workers.connect_timeout")?,
            response_timeout: read.duration("workers.response_timeout")?,
            idle_timeout: read.duration("workers.idle_timeout")?,
            check_timeout: read.duration("health.check_timeout")?,
        },
        balancer: read.one_of("workers.balancer", &Balancer::ALL.map(|balancer| (balancer.name(), balancer)))?,
        breaker: BreakerConfig {
            failures: read.integer("health.failure_threshold")? as u32,
            open_for: Micros(read.duration("health.recovery_timeout")?.as_micros() as u64),
        },
        check_interval: read.duration("health.check_interval")?,
        simulated: Simulated {
            base_ms: read.number("workers.base_latency_ms")?,
            per_token_ms: read.number("workers.per_token_latency_ms")?,
            variance: read.number("workers.latency_variance")?,
            max_batch_tokens: read.integer("workers.max_batch_tokens")? as usize,
        },
    })
}
