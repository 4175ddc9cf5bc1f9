//! `GET /admin/state`: the engines in numbers; `GET /admin/workers`: who works, and how it is.

use axum::Json;
use axum::extract::State as Extract;
use serde::Serialize;
use utoipa::ToSchema;

use super::control::parameters;
use super::control_answers::{Parameters, ThermalNow};
use crate::api::Front;
use crate::api::error::ApiError;
use crate::api::pipeline::ordered::Ordered;
use forebay_core::request::{Priority, RequestError};
use forebay_core::units::Micros;
use forebay_engine::stats::{EngineStats, WindowStats};
use forebay_engine::workers::WorkerView;
use forebay_turn::control::Group;
use forebay_turn::stats::{Batch, QueueStats};

/// The engines in numbers, and all workers. Without an engine of its own, only the workers.
#[utoipa::path(get, path = "/admin/state", operation_id = "admin_state", tag = "admin", responses((status = 200, description = "Now", body = AdminState)))]
pub async fn get(Extract(state): Extract<Front>) -> Result<Json<AdminState>, ApiError> {
    Ok(Json(AdminState::of(&state).await?))
}

/// Who works, and how it is.
#[utoipa::path(get, path = "/admin/workers", operation_id = "workers", tag = "admin", responses((status = 200, description = "Now", body = WorkerList)))]
pub async fn list(Extract(state): Extract<Front>) -> Json<WorkerList> {
    Json(WorkerList { object: "list", data: workers(&state) })
}

fn workers(front: &Front) -> Vec<Worker> {
    front.workers.views().into_iter().map(Worker::of).collect()
}

/// The engines in numbers, and all workers.
#[derive(Serialize, ToSchema)]
pub struct AdminState {
    // Absent where others compute: nothing is decided here then.
    #[serde(flatten)]
    #[schema(value_type = EngineNumbers)]
    engines: Option<EngineNumbers>,
    /// How a worker is chosen for a request.
    balancer: &'static str,
    workers: Vec<Worker>,
}

impl AdminState {
    /// Asks the engines. Without an engine of its own, only the workers.
    pub async fn of(front: &Front) -> Result<AdminState, RequestError> {
        let engines = match front.workers.stats().await {
            Err(RequestError::EngineStopped) if !front.workers.has_engines() => None,
            stats => Some(EngineNumbers::of(&stats?)),
        };
        Ok(AdminState { engines, ..AdminState::of_workers(front) })
    }

    /// Only the workers, of whom no engine needs to be asked.
    pub fn of_workers(front: &Front) -> AdminState {
        AdminState { engines: None, balancer: front.workers.balancer().name(), workers: workers(front) }
    }
}

/// The engine in numbers; `docs/batching.md` explains them.
#[derive(Serialize, ToSchema)]
pub struct EngineNumbers {
    strategy: &'static str,
    policy: &'static str,
    thermal: ThermalNow,
    paused: bool,
    draining: bool,
    queue_depth: usize,
    queue: QueueNumbers,
    requests_queued: usize,
    requests_waiting: usize,
    requests_running: usize,
    batches_formed: u64,
    avg_batch_size: f64,
    /// Newest first.
    last_batches: Vec<FormedBatch>,
    blocks_total: usize,
    blocks_used: usize,
    preemptions_total: u64,
    steps_total: u64,
    total_tokens_generated: u64,
    current_tok_per_sec: f64,
    pending_out: usize,
    window: WindowNumbers,
    #[schema(value_type = BTreeMap<String, Value>)]
    limits: Parameters,
}

impl EngineNumbers {
    fn of(stats: &EngineStats) -> EngineNumbers {
        let snapshot = &stats.snapshot;
        let formed = |batch: &Batch| FormedBatch::of(batch, stats.now);
        EngineNumbers {
            strategy: stats.strategy(),
            policy: stats.policy(),
            thermal: ThermalNow::of(&stats.thermal),
            paused: snapshot.paused,
            draining: snapshot.draining,
            queue_depth: snapshot.queued,
            queue: QueueNumbers::of(&stats.queue),
            requests_queued: snapshot.queued + snapshot.waiting,
            requests_waiting: snapshot.waiting,
            requests_running: snapshot.running,
            batches_formed: stats.queue.batches_formed,
            avg_batch_size: stats.queue.avg_batch_size,
            last_batches: stats.queue.last_batches.iter().rev().map(formed).collect(),
            blocks_total: snapshot.blocks_total,
            blocks_used: snapshot.blocks_used,
            preemptions_total: snapshot.preemptions_total,
            steps_total: snapshot.steps_total,
            total_tokens_generated: stats.total_tokens_generated,
            current_tok_per_sec: stats.window.tok_per_sec(),
            pending_out: stats.pending_out,
            window: WindowNumbers::of(&stats.window),
            limits: parameters(stats, Group::Limits),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct QueueNumbers {
    #[schema(value_type = BTreeMap<String, usize>)]
    by_priority: Ordered<usize>,
    /// Of those, how many gather; the others wait for a seat.
    gathering: usize,
    prompt_tokens: usize,
    /// What the strategy lets a group wait now.
    timeout_ms: f64,
    requests_batched: u64,
    drained_per_s: f64,
}

impl QueueNumbers {
    fn of(queue: &QueueStats) -> QueueNumbers {
        let depths = Priority::ALL.iter().zip(queue.depths);
        QueueNumbers {
            by_priority: depths.map(|(priority, depth)| (priority.name().to_owned(), depth)).collect(),
            gathering: queue.gathering,
            prompt_tokens: queue.prompt_tokens,
            timeout_ms: ms(queue.timeout),
            requests_batched: queue.requests_batched,
            drained_per_s: queue.drained_per_s,
        }
    }
}

/// A batch that left the queue.
#[derive(Serialize, ToSchema)]
pub struct FormedBatch {
    id: u64,
    age_ms: f64,
    size: usize,
    /// Prompt tokens of all its requests.
    total_tokens: usize,
    max_priority: &'static str,
    strategy: &'static str,
    cause: &'static str,
}

impl FormedBatch {
    fn of(batch: &Batch, now: Micros) -> FormedBatch {
        FormedBatch {
            id: batch.id,
            age_ms: ms(now.since(batch.at)),
            size: batch.size,
            total_tokens: batch.tokens,
            max_priority: batch.max_priority.name(),
            strategy: batch.strategy,
            cause: batch.cause,
        }
    }
}

/// Since the statistics were reset, or the newest thousand steps and requests.
#[derive(Serialize, ToSchema)]
pub struct WindowNumbers {
    seconds: f64,
    tokens: u64,
    step_ms: StepTimes,
    /// Between two steps while there was work.
    gap_ms: WindowTimes,
    ttft_ms: WindowTimes,
}

/// `null` before the first measurement.
#[derive(Serialize, ToSchema)]
pub struct StepTimes {
    #[schema(required = true)]
    last: Option<f64>,
    #[schema(required = true)]
    mean: Option<f64>,
    #[schema(required = true)]
    p50: Option<f64>,
    #[schema(required = true)]
    p99: Option<f64>,
}

/// `null` before the first measurement.
#[derive(Serialize, ToSchema)]
pub struct WindowTimes {
    #[schema(required = true)]
    p50: Option<f64>,
    #[schema(required = true)]
    p99: Option<f64>,
}

impl WindowNumbers {
    fn of(window: &WindowStats) -> WindowNumbers {
        let times = |p50: Option<Micros>, p99: Option<Micros>| WindowTimes { p50: p50.map(ms), p99: p99.map(ms) };
        WindowNumbers {
            seconds: window.seconds,
            tokens: window.tokens,
            step_ms: StepTimes {
                last: window.step_last.map(ms),
                mean: window.step_mean.map(ms),
                p50: window.step_p50.map(ms),
                p99: window.step_p99.map(ms),
            },
            gap_ms: times(window.gap_p50, window.gap_p99),
            ttft_ms: times(window.ttft_p50, window.ttft_p99),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct WorkerList {
    /// `list`.
    object: &'static str,
    data: Vec<Worker>,
}

/// Who takes requests; `docs/workers.md` explains it.
#[derive(Serialize, ToSchema)]
pub struct Worker {
    id: String,
    /// `engine` or `upstream`.
    kind: &'static str,
    #[schema(required = true)]
    url: Option<String>,
    models: Vec<String>,
    /// `idle`, `busy` or `unhealthy`.
    status: &'static str,
    /// `closed`, `open` or `half_open`.
    breaker: &'static str,
    /// Sequences under way.
    pending: usize,
    /// From 0 to 1, lately.
    utilisation: f64,
    requests: Verdicts,
}

#[derive(Serialize, ToSchema)]
pub struct Verdicts {
    success: u64,
    failure: u64,
    uncounted: u64,
}

impl Worker {
    fn of(view: WorkerView) -> Worker {
        let WorkerView { id, kind, url, models, glance } = view;
        let [success, failure, uncounted] = glance.verdicts;
        Worker {
            id,
            kind,
            url,
            models,
            status: glance.status.name(),
            breaker: glance.phase.name(),
            pending: glance.pending,
            utilisation: (glance.utilisation * 1e3).round() / 1e3,
            requests: Verdicts { success, failure, uncounted },
        }
    }
}

/// Milliseconds with three decimals.
pub fn ms(time: Micros) -> f64 {
    time.0 as f64 / 1e3
}
