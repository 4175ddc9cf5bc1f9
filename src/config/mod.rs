//! What the user wrote (`raw`, `cli`) and what it means: one typed, validated struct, a part per room.
//!
//! Precedence: flags, environment (`FOREBAY__SERVER__PORT`), file, defaults. `keys` says what a key is, `table` has them all.

mod cli;
mod engine;
mod error;
mod keys;
mod kv_events;
mod live;
mod operator;
mod place;
mod proxies;
mod raw;
mod server;
mod table;
mod telling;
mod tools;
mod tracing;
mod values;
mod workers;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use forebay_core::intake;
use forebay_core::request::Pooling;
use forebay_core::scheduler::policy::PolicyConfig;
use forebay_engine::metrics;
use forebay_model::{DeviceChoice, Dtype, KvDtype, LoadFormat, LoadOptions, Quantised};
use forebay_store::Location;
use forebay_store::jobs;
use forebay_store::keys as api_keys;
use forebay_text::{ParserChoice, ParserChoices, ReasoningFamily, ToolFamily};

pub use cli::{Command, DoctorFormat, InspectFormat};
pub use engine::{EngineConfig, ThermalConfig};
pub use error::ConfigError;
pub use kv_events::KvEventsConfig;
use live::Source;
pub use live::{Difference, Effect};
pub use operator::{DbArgs, KeysArgs, UsageArgs};
pub use place::Place;
use raw::Merged;
pub use server::{AdminAccess, ServerConfig, TlsFiles};
pub use telling::{LogFormat, LoggingConfig};
pub use tools::{BenchArgs, CalibrateArgs, SimulateArgs, TargetArgs};
pub use tracing::TracingConfig;
use values::Reader;
pub use workers::{Simulated, WorkersConfig};

/// The server's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub server: ServerConfig,
    pub model: ModelConfig,
    pub intake: intake::Config,
    pub policy: PolicyConfig,
    pub thermal: ThermalConfig,
    pub engine: EngineConfig,
    pub kv_cache: KvCacheConfig,
    /// `None` tells nobody.
    pub kv_events: Option<KvEventsConfig>,
    pub structured_output: StructuredOutputConfig,
    pub metrics: metrics::Config,
    pub workers: WorkersConfig,
    pub store: forebay_store::Config,
    pub keys: api_keys::Config,
    pub jobs: jobs::Config,
    /// Of an upload.
    pub max_file_bytes: usize,
    pub logging: LoggingConfig,
    pub tracing: TracingConfig,
}

#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// As the user wrote it: empty, a path, a hub id, or [`ModelConfig::SIMULATED`]; `app` resolves it.
    pub reference: String,
    pub options: LoadOptions,
    /// The first is shown; empty means the model's own.
    pub served_names: Vec<String>,
    /// Names of the adapters in `options`, in their order.
    pub adapters: Vec<String>,
    /// Who reads the answers of chats.
    pub parsers: ParserChoices,
    /// `None` is what the model says.
    pub pooling: Option<Pooling>,
}

impl ModelConfig {
    /// No model, but what one would cost.
    pub const SIMULATED: &str = "sim";

    pub fn is_simulated(&self) -> bool {
        self.reference == ModelConfig::SIMULATED
    }
}

#[derive(Clone, Debug)]
pub struct KvCacheConfig {
    /// Tokens per block.
    pub block_size: usize,
    /// `None` is a share of what is free.
    pub memory_bytes: Option<usize>,
    /// Whether requests that begin alike share blocks.
    pub prefix_caching: bool,
}

#[derive(Clone, Debug)]
pub struct StructuredOutputConfig {
    /// Of one schema or grammar.
    pub max_bytes: usize,
    pub compile_timeout: Duration,
    /// Compiled grammars that are kept.
    pub cache_entries: usize,
}

/// A configuration and where its values came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: Config,
    merged: Merged,
    source: Source,
}

impl Loaded {
    /// `key = value  # origin`, a line per key that may be set.
    pub fn describe(&self) -> String {
        let shown = |name: &str, text: &str| match name {
            "keys.secret" if !text.is_empty() => "***".to_owned(),
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
pub fn embedded(model: Option<&str>, file: Option<&std::path::Path>) -> Result<Config, ConfigError> {
    let flags: Vec<_> = model.map(|model| ("model", "model.path", model.to_owned())).into_iter().collect();
    Ok(load(file, BTreeMap::new(), &flags)?.config)
}

fn environment() -> BTreeMap<String, String> {
    // What is not UTF-8 must not be ignored; with its marks it is refused like any other bad value.
    let text = |raw: std::ffi::OsString| raw.to_string_lossy().into_owned();
    let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
    variables.filter(|(name, _)| name.starts_with("FOREBAY__")).collect()
}

fn load(
    file: Option<&std::path::Path>,
    environment: BTreeMap<String, String>,
    flags: &[(&'static str, &'static str, String)],
) -> Result<Loaded, ConfigError> {
    let merged = raw::merge(file, environment, flags)?;
    let config = typed(&Reader::new(&merged))?;
    let source = Source { file: file.map(Into::into), flags: flags.to_vec() };
    Ok(Loaded { config, merged, source })
}

fn typed(read: &Reader) -> Result<Config, ConfigError> {
    let model = model(read)?;
    Ok(Config {
        server: server::server(read)?,
        workers: workers::workers(read, &model.reference)?,
        model,
        intake: engine::intake(read)?,
        policy: engine::policy(read)?,
        thermal: engine::thermal(read)?,
        engine: engine::engine(read)?,
        kv_cache: KvCacheConfig {
            block_size: read.integer("kv_cache.block_size")? as usize,
            memory_bytes: read.gib("kv_cache.memory")?,
            prefix_caching: read.boolean("kv_cache.prefix_caching")?,
        },
        kv_events: kv_events::kv_events(read)?,
        structured_output: StructuredOutputConfig {
            max_bytes: read.integer("structured_output.max_bytes")? as usize,
            compile_timeout: read.duration("structured_output.compile_timeout")?,
            cache_entries: read.integer("structured_output.cache_entries")? as usize,
        },
        metrics: telling::metrics(read)?,
        store: store_config(read)?,
        keys: server::keys(read)?,
        jobs: jobs::Config { concurrency: read.integer("batches.concurrency")? as usize },
        max_file_bytes: read.integer("batches.max_file_bytes")? as usize,
        logging: telling::logging(read)?,
        tracing: tracing::config(read)?,
    })
}

fn store_config(read: &Reader) -> Result<forebay_store::Config, ConfigError> {
    let location = Location::parse(read.text("store.url"));
    Ok(forebay_store::Config {
        location: location.ok_or_else(|| read.refuse("store.url", Location::FORMS.into()))?,
        max_mib: Some(read.integer("store.max_mib")? as u32).filter(|mib| *mib > 0),
    })
}

fn model(read: &Reader) -> Result<ModelConfig, ConfigError> {
    let formats = [("auto", LoadFormat::Auto), ("dummy", LoadFormat::Dummy)];
    let quantisations = [("none", None), ("q8_0", Some(Quantised::Q8_0)), ("q4_k", Some(Quantised::Q4K))];
    let (adapters, paths) = adapters(read)?.into_iter().unzip();
    let options = LoadOptions {
        adapters: paths,
        device: device(read)?,
        format: read.one_of("model.load_format", &formats)?,
        seed: read.integer("model.seed")?,
        quantise: read.one_of("model.quantize", &quantisations)?,
        context: read.auto("engine.max_model_len")?.map(|n| n as u32),
        kv_dtype: kv_dtype(read)?,
        dtype: dtype(read)?,
        cuda_graphs: read.boolean("model.cuda_graphs")?,
    };
    Ok(ModelConfig {
        reference: read.text("model.path").into(),
        options,
        served_names: read.list("model.served_names"),
        adapters,
        parsers: ParserChoices {
            tools: parser(read, "model.tool_parser", &ToolFamily::ALL.map(|family| (family.name(), family)))?,
            reasoning: parser(
                read,
                "model.reasoning_parser",
                &ReasoningFamily::ALL.map(|family| (family.name(), family)),
            )?,
        },
        pooling: pooling(read)?,
    })
}

/// `name=folder`, each name once and none of the model's own.
fn adapters(read: &Reader) -> Result<Vec<(String, PathBuf)>, ConfigError> {
    const KEY: &str = "model.lora";
    let mut taken = read.list("model.served_names");
    let mut adapters = Vec::new();
    for entry in read.list(KEY) {
        let pair = entry.split_once('=').map(|(name, path)| (name.trim().to_owned(), PathBuf::from(path.trim())));
        match pair {
            Some((name, path)) if !name.is_empty() && !path.as_os_str().is_empty() && !taken.contains(&name) => {
                taken.push(name.clone());
                adapters.push((name, path));
            }
            _ => return Err(read.refuse(KEY, "a list of name=folder, each with a name of its own".to_owned())),
        }
    }
    Ok(adapters)
}

fn pooling(read: &Reader) -> Result<Option<Pooling>, ConfigError> {
    let named = Pooling::ALL.map(|pooling| (pooling.name(), Some(pooling)));
    let choices: Vec<_> = [("auto", None)].into_iter().chain(named).collect();
    read.one_of("model.pooling", &choices)
}

fn parser<F: Copy>(read: &Reader, key: &'static str, families: &[(&str, F)]) -> Result<ParserChoice<F>, ConfigError> {
    let named = families.iter().map(|(name, family)| (*name, ParserChoice::Named(*family)));
    let choices: Vec<_> =
        [("auto", ParserChoice::Auto), ("none", ParserChoice::Off)].into_iter().chain(named).collect();
    read.one_of(key, &choices)
}

fn kv_dtype(read: &Reader) -> Result<Option<KvDtype>, ConfigError> {
    let mut choices = vec![("auto", None)];
    choices.extend(KvDtype::ALL.map(|dtype| (dtype.name(), Some(dtype))));
    read.one_of("kv_cache.dtype", &choices)
}

fn dtype(read: &Reader) -> Result<Option<Dtype>, ConfigError> {
    let named = Dtype::ALL.map(|dtype| (dtype.name(), Some(dtype)));
    let choices: Vec<_> = [("auto", None)].into_iter().chain(named).collect();
    read.one_of("model.dtype", &choices)
}

fn device(read: &Reader) -> Result<DeviceChoice, ConfigError> {
    match read.text("model.device") {
        "auto" => Ok(DeviceChoice::Auto),
        "cpu" => Ok(DeviceChoice::Cpu),
        "metal" => Ok(DeviceChoice::Metal),
        "cuda" => Ok(DeviceChoice::Cuda(0)),
        other => match other.strip_prefix("cuda:").and_then(|n| n.parse().ok()) {
            Some(ordinal) => Ok(DeviceChoice::Cuda(ordinal)),
            None => Err(read.refuse("model.device", "auto, cpu, cuda:N or metal".into())),
        },
    }
}

#[cfg(test)]
mod tests;
