//! The composition root: configuration in, a running server out, drained in order and everything joined.
//!
//! Two runtimes: the engine's, on a thread of its own, whose blocking thread runs the steps; and the HTTP face's. A step
//! never occupies a thread that answers probes.

mod bench;
mod engine;
mod http;
#[cfg(feature = "hub")]
mod hub;
mod inspect;
mod logging;
mod memory;
mod signals;
mod simulate;
mod source;
mod thermal;

use crate::clock::Clock;
use crate::config::Config;

pub use bench::{bench, calibrate};
pub use inspect::inspect;
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

/// Loads the model, starts the engine and serves until a signal comes and everything under way has ended.
pub fn serve(config: Config) -> Result<(), Failure> {
    logging::init(&config.logging);
    let clock = Clock::system();
    // Bound first: a port that is taken should not cost the loading of a model.
    let listener = http::bind(&config.server)?;
    let engine = engine::start(&config, &clock)?;
    // What loading needed is no longer needed.
    crate::model::release_freed();
    http::serve(&config, listener, engine, clock)
}
