//! `GET /admin/audit`: who changed what, when, from and to what. Changes are written down once they are in force; the engine
//! does not wait for that, whoever asked for the change does.

use axum::Json;
use axum::extract::State as Extract;
use axum::http::Uri;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::Front;
use crate::api::error::ApiError;
use crate::api::pipeline::lists::{ListPage, ListPart, Query};
use forebay_core::request::RequestError;
use forebay_store::AuditEntry;
use forebay_turn::control::Changed;

const DEFAULT_LISTED: usize = 50;
const MOST_LISTED: usize = 1_000;

/// Who changed what, newest first.
#[utoipa::path(get, path = "/admin/audit", operation_id = "audit", tag = "admin", params(ListPart), responses((status = 200, description = "A part of the list", body = ListPage<AuditChange>)))]
pub async fn list(Extract(state): Extract<Front>, uri: Uri) -> Result<Json<ListPage<AuditChange>>, ApiError> {
    let mut query = Query::of(&uri)?;
    let paging = query.paging(DEFAULT_LISTED, MOST_LISTED)?;
    query.finish()?;
    let page = state.store.audit(&paging).await.map_err(RequestError::from)?;
    Ok(Json(ListPage::of(page, |entry| &entry.id, AuditChange::of)?))
}

/// Whether they are written down. The change is in force either way, and the log has it.
pub async fn record(state: &Front, actor: &str, changed: &[Changed]) -> bool {
    let now = state.clock.unix_millis();
    let entry = |c: &Changed| AuditEntry::new(now, actor, &c.what, &c.from, &c.to);
    let entries: Vec<AuditEntry> = changed.iter().map(entry).collect();
    entries.is_empty() || state.store.record(&entries).await.map_err(RequestError::from).is_ok()
}

/// A change by the operator.
#[derive(Serialize, ToSchema)]
pub struct AuditChange {
    id: String,
    /// Unix seconds.
    at: f64,
    /// An address, and the name that a tool gave itself.
    who: String,
    what: String,
    from: String,
    to: String,
}

impl AuditChange {
    fn of(entry: AuditEntry) -> AuditChange {
        let AuditEntry { id, at_ms, actor, what, from, to } = entry;
        AuditChange { id, at: at_ms as f64 / 1e3, who: actor, what, from, to }
    }
}
