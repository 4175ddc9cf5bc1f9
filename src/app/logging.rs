//! Logs on stdout: readable on a terminal, JSON lines otherwise. Prompts and keys never get here.
//!
//! Lines are handed to a thread that writes them: a pipe that nobody reads, or a slow terminal, holds nobody up.

use std::io::{IsTerminal, stdout};

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt};

use crate::api::Waits;
use crate::config::{LogFormat, LoggingConfig};

/// Lines that wait to be written. Later ones are dropped, and counted.
const WAITING: usize = 16_384;

/// The way out of the process. What waits is written when it is dropped, within a second.
pub struct Lines {
    _writer: WorkerGuard,
    pub lost: ErrorCounter,
}

/// What is logged, while the server runs. Cheap to clone.
#[derive(Clone)]
pub struct Level {
    /// `None` where `RUST_LOG` has the word.
    handle: Option<Handle<EnvFilter, Registry>>,
}

/// `RUST_LOG` goes before the configured level. A second call (tests) changes nothing.
pub fn init(config: &LoggingConfig) -> (Level, Lines) {
    let from_environment = EnvFilter::try_from_default_env().ok();
    let fixed = from_environment.is_some();
    let filter = from_environment.unwrap_or_else(|| EnvFilter::new(config.level.as_str()));
    let (filter, handle) = reload::Layer::new(filter);
    let pretty = match config.format {
        LogFormat::Auto => stdout().is_terminal(),
        LogFormat::Pretty => true,
        LogFormat::Json => false,
    };
    let registry = tracing_subscriber::registry().with(filter);
    let (waiting, writer) =
        NonBlockingBuilder::default().buffered_lines_limit(WAITING).lossy(true).thread_name("log").finish(stdout());
    let lost = waiting.error_counter();
    let lines = fmt::layer().with_writer(waiting);
    let _ = if pretty {
        registry.with(lines.with_target(false).with_ansi(std::env::var_os("NO_COLOR").is_none())).try_init()
    } else {
        registry.with(lines.json()).try_init()
    };
    (Level { handle: (!fixed).then_some(handle) }, Lines { _writer: writer, lost })
}

impl Level {
    pub fn parse(&self, config: &LoggingConfig) -> Result<EnvFilter, String> {
        EnvFilter::try_new(&config.level).map_err(|error| format!("logging.level = {:?}: {error}", config.level))
    }

    /// Puts it in force, or says why not.
    pub fn put(&self, filter: EnvFilter, config: &LoggingConfig) -> Option<Waits> {
        let why = match &self.handle {
            Some(handle) => handle.reload(filter).err()?.to_string(),
            None if std::env::var("RUST_LOG").is_ok_and(|level| level == config.level) => return None,
            None => "RUST_LOG goes before it".into(),
        };
        let from = std::env::var("RUST_LOG").unwrap_or_default();
        Some(Waits { key: "logging.level".into(), from, to: config.level.clone(), why })
    }
}
