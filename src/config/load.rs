//! Reading the configuration: layers of text, merged by precedence, walked through the table, and checked as a whole.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::checks::Reader;
use super::cli::{self, Command};
use super::error::ConfigError;
use super::origin::{Flag, Merged};
use super::whole::Config;
use super::{engine, kv_events, model, raw, server, table, workers};

/// A configuration and where its values came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: Config,
    pub(super) merged: Merged,
    pub(super) source: Source,
}

/// What is read again at a reload; flags stay as they were.
#[derive(Clone, Debug, Default)]
pub(super) struct Source {
    pub file: Option<PathBuf>,
    pub flags: Vec<Flag>,
}

impl Loaded {
    /// `key = value  # origin`, a line per key that may be set.
    pub fn describe(&self) -> String {
        let shown = |name: &str, text: &str| match table::find(name) {
            Some(row) if row.is_secret && !text.is_empty() => "***".to_owned(),
            _ => forebay_store::without_password(text),
        };
        let entries = self.merged.iter();
        entries.map(|(name, entry)| format!("{name} = {}  # {}\n", shown(name, &entry.text), entry.origin)).collect()
    }
}

/// Reads flags, environment and file. Mistakes on the command line end the process with code 2, as clap does. A mistake
/// elsewhere is the doctor's to tell.
pub fn from_args() -> Result<(Command, Loaded), ConfigError> {
    let mut parsed = cli::parse();
    // A probe, a look at files and a load on another server need no configuration, and must not fail for a bad one.
    let environment = match parsed.command {
        Command::Health { .. }
        | Command::Inspect { .. }
        | Command::Quantize { .. }
        | Command::Bench(_)
        | Command::Calibrate(_) => BTreeMap::new(),
        Command::Serve
        | Command::Config
        | Command::Simulate(_)
        | Command::Keys(_)
        | Command::Usage(_)
        | Command::Db(_)
        | Command::Doctor { .. } => environment(),
    };
    let loaded = match (load(parsed.file.as_deref(), environment, &parsed.flags), &mut parsed.command) {
        (Err(error), Command::Doctor { mistake, .. }) => {
            *mistake = Some(error.to_string());
            load(None, BTreeMap::new(), &[])?
        }
        (loaded, _) => loaded?,
    };
    Ok((parsed.command, loaded))
}

/// The configuration of an engine inside another program: `file`, and over it a model; no environment.
#[cfg(any(feature = "capi", test))]
pub fn embedded(model: Option<&str>, file: Option<&Path>) -> Result<Config, ConfigError> {
    let flags: Vec<_> = model.map(|model| ("model", "model.path", model.to_owned())).into_iter().collect();
    Ok(load(file, BTreeMap::new(), &flags)?.config)
}

pub(super) fn environment() -> BTreeMap<String, String> {
    // What is not UTF-8 must not be ignored; with its marks it is refused like any other bad value.
    let text = |raw: OsString| raw.to_string_lossy().into_owned();
    let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
    variables.filter(|(name, _)| name.starts_with("FOREBAY__")).collect()
}

pub(super) fn load(
    file: Option<&Path>,
    environment: BTreeMap<String, String>,
    flags: &[Flag],
) -> Result<Loaded, ConfigError> {
    let merged = raw::merge(file, environment, flags)?;
    let config = typed(&merged)?;
    let source = Source { file: file.map(Into::into), flags: flags.to_vec() };
    Ok(Loaded { config, merged, source })
}

/// Each row reads its text; then what no row can see is checked.
fn typed(merged: &Merged) -> Result<Config, ConfigError> {
    let read = Reader::new(merged);
    let mut config = Config::default();
    for row in table::table() {
        row.put(&mut config, read.text(row.key)).map_err(|allowed| read.refuse(row.key, allowed))?;
    }
    check(&mut config, &read)?;
    Ok(config)
}

fn check(config: &mut Config, read: &Reader) -> Result<(), ConfigError> {
    server::check(&config.server, &config.keys, read)?;
    model::check(&config.model, read)?;
    workers::resolve(&mut config.workers, &config.model.reference, read)?;
    config.intake.check().map_err(|(param, message)| read.contradiction("batching", param, message))?;
    let policy = config.scheduler.policy.check();
    policy.map_err(|error| read.contradiction("batching", error.param(), error.to_string()))?;
    engine::check_thermal(&config.thermal, read)?;
    kv_events::check(&config.kv_events, config.scheduler.prefix_caching, read)?;
    if config.metrics.retention < config.metrics.interval {
        let message = "is shorter than metrics.collection_interval".to_owned();
        return Err(read.contradiction("metrics", "history_retention", message));
    }
    Ok(())
}
