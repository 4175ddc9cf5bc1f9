//! Changes by the operator: who, when, what, from, to.

use sqlx::Row;
use sqlx::any::AnyRow;
use uuid::Uuid;

use super::{Page, Paging, Result, Store, page};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    pub id: String,
    pub at_ms: i64,
    pub actor: String,
    pub what: String,
    pub from: String,
    pub to: String,
}

impl AuditEntry {
    pub fn new(at_ms: i64, actor: &str, what: &str, from: &str, to: &str) -> AuditEntry {
        let id = format!("audit_{}", Uuid::new_v4().simple());
        AuditEntry { id, at_ms, actor: actor.into(), what: what.into(), from: from.into(), to: to.into() }
    }

    fn read(row: &AnyRow) -> sqlx::Result<AuditEntry> {
        Ok(AuditEntry {
            id: row.try_get("id")?,
            at_ms: row.try_get("at_ms")?,
            actor: row.try_get("actor")?,
            what: row.try_get("what")?,
            from: row.try_get("from_value")?,
            to: row.try_get("to_value")?,
        })
    }
}

impl Store {
    /// All of them or none.
    pub async fn record(&self, entries: &[AuditEntry]) -> Result<()> {
        let mut transaction = self.begin().await?;
        for entry in entries {
            let insert =
                "INSERT INTO audit (id, at_ms, actor, what, from_value, to_value) VALUES ($1, $2, $3, $4, $5, $6)";
            let AuditEntry { id, at_ms, actor, what, from, to } = entry;
            let query = sqlx::query(insert).bind(id).bind(at_ms).bind(actor).bind(what).bind(from).bind(to);
            query.execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// `None` if there is no entry `after`.
    pub async fn audit(&self, paging: &Paging) -> Result<Option<Page<AuditEntry>>> {
        let pool = self.pool().await?;
        let (mut at, mut id) = (i64::MAX, String::new());
        if let Some(after) = &paging.after {
            let found = sqlx::query("SELECT at_ms FROM audit WHERE id = $1").bind(after).fetch_optional(pool).await?;
            let Some(found) = found else { return Ok(None) };
            (at, id) = (found.try_get(0)?, after.clone());
        }
        let select =
            "SELECT * FROM audit WHERE at_ms < $1 OR (at_ms = $1 AND id < $2) ORDER BY at_ms DESC, id DESC LIMIT $3";
        let query = sqlx::query(select).bind(at).bind(id).bind(paging.limit as i64 + 1);
        page(query.fetch_all(pool).await?, paging.limit, AuditEntry::read).map(Some)
    }
}
