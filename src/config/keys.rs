//! Every key in one table: validation, `--help`, `forebay config` and the test of config.yaml read it.

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

const fn key(name: &'static str, default: &'static str, kind: Kind, help: &'static str) -> Key {
    Key { name, default, kind, help }
}

const COUNT: Kind = Kind::Integer { min: 1, max: 10_000_000 };
const DEPTH: Kind = Kind::Integer { min: 0, max: 10_000_000 };
const MILLIS: Kind = Kind::Integer { min: 0, max: HOUR };
const CELSIUS: Kind = Kind::Integer { min: 1, max: 150 };

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

pub const KEYS: &[Key] = &[
    key(
        "server.host",
        "127.0.0.1",
        Kind::Text,
        "address to bind; anything but loopback needs keys.required or server.insecure",
    ),
    key("server.port", "8080", Kind::Integer { min: 0, max: 65_535 }, "0 takes a free port"),
    key(
        "server.insecure",
        "false",
        Kind::Bool,
        "allow a host that is not loopback although nobody is asked for an API key",
    ),
    key(
        "server.read_timeout",
        "30s",
        Kind::Duration { min_ms: 10, max_ms: HOUR },
        "a request's body must arrive within",
    ),
    key(
        "server.write_timeout",
        "30s",
        Kind::Duration { min_ms: 10, max_ms: HOUR },
        "a client may take nothing for so long (a stall, never the length of a stream)",
    ),
    key(
        "server.header_timeout",
        "10s",
        Kind::Duration { min_ms: 10, max_ms: HOUR },
        "a request's head must arrive within",
    ),
    key(
        "server.admin",
        "loopback",
        Kind::OneOf(&["loopback", "any", "off"]),
        "who may use /admin: connections from this machine, everyone, nobody",
    ),
    key(
        "server.admin_listen",
        "",
        Kind::Text,
        "another address for /admin and /metrics/json, such as 127.0.0.1:9090, which the main one then does not answer",
    ),
    key("server.unix_socket", "", Kind::Text, "a socket of the file system to listen on, too; its mode is 0660"),
    key(
        "server.tls_cert",
        "",
        Kind::Text,
        "a PEM file with the certificate and its chain; with it, only TLS is spoken",
    ),
    key("server.tls_key", "", Kind::Text, "a PEM file with the certificate's private key"),
    key(
        "server.cors_origins",
        "",
        Kind::List,
        "other origins whose pages may ask, such as https://example.org, or * for all; empty is none",
    ),
    key(
        "server.drain_delay",
        "0s",
        Kind::Duration { min_ms: 0, max_ms: HOUR },
        "told to end, take requests for so long, not ready, before queued ones are refused: as long as routers need to notice",
    ),
    key(
        "server.trusted_proxies",
        "127.0.0.0/8,::1/128",
        Kind::List,
        "networks whose headers about tenant, objective and speed count (x-llm-d-*, x-gateway-*)",
    ),
    key(
        "server.objectives",
        "",
        Kind::List,
        "priorities of a gateway's objectives, as name=priority; names of priorities stand for themselves",
    ),
    key("server.max_body_bytes", "8388608", Kind::Integer { min: 1_024, max: 1 << 30 }, "larger bodies are refused"),
    key("server.max_connections", "1024", Kind::Integer { min: 1, max: 65_535 }, "more wait to be accepted"),
    key(
        "model.path",
        "",
        Kind::Text,
        "a Hugging Face folder, a .gguf file, a hub id org/name[@revision][:file], or sim; empty is the embedded model",
    ),
    key("model.served_names", "", Kind::List, "names clients may use, the first one shown; empty is the folder's name"),
    key(
        "model.load_format",
        "auto",
        Kind::OneOf(&["auto", "dummy"]),
        "dummy fills the folder's config.json with seeded random weights",
    ),
    key(
        "model.quantize",
        "none",
        Kind::OneOf(&["none", "q8_0", "q4_k"]),
        "what matrices in F32, F16 and BF16 become as they are loaded",
    ),
    key("model.lora", "", Kind::List, "LoRA adapters as name=folder, chosen by that name as the request's model"),
    key("model.device", "auto", Kind::Text, "auto, cpu, cuda:N or metal (the last two need their cargo features)"),
    key("model.seed", "0", Kind::Integer { min: 0, max: u64::MAX >> 1 }, "of dummy weights"),
    key(
        "model.tool_parser",
        "auto",
        Kind::OneOf(&["auto", "none", "hermes", "llama3", "mistral", "phi", "granite", "deepseek", "json"]),
        "how the model writes calls of tools; auto is what its chat template tells",
    ),
    key(
        "model.reasoning_parser",
        "auto",
        Kind::OneOf(&["auto", "none", "think", "magistral"]),
        "which tags stand around the model's thinking; auto is what its chat template tells",
    ),
    key(
        "model.pooling",
        "auto",
        Kind::OneOf(&["auto", "last", "mean", "cls"]),
        "which hidden states make an embedding; auto is what the model's files tell, else last (mean for encoders)",
    ),
    key(
        "batching.queue_capacity",
        "10000",
        Kind::Integer { min: 1, max: 10_000_000 },
        "sequences that may be queued; beyond it, 429",
    ),
    key(
        "batching.queue_token_capacity",
        "2000000",
        Kind::Integer { min: 1, max: 1_000_000_000_000 },
        "prompt tokens that may be queued; beyond it, 429",
    ),
    key(
        "batching.queue_timeout",
        "10m",
        Kind::Duration { min_ms: 1, max_ms: 24 * HOUR },
        "a request that no batch took by then gets 504",
    ),
    key(
        "batching.strategy",
        "queue_depth",
        Kind::OneOf(&["fixed", "queue_depth", "latency_aware", "immediate", "cost_aware"]),
        "when gathered requests are released",
    ),
    key(
        "batching.policy",
        "fair",
        Kind::OneOf(&["fair", "latency_first", "throughput_first"]),
        "who computes first in a step",
    ),
    key(
        "batching.idle_release",
        "true",
        Kind::Bool,
        "an idle engine takes what is there at once, whatever the strategy",
    ),
    key("batching.min_batch_size", "1", COUNT, "smallest group that is released before its timer"),
    key("batching.max_batch_size", "32", COUNT, "largest group that is released at once"),
    key("batching.min_wait_ms", "5", MILLIS, "shortest wait for a group"),
    key("batching.max_wait_ms", "100", MILLIS, "longest wait for a group"),
    key("batching.queue_depth_low_threshold", "10", DEPTH, "at or below: max_wait_ms"),
    key("batching.queue_depth_high_threshold", "100", DEPTH, "at or above: min_wait_ms"),
    key("batching.target_p99_ms", "500", COUNT, "p99 TTFT that latency_aware aims at"),
    key("batching.max_wait_critical_ms", "5", MILLIS, "released by then whatever the strategy says"),
    key("batching.max_wait_high_ms", "20", MILLIS, "the same for priority high"),
    key("batching.max_wait_normal_ms", "50", MILLIS, "the same for priority normal"),
    key("batching.max_wait_low_ms", "100", MILLIS, "the same for priority low"),
    key("batching.token_bucketing_enabled", "true", Kind::Bool, "prefills of one group are alike in length"),
    key("batching.priority_enabled", "true", Kind::Bool, "honour priorities"),
    key("batching.aging_ms", "1000", COUNT, "a queued request rises one priority per so much waiting"),
    key("batching.fair_share_max", "0.5", Kind::Share, "share of the seats that one tenant may hold while others wait"),
    key(
        "batching.decode_burst_budget",
        "8",
        Kind::Integer { min: 1, max: 4_096 },
        "decode steps between prefills under throughput_first",
    ),
    key(
        "batching.max_stall_ms",
        "250",
        MILLIS,
        "prefill in a step is cut so that running streams wait no longer (by measured cost); 0 is off",
    ),
    key("thermal.path", "", Kind::Text, "folder of thermal zones, such as /sys/class/thermal; empty reads none"),
    key("thermal.interval", "1s", Kind::Duration { min_ms: 10, max_ms: HOUR }, "between two readings"),
    key("thermal.fair_celsius", "70", CELSIUS, "from here: level fair"),
    key("thermal.serious_celsius", "80", CELSIUS, "from here the batch is halved"),
    key("thermal.critical_celsius", "90", CELSIUS, "from here new requests get 503"),
    key("thermal.emergency_celsius", "100", CELSIUS, "from here nothing is computed"),
    key("engine.max_num_seqs", "64", Kind::Integer { min: 1, max: 65_536 }, "sequences that run at once"),
    key(
        "engine.max_num_batched_tokens",
        "512",
        Kind::Integer { min: 1, max: 1 << 20 },
        "tokens that one step may compute",
    ),
    key(
        "engine.max_model_len",
        "auto",
        Kind::AutoInteger { min: 2, max: 1 << 24 },
        "prompt and completion together; auto is the model's context",
    ),
    key(
        "engine.preemption",
        "most_recent",
        Kind::OneOf(&["most_recent", "longest", "lowest_priority"]),
        "who gives its blocks back when the KV cache is full",
    ),
    key(
        "engine.multi_step_count",
        "1",
        Kind::Integer { min: 1, max: 64 },
        "decode steps per call; commands are heard between calls",
    ),
    key(
        "engine.overlap",
        "true",
        Kind::Bool,
        "plan the next step and deliver the last one while a step runs; false does both between steps, for the same answers",
    ),
    key(
        "engine.speculative",
        "off",
        Kind::OneOf(&["off", "prompt_lookup"]),
        "prompt_lookup guesses tokens from earlier text and checks them in the same step: the same answers in fewer steps",
    ),
    key(
        "engine.threads",
        "auto",
        Kind::AutoInteger { min: 1, max: 1_024 },
        "compute threads; auto is what the container may use",
    ),
    key(
        "engine.drain_timeout",
        "30s",
        Kind::Duration { min_ms: 0, max_ms: 24 * HOUR },
        "running requests may take so long to finish at shutdown",
    ),
    key(
        "engine.stall_timeout",
        "60s",
        Kind::Duration { min_ms: 100, max_ms: 24 * HOUR },
        "a step that takes longer makes the server not ready",
    ),
    key("kv_cache.block_size", "32", Kind::Integer { min: 1, max: 1_024 }, "tokens per block"),
    key(
        "kv_cache.memory",
        "auto",
        Kind::AutoGiB,
        "GiB for the KV cache; auto is 40 % of what is free, at most what all seats can use",
    ),
    key(
        "kv_cache.dtype",
        "auto",
        Kind::OneOf(&["auto", "f32", "f16", "bf16", "q8_0"]),
        "how keys and values are kept; auto is f16 on the CPU, f32 elsewhere",
    ),
    key(
        "structured_output.max_bytes",
        "262144",
        Kind::Integer { min: 1, max: 16 << 20 },
        "longest schema or grammar of a request",
    ),
    key(
        "structured_output.compile_timeout",
        "2s",
        Kind::Duration { min_ms: 1, max_ms: 10 * MINUTE },
        "a grammar that takes longer to compile is refused",
    ),
    key(
        "structured_output.cache_entries",
        "128",
        Kind::Integer { min: 0, max: 100_000 },
        "compiled grammars that are kept for requests to come",
    ),
    key(
        "kv_cache.prefix_caching",
        "true",
        Kind::Bool,
        "requests that begin alike share the blocks of what they begin with",
    ),
    key(
        "kv_events.endpoint",
        "",
        Kind::Text,
        "ZMQ endpoint that tells routers what the prefix cache holds, such as tcp://*:5557, to whoever connects (prompts, as tokens); empty is off",
    ),
    key(
        "kv_events.replay_endpoint",
        "",
        Kind::Text,
        "where routers ask for what they missed, such as tcp://*:5558; empty is off",
    ),
    key("kv_events.topic", "", Kind::Text, "first frame of each message: empty for vllm-router, kv@IP@MODEL for llm-d"),
    key(
        "kv_events.buffer_steps",
        "10000",
        Kind::Integer { min: 0, max: 10_000_000 },
        "newest messages that can be asked for again",
    ),
    key(
        "kv_events.queue_size",
        "1024",
        Kind::Integer { min: 1, max: 1_000_000 },
        "steps whose changes may wait to be told; beyond it all that the cache holds is told anew",
    ),
    key(
        "workers.count",
        "auto",
        Kind::AutoInteger { min: 0, max: 64 },
        "engine loops; auto is 1, 4 of the simulated model, none where there are upstreams and no model.path",
    ),
    key(
        "workers.upstreams",
        "",
        Kind::List,
        "other OpenAI-compatible servers that take requests, such as http://host:8000",
    ),
    key(
        "workers.balancer",
        "prefix_aware",
        Kind::OneOf(&["round_robin", "least_loaded", "power_of_two", "prefix_aware"]),
        "which worker takes a request",
    ),
    key(
        "workers.connect_timeout",
        "5s",
        Kind::Duration { min_ms: 1, max_ms: HOUR },
        "an upstream that cannot be reached within has failed",
    ),
    key(
        "workers.response_timeout",
        "10m",
        Kind::Duration { min_ms: 1, max_ms: 24 * HOUR },
        "an upstream's answer begins within; without streaming that is the whole completion",
    ),
    key(
        "workers.idle_timeout",
        "1m",
        Kind::Duration { min_ms: 1, max_ms: 24 * HOUR },
        "an upstream may fall silent in the middle of an answer for so long",
    ),
    key(
        "workers.base_latency_ms",
        "10",
        Kind::Number { min: 0.0, max: 3.6e6 },
        "per step of the simulated model (--model sim)",
    ),
    key(
        "workers.per_token_latency_ms",
        "0.5",
        Kind::Number { min: 0.0, max: 3.6e6 },
        "per token of a step of the simulated model",
    ),
    key(
        "workers.latency_variance",
        "0.1",
        Kind::Number { min: 0.0, max: 1.0 },
        "standard deviation of base_latency_ms, as a part of it",
    ),
    key(
        "workers.max_batch_tokens",
        "8192",
        Kind::Integer { min: 1, max: 1 << 20 },
        "per step of the simulated model, in place of engine.max_num_batched_tokens",
    ),
    key("health.check_interval", "5s", Kind::Duration { min_ms: 1, max_ms: HOUR }, "between two checks of an upstream"),
    key(
        "health.check_timeout",
        "2s",
        Kind::Duration { min_ms: 1, max_ms: HOUR },
        "a check that takes longer has failed",
    ),
    key(
        "health.failure_threshold",
        "5",
        Kind::Integer { min: 1, max: 1_000_000 },
        "failures in a row that open a worker's breaker",
    ),
    key(
        "health.recovery_timeout",
        "30s",
        Kind::Duration { min_ms: 1, max_ms: 24 * HOUR },
        "until an open breaker lets one request through to try",
    ),
    key(
        "metrics.collection_interval",
        "100ms",
        Kind::Duration { min_ms: 10, max_ms: MINUTE },
        "between two samples of /metrics/json/history",
    ),
    key(
        "metrics.percentile_window_size",
        "1000",
        Kind::Integer { min: 10, max: 1_000_000 },
        "measured times behind the percentiles of /metrics/json",
    ),
    key(
        "metrics.history_retention",
        "1h",
        Kind::Duration { min_ms: 1_000, max_ms: 7 * 24 * HOUR },
        "how long samples are kept, the older ones ten and more at a time",
    ),
    key(
        "metrics.compat",
        "vllm",
        Kind::List,
        "whose names /metrics has beside ours: a list of vllm and llama-server, or none",
    ),
    key(
        "metrics.snapshot_interval",
        "1m",
        Kind::Duration { min_ms: 0, max_ms: 24 * HOUR },
        "between two samples that are written to the store; 0s writes none",
    ),
    key(
        "metrics.snapshot_retention",
        "168h",
        Kind::Duration { min_ms: MINUTE, max_ms: 366 * 24 * HOUR },
        "how long the store keeps them; at most 100000 of each server",
    ),
    key(
        "store.url",
        "sqlite:forebay.db",
        Kind::Text,
        "files, batches and who changed what: sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE, or memory (kept until the end)",
    ),
    key(
        "store.max_mib",
        "0",
        Kind::Integer { min: 0, max: 1 << 24 },
        "MiB that the SQLite file may have; 0 is as many as the disk",
    ),
    key(
        "keys.required",
        "false",
        Kind::Bool,
        "ask for an API key (forebay keys create) on every route but those for probes, /metrics and the documentation",
    ),
    key(
        "keys.secret",
        "",
        Kind::Text,
        "what digests of API keys are made with, at least 16 bytes; empty is keys.secret_file, or a file beside the store",
    ),
    key("keys.secret_file", "", Kind::Text, "a file with that secret; servers that share a database need the same"),
    key(
        "keys.cache_ttl",
        "30s",
        Kind::Duration { min_ms: 1_000, max_ms: 24 * HOUR },
        "keys are looked at every second; when the store cannot be reached for so long, requests get 503",
    ),
    key("keys.spool", "10000", COUNT, "billed requests that may run or wait for the ledger; beyond it, 503"),
    key(
        "batches.max_file_bytes",
        "209715200",
        Kind::Integer { min: 1_024, max: 1 << 30 },
        "larger uploads are refused",
    ),
    key(
        "batches.concurrency",
        "32",
        Kind::Integer { min: 1, max: 4_096 },
        "lines of batches that are asked for at once; they run in the lowest class, on what others leave",
    ),
    key("logging.level", "info", Kind::Text, "a level, or tracing directives; RUST_LOG goes before it"),
    key(
        "logging.format",
        "auto",
        Kind::OneOf(&["auto", "pretty", "json"]),
        "auto: pretty on a terminal, JSON otherwise",
    ),
    key(
        "logging.access",
        "true",
        Kind::Bool,
        "a line for each request: route, status, duration, tokens; no text, no keys",
    ),
    key(
        "tracing.otlp_endpoint",
        "",
        Kind::Text,
        "spans go there by OTLP over HTTP, such as http://localhost:4318; empty is OTEL_EXPORTER_OTLP_ENDPOINT, or nowhere",
    ),
    key(
        "tracing.sample",
        "1",
        Kind::Number { min: 0.0, max: 1.0 },
        "part of the requests without a traceparent that is traced; a traceparent decides for its own",
    ),
];

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
