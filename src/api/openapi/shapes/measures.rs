//! `/metrics/json` and its history.

use std::collections::BTreeMap;

use utoipa::ToSchema;

/// The server at one moment.
#[derive(ToSchema)]
pub struct Measures {
    #[serde(flatten)]
    measured: Measured,
    /// `null` where nothing is scheduled here.
    #[schema(required = true)]
    strategy: Option<String>,
    #[schema(required = true)]
    policy: Option<String>,
    workers: Vec<MeasuredWorker>,
}

/// What was measured at a moment, or over a stretch that ends there: the means of what is counted at a moment, the greatest of
/// percentiles.
#[derive(ToSchema)]
pub struct Measured {
    /// RFC 3339.
    timestamp: String,
    /// Requests in the queue.
    queue_depth: f64,
    /// From queued to the last token.
    latency: MeasuredTimes,
    /// From queued to the first token.
    ttft: MeasuredTimes,
    /// Between two tokens of a sequence.
    inter_token: MeasuredTimes,
    /// Sequences that completed, per second.
    throughput_rps: f64,
    tokens_per_second: MeasuredTokens,
    /// Since the start.
    batches_formed: u64,
    /// Since the start.
    requests_queued: u64,
    /// Requests per batch that left the queue; of the newest batches, or of all where there were none lately.
    avg_batch_size: f64,
    /// Sequences per forward pass, likewise.
    avg_step_size: f64,
    /// By priority.
    requests: BTreeMap<String, MeasuredClass>,
    /// Sequences that left the queue and have no KV blocks.
    waiting: f64,
    /// Since the start: sequences that completed.
    completed: u64,
    /// Since the start: sequences that were cancelled or failed.
    broken: u64,
    kv: MeasuredCache,
    prefix_cache: MeasuredPrefixes,
}

/// In milliseconds, of a sample in which what is a minute old weighs a third; `null` before the first.
#[derive(ToSchema)]
pub struct MeasuredTimes {
    #[schema(required = true)]
    p50: Option<f64>,
    #[schema(required = true)]
    p90: Option<f64>,
    #[schema(required = true)]
    p99: Option<f64>,
    #[schema(required = true)]
    p99_9: Option<f64>,
}

#[derive(ToSchema)]
pub struct MeasuredTokens {
    prompt: f64,
    generation: f64,
}

#[derive(ToSchema)]
pub struct MeasuredClass {
    queued: f64,
    running: f64,
}

#[derive(ToSchema)]
pub struct MeasuredCache {
    /// Tokens per block.
    block_size: u64,
    blocks: f64,
    free: f64,
    /// Blocks with content that can be found, held by anyone or not.
    cached: f64,
    /// Used part, 0 to 1.
    usage: f64,
}

/// Prompt tokens since the start.
#[derive(ToSchema)]
pub struct MeasuredPrefixes {
    queries: u64,
    hits: u64,
}

#[derive(ToSchema)]
pub struct MeasuredWorker {
    id: String,
    /// `engine` or `upstream`.
    kind: String,
    /// `idle`, `busy` or `unhealthy`.
    status: String,
    /// The part of its time, lately, in which it had work: 0 to 1.
    utilization: f64,
    /// `closed`, `half_open` or `open`.
    breaker: String,
    /// Sequences under way.
    pending: u64,
}

#[derive(ToSchema)]
pub struct History {
    object: String,
    /// Between two samples.
    interval_ms: u64,
    retention_s: f64,
    /// Oldest first.
    data: Vec<MeasuredStretch>,
}

#[derive(ToSchema)]
pub struct MeasuredStretch {
    #[serde(flatten)]
    measured: Measured,
    /// How long it is.
    interval_ms: u64,
}
