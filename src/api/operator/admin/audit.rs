//! `GET /admin/audit`: who changed what, when, from and to what. Changes are written down once they are in force; the engine
//! does not wait for that, whoever asked for the change does.

use axum::Json;
use axum::extract::State as Extract;
use axum::http::Uri;
use serde_json::{Value, json};

use crate::api::Front;
use crate::api::error::ApiError;
use crate::api::openapi::shapes::batches::{AuditList, ListPart};
use crate::api::pipeline::lists::{self, Query};
use forebay_core::request::RequestError;
use forebay_store::AuditEntry;
use forebay_turn::control::Changed;

const DEFAULT_LISTED: usize = 50;
const MOST_LISTED: usize = 1_000;

/// Who changed what, newest first.
#[utoipa::path(get, path = "/admin/audit", operation_id = "audit", tag = "admin", params(ListPart), responses((status = 200, description = "A part of the list", body = AuditList)))]
pub async fn list(Extract(state): Extract<Front>, uri: Uri) -> Result<Json<Value>, ApiError> {
    let mut query = Query::of(&uri)?;
    let paging = query.paging(DEFAULT_LISTED, MOST_LISTED)?;
    query.finish()?;
    let page = state.store.audit(&paging).await.map_err(RequestError::from)?;
    Ok(Json(lists::list(page, object)?))
}

/// Whether they are written down. The change is in force either way, and the log has it.
pub async fn record(state: &Front, actor: &str, changed: &[Changed]) -> bool {
    let now = state.clock.unix_millis();
    let entry = |c: &Changed| AuditEntry::new(now, actor, &c.what, &c.from, &c.to);
    let entries: Vec<AuditEntry> = changed.iter().map(entry).collect();
    entries.is_empty() || state.store.record(&entries).await.map_err(RequestError::from).is_ok()
}

fn object(entry: &AuditEntry) -> Value {
    json!({
        "id": entry.id,
        "at": entry.at_ms as f64 / 1e3,
        "who": entry.actor,
        "what": entry.what,
        "from": entry.from,
        "to": entry.to,
    })
}
