//! `/admin/requests`: who is here, why it waits, and its end by order of the operator.

use axum::Json;
use axum::extract::{Extension, Path, State as Extract};
use serde_json::{Value, json};

use super::guard::Actor;
use super::state::ms;
use crate::api::Front;
use crate::api::error::ApiError;
use crate::api::openapi::shapes::admin::{Cancelled, LiveList, LiveRequest, RequestTrace};
use crate::api::pipeline::traces::SequenceTrace;
use forebay_core::request::RequestError;
use forebay_turn::stats::LiveSequence;

type Answer = Result<Json<Value>, ApiError>;

/// All live sequences.
#[utoipa::path(get, path = "/admin/requests", operation_id = "live_requests", tag = "admin", responses((status = 200, description = "As it is now", body = LiveList)))]
pub async fn list(Extract(state): Extract<Front>) -> Answer {
    let live = state.workers.requests().await?;
    Ok(Json(json!({"object": "list", "data": live.iter().map(object).collect::<Vec<_>>()})))
}

/// One live request, by the id that the client reads in its answer, or by a sequence's own (`seq-7`).
#[utoipa::path(get, path = "/admin/requests/{id}", operation_id = "live_request", tag = "admin", params(("id" = String, Path)), responses((status = 200, description = "As it is now", body = LiveRequest)))]
pub async fn one(Extract(state): Extract<Front>, Path(id): Path<String>) -> Answer {
    let live = state.workers.requests().await?;
    let wanted = |s: &&LiveSequence| *s.view.origin.id == *id || s.view.seq.to_string() == id;
    let sequences: Vec<Value> = live.iter().filter(wanted).map(object).collect();
    if sequences.is_empty() {
        return Err(not_live(&id).into());
    }
    Ok(Json(json!({"id": id, "sequences": sequences})))
}

/// Ends a request.
#[utoipa::path(delete, path = "/admin/requests/{id}", operation_id = "cancel_request", tag = "admin", params(("id" = String, Path)), responses((status = 200, description = "As it is now", body = Cancelled)))]
pub async fn cancel(
    Extract(state): Extract<Front>,
    Extension(Actor(actor)): Extension<Actor>,
    Path(id): Path<String>,
) -> Answer {
    let ended = state.workers.cancel(id.clone()).await?;
    if ended == 0 {
        return Err(not_live(&id).into());
    }
    tracing::info!(event = "request_cancelled", who = actor, sequences = ended, "a request was ended by the operator");
    Ok(Json(json!({"id": id, "sequences_ended": ended})))
}

/// How a request was scheduled: live ones, and those that ended a while ago.
#[utoipa::path(get, path = "/admin/requests/{id}/trace", operation_id = "trace_request", tag = "admin", params(("id" = String, Path)), responses((status = 200, description = "As it is now", body = RequestTrace)))]
pub async fn trace(Extract(state): Extract<Front>, Path(id): Path<String>) -> Answer {
    let traces = state.workers.traces(id.clone()).await?;
    if traces.is_empty() {
        return Err(not_live(&id).into());
    }
    Ok(Json(json!({"id": id, "sequences": traces.iter().map(SequenceTrace::of).collect::<Vec<_>>()})))
}

fn not_live(id: &str) -> RequestError {
    const SHOWN: usize = 60;
    let name = id.chars().take(SHOWN).collect();
    RequestError::UnknownName { what: "request", name, valid: "the ids of /admin/requests".into() }
}

pub fn object(live: &LiveSequence) -> Value {
    let view = &live.view;
    json!({
        "id": &*view.origin.id,
        "sequence": view.seq.to_string(),
        "state": view.stage.name(),
        "waits_for": live.wait.map(|wait| wait.name()),
        "priority": view.priority.name(),
        "tenant": &*view.origin.tenant,
        "age_ms": ms(Some(live.age)),
        "deadline_in_ms": view.deadline.map(|at| ms(Some(at.since(view.origin.received + live.age)))),
        "prompt_tokens": view.prompt_tokens,
        "max_tokens": view.max_tokens,
        "computed_tokens": view.computed_tokens,
        "generated_tokens": view.generated_tokens,
        "blocks": view.blocks,
    })
}
