//! `/admin/requests`: who is here, why it waits, and its end by order of the operator.

use axum::Json;
use axum::extract::{Extension, Path, State as Extract};
use serde::Serialize;
use utoipa::ToSchema;

use super::guard::Actor;
use super::state::ms;
use crate::api::Front;
use crate::api::error::ApiError;
use crate::api::pipeline::traces::SequenceTrace;
use forebay_core::request::RequestError;
use forebay_turn::stats;

type Answer<T> = Result<Json<T>, ApiError>;

/// All live sequences.
#[utoipa::path(get, path = "/admin/requests", operation_id = "live_requests", tag = "admin", responses((status = 200, description = "As it is now", body = LiveList)))]
pub async fn list(Extract(state): Extract<Front>) -> Answer<LiveList> {
    let live = state.workers.requests().await?;
    Ok(Json(LiveList { object: "list", data: live.iter().map(LiveSequence::of).collect() }))
}

/// One live request, by the id that the client reads in its answer, or by a sequence's own (`seq-7`).
#[utoipa::path(get, path = "/admin/requests/{id}", operation_id = "live_request", tag = "admin", params(("id" = String, Path)), responses((status = 200, description = "As it is now", body = LiveRequest)))]
pub async fn one(Extract(state): Extract<Front>, Path(id): Path<String>) -> Answer<LiveRequest> {
    let live = state.workers.requests().await?;
    let wanted = |s: &&stats::LiveSequence| *s.view.origin.id == *id || s.view.seq.to_string() == id;
    let sequences: Vec<LiveSequence> = live.iter().filter(wanted).map(LiveSequence::of).collect();
    if sequences.is_empty() {
        return Err(not_live(&id).into());
    }
    Ok(Json(LiveRequest { id, sequences }))
}

/// Ends a request.
#[utoipa::path(delete, path = "/admin/requests/{id}", operation_id = "cancel_request", tag = "admin", params(("id" = String, Path)), responses((status = 200, description = "As it is now", body = Cancelled)))]
pub async fn cancel(
    Extract(state): Extract<Front>,
    Extension(Actor(actor)): Extension<Actor>,
    Path(id): Path<String>,
) -> Answer<Cancelled> {
    let ended = state.workers.cancel(id.clone()).await?;
    if ended == 0 {
        return Err(not_live(&id).into());
    }
    tracing::info!(event = "request_cancelled", who = actor, sequences = ended, "a request was ended by the operator");
    Ok(Json(Cancelled { id, sequences_ended: ended }))
}

/// How a request was scheduled: live ones, and those that ended a while ago.
#[utoipa::path(get, path = "/admin/requests/{id}/trace", operation_id = "trace_request", tag = "admin", params(("id" = String, Path)), responses((status = 200, description = "As it is now", body = RequestTrace)))]
pub async fn trace(Extract(state): Extract<Front>, Path(id): Path<String>) -> Answer<RequestTrace> {
    let traces = state.workers.traces(id.clone()).await?;
    if traces.is_empty() {
        return Err(not_live(&id).into());
    }
    Ok(Json(RequestTrace { id, sequences: traces.iter().map(SequenceTrace::of).collect() }))
}

fn not_live(id: &str) -> RequestError {
    const SHOWN: usize = 60;
    let name = id.chars().take(SHOWN).collect();
    RequestError::UnknownName { what: "request", name, valid: "the ids of /admin/requests".into() }
}

#[derive(Serialize, ToSchema)]
pub struct LiveList {
    /// `list`.
    object: &'static str,
    data: Vec<LiveSequence>,
}

#[derive(Serialize, ToSchema)]
pub struct LiveRequest {
    id: String,
    sequences: Vec<LiveSequence>,
}

#[derive(Serialize, ToSchema)]
pub struct LiveSequence {
    id: String,
    sequence: String,
    state: &'static str,
    #[schema(required = true)]
    waits_for: Option<&'static str>,
    priority: &'static str,
    tenant: String,
    age_ms: f64,
    #[schema(required = true)]
    deadline_in_ms: Option<f64>,
    prompt_tokens: usize,
    max_tokens: usize,
    computed_tokens: usize,
    generated_tokens: usize,
    blocks: usize,
}

impl LiveSequence {
    pub fn of(live: &stats::LiveSequence) -> LiveSequence {
        let view = &live.view;
        LiveSequence {
            id: view.origin.id.to_string(),
            sequence: view.seq.to_string(),
            state: view.stage.name(),
            waits_for: live.wait.map(|wait| wait.name()),
            priority: view.priority.name(),
            tenant: view.origin.tenant.to_string(),
            age_ms: ms(live.age),
            deadline_in_ms: view.deadline.map(|at| ms(at.since(view.origin.received + live.age))),
            prompt_tokens: view.prompt_tokens,
            max_tokens: view.max_tokens,
            computed_tokens: view.computed_tokens,
            generated_tokens: view.generated_tokens,
            blocks: view.blocks,
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct Cancelled {
    id: String,
    sequences_ended: usize,
}

#[derive(Serialize, ToSchema)]
pub struct RequestTrace {
    id: String,
    sequences: Vec<SequenceTrace>,
}
