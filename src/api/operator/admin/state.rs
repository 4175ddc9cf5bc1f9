//! `GET /admin/state`: the engines in numbers; `GET /admin/workers`: who works, and how it is.

use axum::Json;
use axum::extract::State as Extract;
use serde_json::{Map, Value, json};

use super::control::parameters;
use crate::api::Front;
use crate::api::error::ApiError;
use crate::api::openapi::shapes::admin::{AdminState, WorkerList};
use forebay_core::request::{Priority, RequestError};
use forebay_core::units::Micros;
use forebay_engine::stats::EngineStats;
use forebay_engine::workers::WorkerView;
use forebay_turn::control::Group;
use forebay_turn::stats::QueueStats;

/// The engines in numbers, and all workers. Without an engine of its own, only the workers.
#[utoipa::path(get, path = "/admin/state", operation_id = "admin_state", tag = "admin", responses((status = 200, description = "Now", body = AdminState)))]
pub async fn get(Extract(state): Extract<Front>) -> Result<Json<Value>, ApiError> {
    Ok(Json(body(&state).await?))
}

pub async fn body(front: &Front) -> Result<Value, RequestError> {
    let mut body = match front.workers.stats().await {
        // Nothing is decided here where others compute.
        Err(RequestError::EngineStopped) if !front.workers.has_engines() => json!({}),
        stats => object(&stats?),
    };
    body["workers"] = workers(front);
    Ok(body)
}

/// Who works, and how it is.
#[utoipa::path(get, path = "/admin/workers", operation_id = "workers", tag = "admin", responses((status = 200, description = "Now", body = WorkerList)))]
pub async fn list(Extract(state): Extract<Front>) -> Json<Value> {
    Json(json!({"object": "list", "data": workers(&state)}))
}

pub fn workers(front: &Front) -> Value {
    let object = |view: WorkerView| {
        let [success, failure, uncounted] = view.glance.verdicts;
        json!({
            "id": view.id,
            "kind": view.kind,
            "url": view.url,
            "models": view.models,
            "status": view.glance.status.name(),
            "breaker": view.glance.phase.name(),
            "pending": view.glance.pending,
            "utilisation": (view.glance.utilisation * 1e3).round() / 1e3,
            "requests": {"success": success, "failure": failure, "uncounted": uncounted},
        })
    };
    front.workers.views().into_iter().map(object).collect()
}

fn object(stats: &EngineStats) -> Value {
    let snapshot = &stats.snapshot;
    let window = &stats.window;
    json!({
        "strategy": stats.strategy(),
        "policy": stats.policy(),
        "thermal": {"level": stats.thermal.level, "forced": stats.thermal.forced, "celsius": stats.thermal.celsius},
        "paused": snapshot.paused,
        "draining": snapshot.draining,
        "queue_depth": snapshot.queued,
        "queue": queue(&stats.queue),
        "requests_queued": snapshot.queued + snapshot.waiting,
        "requests_waiting": snapshot.waiting,
        "requests_running": snapshot.running,
        "batches_formed": stats.queue.batches_formed,
        "avg_batch_size": stats.queue.avg_batch_size,
        "last_batches": last_batches(stats),
        "blocks_total": snapshot.blocks_total,
        "blocks_used": snapshot.blocks_used,
        "preemptions_total": snapshot.preemptions_total,
        "steps_total": snapshot.steps_total,
        "total_tokens_generated": stats.total_tokens_generated,
        "current_tok_per_sec": window.tok_per_sec(),
        "pending_out": stats.pending_out,
        "window": {
            "seconds": window.seconds,
            "tokens": window.tokens,
            "step_ms": {
                "last": ms(window.step_last),
                "mean": ms(window.step_mean),
                "p50": ms(window.step_p50),
                "p99": ms(window.step_p99),
            },
            "gap_ms": {"p50": ms(window.gap_p50), "p99": ms(window.gap_p99)},
            "ttft_ms": {"p50": ms(window.ttft_p50), "p99": ms(window.ttft_p99)},
        },
        "limits": parameters(stats, Group::Limits),
    })
}

fn queue(queue: &QueueStats) -> Value {
    let depths: Map<String, Value> = Priority::ALL
        .iter()
        .zip(queue.depths)
        .map(|(priority, depth)| (priority.name().into(), json!(depth)))
        .collect();
    json!({
        "by_priority": depths,
        "gathering": queue.gathering,
        "prompt_tokens": queue.prompt_tokens,
        "timeout_ms": ms(Some(queue.timeout)),
        "requests_batched": queue.requests_batched,
        "drained_per_s": queue.drained_per_s,
    })
}

/// Newest first.
fn last_batches(stats: &EngineStats) -> Value {
    let batches = stats.queue.last_batches.iter().rev();
    let object = |batch: &forebay_turn::stats::Batch| {
        json!({
            "id": batch.id,
            "age_ms": ms(Some(stats.now.since(batch.at))),
            "size": batch.size,
            "total_tokens": batch.tokens,
            "max_priority": batch.max_priority.name(),
            "strategy": batch.strategy,
            "cause": batch.cause,
        })
    };
    batches.map(object).collect()
}

/// Milliseconds with three decimals; `null` before the first measurement.
pub fn ms(time: Option<Micros>) -> Option<f64> {
    time.map(|time| time.0 as f64 / 1e3)
}
