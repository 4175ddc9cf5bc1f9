//! Batches, from `validating` to their end. A batch moves only from the states that a change names, so that of two who want
//! to move it one finds nothing to do.

use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};
use uuid::Uuid;

use super::items::Outcome;
use super::{Page, Paging, Result, Store, page};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchStatus {
    /// Its file is read.
    Validating,
    /// The file was no good; it has no lines.
    Failed,
    InProgress,
    /// Every line has an answer; the files are made.
    Finalizing,
    Completed,
    Expired,
    Cancelling,
    Cancelled,
}

impl BatchStatus {
    pub const ALL: [BatchStatus; 8] = [
        BatchStatus::Validating,
        BatchStatus::Failed,
        BatchStatus::InProgress,
        BatchStatus::Finalizing,
        BatchStatus::Completed,
        BatchStatus::Expired,
        BatchStatus::Cancelling,
        BatchStatus::Cancelled,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            BatchStatus::Validating => "validating",
            BatchStatus::Failed => "failed",
            BatchStatus::InProgress => "in_progress",
            BatchStatus::Finalizing => "finalizing",
            BatchStatus::Completed => "completed",
            BatchStatus::Expired => "expired",
            BatchStatus::Cancelling => "cancelling",
            BatchStatus::Cancelled => "cancelled",
        }
    }

    fn from_name(name: &str) -> Option<BatchStatus> {
        BatchStatus::ALL.into_iter().find(|status| status.name() == name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub id: String,
    pub created_ms: i64,
    pub status: BatchStatus,
    pub endpoint: String,
    /// The key that made it.
    pub owner: Option<String>,
    pub input_file_id: String,
    pub completion_window: String,
    pub expires_ms: i64,
    pub output_expires_s: Option<i64>,
    /// JSON objects.
    pub metadata: Option<String>,
    pub errors: Option<String>,
    pub output_file_id: Option<String>,
    pub error_file_id: Option<String>,
    pub total: i64,
    pub completed: i64,
    pub failed: i64,
    /// When it came into each state.
    pub in_progress_ms: Option<i64>,
    pub finalizing_ms: Option<i64>,
    pub completed_ms: Option<i64>,
    pub failed_ms: Option<i64>,
    pub expired_ms: Option<i64>,
    pub cancelling_ms: Option<i64>,
    pub cancelled_ms: Option<i64>,
}

#[derive(Clone, Debug)]
pub struct NewBatch {
    pub id: String,
    pub created_ms: i64,
    pub endpoint: String,
    pub owner: Option<String>,
    pub input_file_id: String,
    pub completion_window: String,
    pub expires_ms: i64,
    pub output_expires_s: Option<i64>,
    pub metadata: Option<String>,
}

impl Batch {
    fn read(row: &AnyRow) -> sqlx::Result<Batch> {
        let status: String = row.try_get("status")?;
        let unknown = || sqlx::Error::Protocol(format!("a batch is {status}"));
        Ok(Batch {
            id: row.try_get("id")?,
            created_ms: row.try_get("created_ms")?,
            status: BatchStatus::from_name(&status).ok_or_else(unknown)?,
            endpoint: row.try_get("endpoint")?,
            owner: row.try_get("key_id")?,
            input_file_id: row.try_get("input_file_id")?,
            completion_window: row.try_get("completion_window")?,
            expires_ms: row.try_get("expires_ms")?,
            output_expires_s: row.try_get("output_expires_s")?,
            metadata: row.try_get("metadata")?,
            errors: row.try_get("errors")?,
            output_file_id: row.try_get("output_file_id")?,
            error_file_id: row.try_get("error_file_id")?,
            total: row.try_get("total")?,
            completed: row.try_get("completed")?,
            failed: row.try_get("failed")?,
            in_progress_ms: row.try_get("in_progress_ms")?,
            finalizing_ms: row.try_get("finalizing_ms")?,
            completed_ms: row.try_get("completed_ms")?,
            failed_ms: row.try_get("failed_ms")?,
            expired_ms: row.try_get("expired_ms")?,
            cancelling_ms: row.try_get("cancelling_ms")?,
            cancelled_ms: row.try_get("cancelled_ms")?,
        })
    }
}

impl Store {
    pub async fn create_batch(&self, batch: &NewBatch) -> Result<()> {
        let insert = "INSERT INTO batches (id, created_ms, status, endpoint, input_file_id, completion_window, expires_ms, \
                      output_expires_s, metadata, key_id, total, completed, failed) \
                      VALUES ($1, $2, 'validating', $3, $4, $5, $6, $7, $8, $9, 0, 0, 0)";
        let NewBatch { id, created_ms, endpoint, input_file_id, completion_window, expires_ms, .. } = batch;
        let query = sqlx::query(insert).bind(id).bind(created_ms).bind(endpoint).bind(input_file_id);
        let query = query.bind(completion_window).bind(expires_ms).bind(batch.output_expires_s).bind(&batch.metadata);
        let query = query.bind(&batch.owner);
        query.execute(self.pool().await?).await?;
        Ok(())
    }

    pub async fn batch(&self, id: &str) -> Result<Option<Batch>> {
        let row =
            sqlx::query("SELECT * FROM batches WHERE id = $1").bind(id).fetch_optional(self.pool().await?).await?;
        Ok(row.as_ref().map(Batch::read).transpose()?)
    }

    /// Of one owner, or of all. `None` if there is no batch `after`.
    pub async fn batches(&self, paging: &Paging, owner: Option<&str>) -> Result<Option<Page<Batch>>> {
        let pool = self.pool().await?;
        let (mut at, mut id) = (i64::MAX, String::new());
        if let Some(after) = &paging.after {
            let found =
                sqlx::query("SELECT created_ms FROM batches WHERE id = $1").bind(after).fetch_optional(pool).await?;
            let Some(found) = found else { return Ok(None) };
            (at, id) = (found.try_get(0)?, after.clone());
        }
        let select = "SELECT * FROM batches WHERE (created_ms < $1 OR (created_ms = $1 AND id < $2)) \
                      AND ($4 = '' OR key_id = $4) ORDER BY created_ms DESC, id DESC LIMIT $3";
        let query = sqlx::query(select).bind(at).bind(id).bind(paging.limit as i64 + 1);
        let query = query.bind(owner.unwrap_or_default());
        page(query.fetch_all(pool).await?, paging.limit, Batch::read).map(Some)
    }

    /// Those that are not over, oldest first.
    pub async fn open_batches(&self) -> Result<Vec<Batch>> {
        let select = "SELECT * FROM batches WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling') \
                      ORDER BY created_ms, id";
        let rows = sqlx::query(select).fetch_all(self.pool().await?).await?;
        Ok(rows.iter().map(Batch::read).collect::<sqlx::Result<_>>()?)
    }

    /// Its lines are all there; from here on they are answered.
    pub async fn start_batch(&self, id: &str, total: i64, now_ms: i64) -> Result<()> {
        let update = "UPDATE batches SET status = 'in_progress', total = $2, in_progress_ms = $3 \
                      WHERE id = $1 AND status = 'validating'";
        sqlx::query(update).bind(id).bind(total).bind(now_ms).execute(self.pool().await?).await?;
        Ok(())
    }

    /// Its file is no good. `errors` is a JSON object.
    pub async fn fail_batch(&self, id: &str, errors: &str, now_ms: i64) -> Result<()> {
        let mut transaction = self.begin().await?;
        let update = "UPDATE batches SET status = 'failed', errors = $2, failed_ms = $3 \
                      WHERE id = $1 AND status = 'validating'";
        let query = sqlx::query(update).bind(id).bind(errors).bind(now_ms);
        if query.execute(&mut *transaction).await?.rows_affected() == 1 {
            sqlx::query("DELETE FROM batch_items WHERE batch_id = $1").bind(id).execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// False if it is over, or about to be.
    pub async fn cancel_batch(&self, id: &str, now_ms: i64) -> Result<bool> {
        let update = "UPDATE batches SET status = 'cancelling', cancelling_ms = $2 \
                      WHERE id = $1 AND status IN ('validating', 'in_progress')";
        let done = sqlx::query(update).bind(id).bind(now_ms).execute(self.pool().await?).await?;
        Ok(done.rows_affected() == 1)
    }

    /// Every line has its answer.
    pub async fn finalize_batch(&self, id: &str, now_ms: i64) -> Result<()> {
        let update =
            "UPDATE batches SET status = 'finalizing', finalizing_ms = $2 WHERE id = $1 AND status = 'in_progress'";
        sqlx::query(update).bind(id).bind(now_ms).execute(self.pool().await?).await?;
        Ok(())
    }

    /// Makes the files of a batch whose lines all have answers, and ends it, in one transaction. `end` is one of
    /// completed, expired and cancelled.
    pub async fn close_batch(&self, batch: &Batch, end: BatchStatus, now_ms: i64) -> Result<()> {
        let mut transaction = self.begin().await?;
        let output = write_file(&mut transaction, batch, Outcome::Completed, now_ms).await?;
        let errors = write_file(&mut transaction, batch, Outcome::Failed, now_ms).await?;
        let update = match end {
            BatchStatus::Expired => {
                "UPDATE batches SET status = $2, output_file_id = $3, error_file_id = $4, expired_ms = $5 \
                 WHERE id = $1 AND status = 'in_progress'"
            }
            BatchStatus::Cancelled => {
                "UPDATE batches SET status = $2, output_file_id = $3, error_file_id = $4, cancelled_ms = $5, \
                 total = CASE WHEN total < completed + failed THEN completed + failed ELSE total END \
                 WHERE id = $1 AND status = 'cancelling'"
            }
            _ => {
                "UPDATE batches SET status = $2, output_file_id = $3, error_file_id = $4, completed_ms = $5 \
                 WHERE id = $1 AND status = 'finalizing'"
            }
        };
        let query = sqlx::query(update).bind(&batch.id).bind(end.name()).bind(output).bind(errors).bind(now_ms);
        if query.execute(&mut *transaction).await?.rows_affected() == 1 {
            transaction.commit().await?;
        }
        Ok(())
    }
}

/// The file of the lines with this outcome; `None` if there are none.
async fn write_file(
    transaction: &mut Transaction<'static, Any>,
    batch: &Batch,
    outcome: Outcome,
    now_ms: i64,
) -> sqlx::Result<Option<String>> {
    // PostgreSQL's SUM of BIGINT is no BIGINT.
    let select = "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM batch_items WHERE batch_id = $1 AND outcome = $2";
    let query = sqlx::query_scalar(select).bind(&batch.id).bind(outcome.number());
    let bytes: i64 = query.fetch_one(&mut **transaction).await?;
    if bytes == 0 {
        return Ok(None);
    }
    let id = format!("file-{}", Uuid::new_v4().simple());
    let kind = match outcome {
        Outcome::Completed => "output",
        Outcome::Failed => "error",
    };
    let insert = "INSERT INTO files (id, created_ms, expires_ms, purpose, filename, bytes, status, batch_id, outcome, \
                  key_id) VALUES ($1, $2, $3, 'batch_output', $4, $5, 'processed', $6, $7, $8)";
    let expires_ms = batch.output_expires_s.map(|seconds| now_ms + seconds * 1_000);
    let query = sqlx::query(insert).bind(&id).bind(now_ms).bind(expires_ms).bind(format!("{}_{kind}.jsonl", batch.id));
    query.bind(bytes).bind(&batch.id).bind(outcome.number()).bind(&batch.owner).execute(&mut **transaction).await?;
    Ok(Some(id))
}
