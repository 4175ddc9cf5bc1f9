//! What was measured, as `/metrics/json` and its history answer it.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::pipeline::ordered::Ordered;
use forebay_clock::rfc3339;
use forebay_core::request::Priority;
use forebay_engine::metrics::timeline::{Percentiles, Point};
use forebay_engine::workers::WorkerView;

/// The server at one moment.
#[derive(Serialize, ToSchema)]
pub struct Measures {
    #[serde(flatten)]
    pub measured: Measured,
    /// `null` where nothing is scheduled here.
    #[schema(required = true)]
    pub strategy: Option<&'static str>,
    #[schema(required = true)]
    pub policy: Option<&'static str>,
    pub workers: Vec<MeasuredWorker>,
}

/// What was measured at a moment, or over a stretch that ends there: the means of what is counted at a moment, the greatest of
/// percentiles.
#[derive(Serialize, ToSchema)]
pub struct Measured {
    /// RFC 3339.
    timestamp: String,
    /// Requests in the queue.
    queue_depth: f64,
    /// From queued to the last token.
    latency: MeasuredTimes,
    /// The `p50` of `latency`.
    #[schema(required = true)]
    latency_p50_ms: Option<f64>,
    /// The `p99` of `latency`.
    #[schema(required = true)]
    latency_p99_ms: Option<f64>,
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
    #[schema(value_type = BTreeMap<String, MeasuredClass>)]
    requests: Ordered<MeasuredClass>,
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
#[derive(Serialize, ToSchema)]
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

#[derive(Serialize, ToSchema)]
pub struct MeasuredTokens {
    prompt: f64,
    generation: f64,
}

#[derive(Serialize, ToSchema)]
pub struct MeasuredClass {
    queued: f64,
    running: f64,
    /// Since the start: sequences that ended within what `slo_<class>_ttft_ms` and `slo_<class>_itl_ms` promise.
    kept: u64,
    /// Since the start: sequences that ended outside of it.
    broken: u64,
}

#[derive(Serialize, ToSchema)]
pub struct MeasuredCache {
    /// Tokens per block.
    block_size: i64,
    blocks: f64,
    free: f64,
    /// Blocks with content that can be found, held by anyone or not.
    cached: f64,
    /// Used part, 0 to 1.
    usage: f64,
}

/// Prompt tokens since the start.
#[derive(Serialize, ToSchema)]
pub struct MeasuredPrefixes {
    queries: u64,
    hits: u64,
}

#[derive(Serialize, ToSchema)]
pub struct MeasuredWorker {
    id: String,
    /// `engine` or `upstream`.
    kind: &'static str,
    /// `idle`, `busy` or `unhealthy`.
    status: &'static str,
    /// The part of its time, lately, in which it had work: 0 to 1.
    utilization: f64,
    /// `closed`, `half_open` or `open`.
    breaker: &'static str,
    /// Sequences under way.
    pending: usize,
}

#[derive(Serialize, ToSchema)]
pub struct History {
    /// `list`.
    pub object: &'static str,
    /// Between two samples.
    pub interval_ms: u64,
    pub retention_s: f64,
    /// Oldest first.
    #[schema(value_type = Vec<MeasuredStretch>)]
    pub data: Vec<HistoryEntry>,
}

/// A stretch of the history.
#[derive(Serialize)]
#[serde(untagged)]
pub enum HistoryEntry {
    /// The store kept it, as the version that wrote it had it.
    Kept(Value),
    /// Of this process.
    Measured(Box<MeasuredStretch>),
}

#[derive(Serialize, ToSchema)]
pub struct MeasuredStretch {
    #[serde(flatten)]
    measured: Measured,
    /// How long it is.
    interval_ms: u32,
}

impl MeasuredStretch {
    pub fn of(point: &Point, before: Option<&Point>, block_size: i64) -> MeasuredStretch {
        MeasuredStretch { measured: Measured::of(point, before, block_size), interval_ms: point.span_ms }
    }
}

impl Measured {
    /// A point, with rates since the one before it.
    pub fn of(point: &Point, before: Option<&Point>, block_size: i64) -> Measured {
        let (levels, totals) = (&point.levels, &point.totals);
        let since = before.map(|before| before.totals).unwrap_or(*totals);
        let seconds = before.map_or(0.0, |before| (point.at_ms - before.at_ms) as f64 / 1e3);
        let rate = |now: u64, then: u64| {
            if seconds > 0.0 { rounded(now.saturating_sub(then) as f64 / seconds) } else { 0.0 }
        };
        let queued: f64 = levels.queued.iter().map(|one| f64::from(*one)).sum();
        let latency = MeasuredTimes::of(point.latencies.whole);
        Measured {
            timestamp: rfc3339(point.at_ms),
            queue_depth: rounded(queued),
            latency_p50_ms: latency.p50,
            latency_p99_ms: latency.p99,
            latency,
            ttft: MeasuredTimes::of(point.latencies.ttft),
            inter_token: MeasuredTimes::of(point.latencies.inter_token),
            throughput_rps: rate(totals.completed, since.completed),
            tokens_per_second: MeasuredTokens {
                prompt: rate(totals.prompt_tokens, since.prompt_tokens),
                generation: rate(totals.generation_tokens, since.generation_tokens),
            },
            batches_formed: totals.batches,
            requests_queued: totals.queued,
            avg_batch_size: mean([totals.batched, since.batched], [totals.batches, since.batches]),
            avg_step_size: mean([totals.stepped, since.stepped], [totals.steps, since.steps]),
            requests: Priority::ALL.into_iter().map(|priority| class(point, priority)).collect(),
            waiting: rounded(f64::from(levels.waiting)),
            completed: totals.completed,
            broken: totals.broken,
            kv: MeasuredCache::of(point, block_size),
            prefix_cache: MeasuredPrefixes { queries: totals.cache_queries, hits: totals.cache_hits },
        }
    }
}

/// The mean of what was counted between two moments; of all where there was nothing in between.
fn mean(sums: [u64; 2], counts: [u64; 2]) -> f64 {
    match (sums, counts) {
        ([sum, sum_before], [count, count_before]) if count > count_before => {
            rounded(sum.saturating_sub(sum_before) as f64 / (count - count_before) as f64)
        }
        ([sum, _], [count, _]) if count > 0 => rounded(sum as f64 / count as f64),
        _ => 0.0,
    }
}

fn class(point: &Point, priority: Priority) -> (String, MeasuredClass) {
    let of = |all: &[f32]| rounded(f64::from(all[priority.index()]));
    let [kept, broken] = point.totals.promises.get(priority.index()).copied().unwrap_or_default();
    let class = MeasuredClass { queued: of(&point.levels.queued), running: of(&point.levels.running), kept, broken };
    (priority.name().to_owned(), class)
}

impl MeasuredTimes {
    fn of(all: Percentiles) -> MeasuredTimes {
        let told = all.map(|all| all.map(|one| rounded(f64::from(one))));
        let [p50, p90, p99, p99_9] = told.map_or([None; 4], |told| told.map(Some));
        MeasuredTimes { p50, p90, p99, p99_9 }
    }
}

impl MeasuredCache {
    fn of(point: &Point, block_size: i64) -> MeasuredCache {
        let levels = &point.levels;
        let used = levels.blocks - levels.blocks_free;
        MeasuredCache {
            block_size,
            blocks: rounded(f64::from(levels.blocks)),
            free: rounded(f64::from(levels.blocks_free)),
            cached: rounded(f64::from(levels.blocks_cached)),
            usage: rounded(f64::from(used / levels.blocks.max(1.0))),
        }
    }
}

impl MeasuredWorker {
    pub fn of(view: WorkerView) -> MeasuredWorker {
        let WorkerView { id, kind, glance, .. } = view;
        MeasuredWorker {
            id,
            kind,
            status: glance.status.name(),
            utilization: rounded(glance.utilisation),
            breaker: glance.phase.name(),
            pending: glance.pending,
        }
    }
}

/// To a thousandth: more digits would say more than is known.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
