//! What the user wrote (`raw`, `cli`) and what it means: one typed, validated struct, a part per room.
//!
//! Precedence: flags, environment (`FOREBAY__SERVER__PORT`), file, defaults. `keys` is the table that all of it reads.

mod cli;
mod keys;
mod live;
mod place;
mod raw;
mod tools;
mod tracing;
mod values;
mod workers;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::intake::{self, Capacity, FairnessConfig, FlushConfig, StrategyKind};
use crate::jobs;
use crate::model::{DeviceChoice, KvDtype, LoadFormat, LoadOptions, Quantised};
use crate::request::Pooling;
use crate::scheduler::policy::{PolicyConfig, PolicyKind};
use crate::scheduler::thermal::Thresholds;
use crate::scheduler::{Preemption, Speculative};
use crate::store::{self, Location};
use crate::text::{ParserChoice, ParserChoices, ReasoningFamily, ToolFamily};
use crate::units::Micros;

pub use cli::{Command, DoctorFormat, InspectFormat};
use live::Source;
pub use live::{Difference, Effect};
pub use place::Place;
use raw::{Merged, Origin};
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
    pub structured_output: StructuredOutputConfig,
    pub workers: WorkersConfig,
    pub store: store::Config,
    pub jobs: jobs::Config,
    /// Of an upload.
    pub max_file_bytes: usize,
    pub logging: LoggingConfig,
    pub tracing: TracingConfig,
}

#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub host: IpAddr,
    pub port: u16,
    /// A body must arrive within.
    pub read_timeout: Duration,
    /// A client may take nothing for so long.
    pub write_timeout: Duration,
    /// A request's head must arrive within.
    pub header_timeout: Duration,
    pub max_body_bytes: usize,
    pub max_connections: usize,
    pub admin: AdminAccess,
    /// Told to end, the server takes requests for so long, not ready.
    pub drain_delay: Duration,
}

/// Who may use `/admin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminAccess {
    Loopback,
    Any,
    Off,
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
pub struct ThermalConfig {
    /// A folder of thermal zones; `None` reads none.
    pub path: Option<PathBuf>,
    pub interval: Duration,
    pub thresholds: Thresholds,
}

#[derive(Clone, Debug)]
pub struct EngineConfig {
    pub max_num_seqs: usize,
    pub max_num_batched_tokens: usize,
    /// `None` is the model's context.
    pub max_model_len: Option<u32>,
    pub preemption: Preemption,
    /// How long prefills may keep running streams waiting; `None` is for ever.
    pub max_stall: Option<Micros>,
    pub multi_step_count: usize,
    /// Whether the next step is planned while one runs.
    pub overlap: bool,
    /// `None` is what the container may use.
    pub threads: Option<usize>,
    pub drain_timeout: Duration,
    pub stall_timeout: Duration,
    /// Whether decodes carry guesses at how they go on.
    pub speculative: Speculative,
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

/// What is wrong with what the user wrote.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("unknown key {key} ({origin}){}", similar.map(|key| format!("; did you mean {key}?")).unwrap_or_default())]
    UnknownKey { key: String, origin: Origin, similar: Option<&'static str> },
    #[error("{key} ({origin}) cannot be set: {feature} are not in this version of Forebay; remove the key")]
    NotYet { key: String, origin: Origin, feature: &'static str },
    #[error("{key} = {value:?} ({origin}) is not allowed: it must be {allowed}")]
    BadValue { key: &'static str, value: String, origin: Origin, allowed: String },
    #[error("{section}.{param}{} contradicts another key: {message}", place.map(|at| format!(" (line {at})")).unwrap_or_default())]
    Contradiction { section: &'static str, param: &'static str, message: String, place: Option<Place> },
    #[error("{}:{place}: {message}", path.display())]
    Syntax { path: PathBuf, place: Place, message: String },
    #[error("{}: {message}", path.display())]
    File { path: PathBuf, message: String },
    #[error(
        "server.host is {host}, which others can reach, and there are no API keys: set server.insecure (--insecure) if that is meant"
    )]
    OpenToOthers { host: IpAddr },
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
        let settable = |name: &str| keys::find(name).is_some_and(|key| !matches!(key.kind, keys::Kind::NotYet(_)));
        let entries = self.merged.iter().filter(|(name, _)| settable(name));
        entries
            .map(|(name, entry)| format!("{name} = {}  # {}\n", store::without_password(&entry.text), entry.origin))
            .collect()
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
        Command::Serve | Command::Config | Command::Simulate(_) | Command::Doctor { .. } => environment(),
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
        server: server(read)?,
        workers: workers::workers(read, &model.reference)?,
        model,
        intake: intake(read)?,
        policy: policy(read)?,
        thermal: thermal(read)?,
        engine: engine(read)?,
        kv_cache: KvCacheConfig {
            block_size: read.integer("kv_cache.block_size")? as usize,
            memory_bytes: read.gib("kv_cache.memory")?,
            prefix_caching: read.boolean("kv_cache.prefix_caching")?,
        },
        structured_output: StructuredOutputConfig {
            max_bytes: read.integer("structured_output.max_bytes")? as usize,
            compile_timeout: read.duration("structured_output.compile_timeout")?,
            cache_entries: read.integer("structured_output.cache_entries")? as usize,
        },
        store: store_config(read)?,
        jobs: jobs::Config { concurrency: read.integer("batches.concurrency")? as usize },
        max_file_bytes: read.integer("batches.max_file_bytes")? as usize,
        logging: LoggingConfig {
            level: read.log_level("logging.level")?,
            access: read.boolean("logging.access")?,
            format: read.one_of(
                "logging.format",
                &[("auto", LogFormat::Auto), ("pretty", LogFormat::Pretty), ("json", LogFormat::Json)],
            )?,
        },
        tracing: tracing::config(read)?,
    })
}

fn store_config(read: &Reader) -> Result<store::Config, ConfigError> {
    let location = Location::parse(read.text("store.url"));
    Ok(store::Config {
        location: location.ok_or_else(|| read.refuse("store.url", Location::FORMS.into()))?,
        max_mib: Some(read.integer("store.max_mib")? as u32).filter(|mib| *mib > 0),
    })
}

fn server(read: &Reader) -> Result<ServerConfig, ConfigError> {
    let host: IpAddr = read.parsed("server.host", "an IP address, such as 127.0.0.1, 0.0.0.0 or ::1")?;
    let insecure = read.boolean("server.insecure")?;
    if !host.is_loopback() && !insecure {
        return Err(ConfigError::OpenToOthers { host });
    }
    Ok(ServerConfig {
        host,
        port: read.integer("server.port")? as u16,
        read_timeout: read.duration("server.read_timeout")?,
        write_timeout: read.duration("server.write_timeout")?,
        header_timeout: read.duration("server.header_timeout")?,
        max_body_bytes: read.integer("server.max_body_bytes")? as usize,
        max_connections: read.integer("server.max_connections")? as usize,
        drain_delay: read.duration("server.drain_delay")?,
        admin: read.one_of(
            "server.admin",
            &[("loopback", AdminAccess::Loopback), ("any", AdminAccess::Any), ("off", AdminAccess::Off)],
        )?,
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

fn intake(read: &Reader) -> Result<intake::Config, ConfigError> {
    let whole = |key| read.integer(key).map(|n| n as usize);
    let config = intake::Config {
        capacity: Capacity {
            requests: whole("batching.queue_capacity")?,
            tokens: whole("batching.queue_token_capacity")?,
        },
        flush: FlushConfig {
            strategy: read.one_of("batching.strategy", &StrategyKind::ALL.map(|kind| (kind.name(), kind)))?,
            min_batch_size: whole("batching.min_batch_size")?,
            max_batch_size: whole("batching.max_batch_size")?,
            min_wait: read.ms("batching.min_wait_ms")?,
            max_wait: read.ms("batching.max_wait_ms")?,
            queue_depth_low: whole("batching.queue_depth_low_threshold")?,
            queue_depth_high: whole("batching.queue_depth_high_threshold")?,
            target_p99: read.ms("batching.target_p99_ms")?,
            idle_release: read.boolean("batching.idle_release")?,
            bucketing: read.boolean("batching.token_bucketing_enabled")?,
            priorities: read.boolean("batching.priority_enabled")?,
        },
        max_waits: [
            read.ms("batching.max_wait_critical_ms")?,
            read.ms("batching.max_wait_high_ms")?,
            read.ms("batching.max_wait_normal_ms")?,
            read.ms("batching.max_wait_low_ms")?,
        ],
        aging: read.ms("batching.aging_ms")?,
        fairness: FairnessConfig {
            max_seat_share: read.share("batching.fair_share_max")?,
            ..FairnessConfig::default()
        },
        queue_timeout: read.micros("batching.queue_timeout")?,
    };
    config.check().map_err(|(param, message)| read.contradiction("batching", param, message))?;
    Ok(config)
}

fn policy(read: &Reader) -> Result<PolicyConfig, ConfigError> {
    Ok(PolicyConfig {
        kind: read.one_of("batching.policy", &PolicyKind::ALL.map(|kind| (kind.name(), kind)))?,
        decode_burst_budget: read.integer("batching.decode_burst_budget")? as usize,
        ..PolicyConfig::default()
    })
}

fn thermal(read: &Reader) -> Result<ThermalConfig, ConfigError> {
    let celsius = |key| read.integer(key).map(|n| n as f64);
    let thresholds = Thresholds {
        fair: celsius("thermal.fair_celsius")?,
        serious: celsius("thermal.serious_celsius")?,
        critical: celsius("thermal.critical_celsius")?,
        emergency: celsius("thermal.emergency_celsius")?,
    };
    if ![thresholds.fair, thresholds.serious, thresholds.critical, thresholds.emergency].is_sorted() {
        let message = "fair, serious, critical and emergency must rise".to_owned();
        return Err(read.contradiction("thermal", "fair_celsius", message));
    }
    let path = Some(read.text("thermal.path")).filter(|path| !path.is_empty()).map(PathBuf::from);
    Ok(ThermalConfig { path, interval: read.duration("thermal.interval")?, thresholds })
}

fn engine(read: &Reader) -> Result<EngineConfig, ConfigError> {
    let victims = [
        ("most_recent", Preemption::MostRecent),
        ("longest", Preemption::Longest),
        ("lowest_priority", Preemption::LowestPriority),
    ];
    Ok(EngineConfig {
        max_num_seqs: read.integer("engine.max_num_seqs")? as usize,
        max_num_batched_tokens: read.integer("engine.max_num_batched_tokens")? as usize,
        max_model_len: read.auto("engine.max_model_len")?.map(|n| n as u32),
        speculative: read.one_of("engine.speculative", &Speculative::ALL.map(|kind| (kind.name(), kind)))?,
        preemption: read.one_of("engine.preemption", &victims)?,
        max_stall: Some(read.ms("batching.max_stall_ms")?).filter(|stall| *stall > Micros::ZERO),
        multi_step_count: read.integer("engine.multi_step_count")? as usize,
        overlap: read.boolean("engine.overlap")?,
        threads: read.auto("engine.threads")?.map(|n| n as usize),
        drain_timeout: read.duration("engine.drain_timeout")?,
        stall_timeout: read.duration("engine.stall_timeout")?,
    })
}

#[cfg(test)]
mod tests;
