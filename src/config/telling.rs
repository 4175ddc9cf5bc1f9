//! `metrics` and `logging`: what the server tells of itself.

use forebay_core::units::Micros;
use forebay_engine::metrics::{self, Compat};

use super::ConfigError;
use super::values::Reader;

#[derive(Clone, Debug)]
pub struct LoggingConfig {
    pub level: String,
    pub format: LogFormat,
    /// Whether each request is told of.
    pub access: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Auto,
    Pretty,
    Json,
}

pub fn metrics(read: &Reader) -> Result<metrics::Config, ConfigError> {
    let config = metrics::Config {
        interval: read.micros("metrics.collection_interval")?,
        percentile_window: read.integer("metrics.percentile_window_size")? as usize,
        retention: read.micros("metrics.history_retention")?,
        compat: compat(read)?,
        kept_every: Some(read.micros("metrics.snapshot_interval")?).filter(|every| *every > Micros::ZERO),
        kept_for: read.micros("metrics.snapshot_retention")?,
    };
    if config.retention < config.interval {
        let message = "is shorter than metrics.collection_interval".to_owned();
        return Err(read.contradiction("metrics", "history_retention", message));
    }
    Ok(config)
}

/// A list of other servers' names, or `none`.
fn compat(read: &Reader) -> Result<Vec<Compat>, ConfigError> {
    const KEY: &str = "metrics.compat";
    let named = read.list(KEY);
    if named == ["none"] {
        return Ok(Vec::new());
    }
    let one = |name: &String| Compat::ALL.into_iter().find(|compat| compat.name() == name);
    let all: Option<Vec<Compat>> = named.iter().map(one).collect();
    let all = all.filter(|all| !all.is_empty());
    all.ok_or_else(|| read.refuse(KEY, "none, or a list of vllm and llama-server".to_owned()))
}

pub fn logging(read: &Reader) -> Result<LoggingConfig, ConfigError> {
    Ok(LoggingConfig {
        level: read.log_level("logging.level")?,
        access: read.boolean("logging.access")?,
        format: read.one_of(
            "logging.format",
            &[("auto", LogFormat::Auto), ("pretty", LogFormat::Pretty), ("json", LogFormat::Json)],
        )?,
    })
}
