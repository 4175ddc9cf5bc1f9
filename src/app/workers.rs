//! All workers that the configuration asks for: loops over a model, and other servers.

use crate::config::Config;
use crate::generate::Generator;
use forebay_clock::Clock;
use forebay_core::units::Micros;
use forebay_engine::export::Export;
use forebay_engine::metrics::Metrics;
use forebay_engine::permit::Gate;
use forebay_engine::workers::{Pool, PoolConfig, PoolParts, Upstream};

use super::engine::{self, Engines};
use super::failure::Failure;
use super::loops::Shared;
use super::{kv_events, simulated};

/// What the HTTP face needs.
pub struct Workers {
    pub pool: Pool,
    /// `None` where there are only other servers.
    pub generator: Option<Generator>,
    pub shared: Shared,
    pub fingerprint: String,
    /// What routers are told of the loops' caches, once there is a runtime to tell it on.
    pub kv_events: kv_events::Pending,
}

pub fn start(config: &Config, clock: &Clock, export: Option<Export>) -> Result<Workers, Failure> {
    let gate = Gate::new(config.intake.capacity);
    let (cache_feed, pending) = kv_events::prepare(config, clock);
    let metrics = Metrics::with(&config.metrics);
    let shared = Shared { clock: clock.clone(), metrics, gate, export, cache_feed };
    let engines = match config.workers.count {
        0 => None,
        _ if config.model.is_simulated() => Some(simulated::start(config, &shared)?),
        _ => Some(engine::start(config, &shared)?),
    };
    let (locals, served) = engines.map_or((Vec::new(), None), |Engines { locals, served }| (locals, Some(served)));
    let pool = Pool::new(PoolParts {
        locals,
        upstreams: upstreams(config)?,
        config: PoolConfig {
            balancer: config.workers.balancer,
            breaker: config.workers.breaker,
            stall_after: Micros(config.engine.stall_timeout.as_micros() as u64),
            check_interval: Micros(config.workers.check_interval.as_micros() as u64),
        },
        gate: shared.gate.clone(),
        clock: clock.clone(),
        metrics: shared.metrics.clone(),
    });
    let fingerprint = served.as_ref().map_or_else(|| "fp_relay".to_owned(), |served| served.fingerprint.clone());
    let generator = served.map(|served| served.generator(config, pool.clone()));
    if let Some(generator) = &generator {
        shared.metrics.serves(generator.model_id());
        shared.metrics.adapts(generator.adapters());
    }
    Ok(Workers { pool, generator, shared, fingerprint, kv_events: pending })
}

fn upstreams(config: &Config) -> Result<Vec<(String, Upstream)>, Failure> {
    let made = config.workers.upstreams.iter().enumerate().map(|(index, url)| {
        let upstream = Upstream::new(url.clone(), config.workers.upstream);
        Ok((format!("upstream-{index}"), upstream.map_err(|error| Failure::Input(error.into()))?))
    });
    made.collect()
}
