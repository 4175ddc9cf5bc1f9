//! Logs on stdout: readable on a terminal, JSON lines otherwise. Prompts and keys never get here.

use std::io::{IsTerminal, stdout};

use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, LoggingConfig};

/// `RUST_LOG` goes before the configured level. A second call (tests) changes nothing.
pub fn init(config: &LoggingConfig) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(config.level.as_str()));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stdout);
    let pretty = match config.format {
        LogFormat::Auto => stdout().is_terminal(),
        LogFormat::Pretty => true,
        LogFormat::Json => false,
    };
    let _ = if pretty {
        builder.with_target(false).with_ansi(std::env::var_os("NO_COLOR").is_none()).try_init()
    } else {
        builder.json().try_init()
    };
}
