//! What a key is. All of them are in `table`: validation, `--help`, `forebay config` and the test of config.yaml read it.

pub use super::table::KEYS;

/// What a key may hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Text,
    /// A comma-separated list, or a YAML one.
    List,
    Bool,
    Integer {
        min: u64,
        max: u64,
    },
    /// `auto` or an integer.
    AutoInteger {
        min: u64,
        max: u64,
    },
    /// `auto` or a positive number.
    AutoGiB,
    /// A number with a unit: `250ms`, `30s`, `5m`, `1h`.
    Duration {
        min_ms: u64,
        max_ms: u64,
    },
    /// Any number, fractions included.
    Number {
        min: f64,
        max: f64,
    },
    /// A part of a whole, above 0 and at most 1.
    Share,
    OneOf(&'static [&'static str]),
}

/// One key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    pub default: &'static str,
    pub kind: Kind,
    pub help: &'static str,
}

pub(super) const fn key(name: &'static str, default: &'static str, kind: Kind, help: &'static str) -> Key {
    Key { name, default, kind, help }
}

/// Names that clap turns into flags of `serve` and `config`: `--port` is `server.port`.
pub const FLAGS: &[(&str, &str)] = &[
    ("host", "server.host"),
    ("port", "server.port"),
    ("insecure", "server.insecure"),
    ("require-keys", "keys.required"),
    ("tls-cert", "server.tls_cert"),
    ("tls-key", "server.tls_key"),
    ("unix-socket", "server.unix_socket"),
    ("admin-listen", "server.admin_listen"),
    ("model", "model.path"),
    ("served-model-name", "model.served_names"),
    ("load-format", "model.load_format"),
    ("quantize", "model.quantize"),
    ("lora", "model.lora"),
    ("device", "model.device"),
    ("dtype", "model.dtype"),
    ("tool-parser", "model.tool_parser"),
    ("reasoning-parser", "model.reasoning_parser"),
    ("pooling", "model.pooling"),
    ("admin", "server.admin"),
    ("trusted-proxies", "server.trusted_proxies"),
    ("queue-capacity", "batching.queue_capacity"),
    ("queue-token-capacity", "batching.queue_token_capacity"),
    ("strategy", "batching.strategy"),
    ("policy", "batching.policy"),
    ("max-stall-ms", "batching.max_stall_ms"),
    ("thermal-path", "thermal.path"),
    ("max-num-seqs", "engine.max_num_seqs"),
    ("max-num-batched-tokens", "engine.max_num_batched_tokens"),
    ("max-model-len", "engine.max_model_len"),
    ("preemption", "engine.preemption"),
    ("multi-step-count", "engine.multi_step_count"),
    ("threads", "engine.threads"),
    ("drain-delay", "server.drain_delay"),
    ("drain-timeout", "engine.drain_timeout"),
    ("block-size", "kv_cache.block_size"),
    ("kv-memory", "kv_cache.memory"),
    ("kv-dtype", "kv_cache.dtype"),
    ("speculative", "engine.speculative"),
    ("kv-events", "kv_events.endpoint"),
    ("kv-events-replay", "kv_events.replay_endpoint"),
    ("kv-events-topic", "kv_events.topic"),
    ("workers", "workers.count"),
    ("upstreams", "workers.upstreams"),
    ("balancer", "workers.balancer"),
    ("store", "store.url"),
    ("log-level", "logging.level"),
    ("log-format", "logging.format"),
    ("otlp-endpoint", "tracing.otlp_endpoint"),
];

pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The environment variable of a key: `server.port` is `FOREBAY__SERVER__PORT`.
pub fn env_name(key: &str) -> String {
    format!("FOREBAY__{}", key.to_uppercase().replace('.', "__"))
}

impl Kind {
    /// The allowed values, for messages.
    pub fn range(&self) -> String {
        match self {
            Kind::Text => "text".into(),
            Kind::List => "a list of names".into(),
            Kind::Bool => "true or false".into(),
            Kind::Integer { min, max } => format!("an integer from {min} to {max}"),
            Kind::AutoInteger { min, max } => format!("auto or an integer from {min} to {max}"),
            Kind::AutoGiB => "auto or a positive number of GiB".into(),
            Kind::Duration { min_ms, max_ms } => {
                format!("a duration with a unit (ms, s, m, h) from {min_ms}ms to {}s", max_ms / 1_000)
            }
            Kind::Number { min, max } => format!("a number from {min} to {max}"),
            Kind::Share => "a number above 0 and at most 1".into(),
            Kind::OneOf(names) => format!("one of {}", names.join(", ")),
        }
    }
}
