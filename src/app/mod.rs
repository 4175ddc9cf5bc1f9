//! The composition root: configuration in, a running server out, drained in order and everything joined.
//!
//! A runtime for each engine loop, on a thread of its own, whose blocking thread runs the steps; and the HTTP face's. A step
//! never occupies a thread that answers probes.

mod bench;
mod doctor;
#[cfg(any(feature = "capi", test))]
pub mod embedded;
mod ending;
mod engine;
mod http;
#[cfg(feature = "hub")]
mod hub;
mod inspect;
mod keeper;
mod keys;
mod kv_events;
mod listeners;
mod logging;
mod loops;
mod measures;
mod memory;
mod notify;
mod quantize;
mod reload;
mod signals;
mod simulate;
mod simulated;
mod source;
mod thermal;
mod workers;

use crate::config::{Config, Loaded};
use forebay_clock::Clock;
use forebay_engine::telemetry::Telemetry;
use forebay_store::Store;

use http::Serving;

pub use bench::{bench, calibrate};
pub use doctor::doctor;
pub use ending::End;
pub use inspect::inspect;
pub use keys::{db, keys, usage};
pub use quantize::quantize;
pub use simulate::simulate;

/// Why the server did not start, or ended badly.
#[derive(Debug)]
pub enum Failure {
    /// What the user gave does not work: exit code 2.
    Input(Box<dyn std::error::Error + Send + Sync>),
    Runtime(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Runtime(error)
    }
}

/// A value of a command's argument that makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("--{flag}: {message}")]
struct BadArgument {
    flag: &'static str,
    message: String,
}

fn bad(flag: &'static str, message: impl Into<String>) -> Failure {
    input(BadArgument { flag, message: message.into() })
}

fn input(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::Input(Box::new(error))
}

/// Threads for compute: what was configured, else what the container's quota allows.
pub fn compute_threads(config: &Config) -> usize {
    config.engine.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}

/// Loads the model, starts the workers and serves until a signal comes and everything under way has ended.
pub fn serve(loaded: Loaded) -> Result<End, Failure> {
    let config = loaded.config.clone();
    let (level, lines) = logging::init(&config.logging);
    // The failpoints of `FAILPOINTS`, in builds for tests.
    let _scenario = fail::has_failpoints().then(fail::FailScenario::setup);
    let clock = Clock::system();
    // Bound first: a port that is taken should not cost the loading of a model.
    let listeners = listeners::bind(&config.server)?;
    let runtime = http::runtime()?;
    // So should a store that cannot be used.
    let store = Store::new(config.store.clone());
    runtime.block_on(store.open()).map_err(input)?;
    let keys = keeper::open(&config, &runtime, &store, &clock)?;
    let spans = Telemetry::start(&config.tracing, &clock, runtime.handle()).map_err(input)?;
    let export = spans.as_ref().map(|(_, export, _)| export.clone());
    let workers = workers::start(&config, &clock, export)?;
    // What loading needed is no longer needed.
    forebay_model::release_freed();
    let lost = lines.lost.clone();
    http::serve(loaded, runtime, Serving { listeners, store, keys, workers, clock, level, lost, spans })
}
