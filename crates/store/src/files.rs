//! Files and their content. What a client uploads comes in parts and is seen by nobody until the last is here; what a batch
//! writes has no parts of its own: it is the answers of the batch's lines.

use sqlx::Row;
use sqlx::any::AnyRow;

use super::items::Outcome;
use super::{Page, Paging, Result, Store, page};

/// A file as clients list it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileObject {
    pub id: String,
    pub created_ms: i64,
    pub expires_ms: Option<i64>,
    pub purpose: String,
    pub filename: String,
    pub bytes: i64,
    /// The key that uploaded it, or made the batch that wrote it.
    pub owner: Option<String>,
    pub origin: Origin,
}

/// Where a file's content is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Uploaded,
    Written { batch: String, outcome: Outcome },
}

/// A file whose parts are yet to come.
#[derive(Clone, Debug)]
pub struct NewFile {
    pub id: String,
    pub created_ms: i64,
    pub filename: String,
    pub owner: Option<String>,
}

/// Which files a list shows.
#[derive(Clone, Debug)]
pub struct FileQuery {
    pub paging: Paging,
    pub oldest_first: bool,
    pub purpose: Option<String>,
    /// `None` is everybody's.
    pub owner: Option<String>,
    pub now_ms: i64,
}

/// A part of a file's content, in whole lines, and what to ask for the next with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub content: String,
    pub at: i64,
}

/// Answers that a part of a written file holds.
const ANSWERS_PER_PART: i64 = 64;

impl FileObject {
    pub(super) fn read(row: &AnyRow) -> sqlx::Result<FileObject> {
        let batch: Option<String> = row.try_get("batch_id")?;
        let outcome: Option<i64> = row.try_get("outcome")?;
        let written = batch.zip(outcome.and_then(Outcome::from_number));
        Ok(FileObject {
            id: row.try_get("id")?,
            created_ms: row.try_get("created_ms")?,
            expires_ms: row.try_get("expires_ms")?,
            purpose: row.try_get("purpose")?,
            filename: row.try_get("filename")?,
            bytes: row.try_get("bytes")?,
            owner: row.try_get("key_id")?,
            origin: written.map_or(Origin::Uploaded, |(batch, outcome)| Origin::Written { batch, outcome }),
        })
    }
}

impl Store {
    pub async fn begin_file(&self, file: &NewFile) -> Result<()> {
        let insert = "INSERT INTO files (id, created_ms, purpose, filename, bytes, status, key_id) \
                      VALUES ($1, $2, '', $3, 0, 'uploading', $4)";
        let query = sqlx::query(insert).bind(&file.id).bind(file.created_ms).bind(&file.filename).bind(&file.owner);
        query.execute(self.pool().await?).await?;
        Ok(())
    }

    /// Parts are counted from 0.
    pub async fn add_part(&self, id: &str, part: i64, content: &str) -> Result<()> {
        let insert = "INSERT INTO file_parts (file_id, part, content) VALUES ($1, $2, $3)";
        sqlx::query(insert).bind(id).bind(part).bind(content).execute(self.pool().await?).await?;
        Ok(())
    }

    /// From here on the file is there.
    pub async fn finish_file(&self, id: &str, purpose: &str, bytes: i64, expires_ms: Option<i64>) -> Result<()> {
        let update = "UPDATE files SET status = 'processed', purpose = $2, bytes = $3, expires_ms = $4 WHERE id = $1";
        let query = sqlx::query(update).bind(id).bind(purpose).bind(bytes).bind(expires_ms);
        query.execute(self.pool().await?).await?;
        Ok(())
    }

    /// Forgets uploads that began before, and files whose time is over.
    pub async fn sweep_files(&self, uploads_before_ms: i64, now_ms: i64) -> Result<()> {
        let delete = "DELETE FROM files WHERE status = 'uploading' AND created_ms < $1";
        sqlx::query(delete).bind(uploads_before_ms).execute(self.pool().await?).await?;
        let over = "SELECT id FROM files WHERE expires_ms <= $1";
        let over: Vec<String> = sqlx::query_scalar(over).bind(now_ms).fetch_all(self.pool().await?).await?;
        for id in over {
            self.delete_file(&id).await?;
        }
        Ok(())
    }

    /// `None` if it was never there, is not there yet, or no more.
    pub async fn file(&self, id: &str, now_ms: i64) -> Result<Option<FileObject>> {
        let select =
            "SELECT * FROM files WHERE id = $1 AND status = 'processed' AND (expires_ms IS NULL OR expires_ms > $2)";
        let row = sqlx::query(select).bind(id).bind(now_ms).fetch_optional(self.pool().await?).await?;
        Ok(row.as_ref().map(FileObject::read).transpose()?)
    }

    /// `None` if there is no file `after`.
    pub async fn files(&self, query: &FileQuery) -> Result<Option<Page<FileObject>>> {
        let pool = self.pool().await?;
        let (mut at, mut id) = if query.oldest_first { (i64::MIN, String::new()) } else { (i64::MAX, String::new()) };
        if let Some(after) = &query.paging.after {
            let found =
                sqlx::query("SELECT created_ms FROM files WHERE id = $1").bind(after).fetch_optional(pool).await?;
            let Some(found) = found else { return Ok(None) };
            (at, id) = (found.try_get(0)?, after.clone());
        }
        let newest = "SELECT * FROM files WHERE (created_ms < $1 OR (created_ms = $1 AND id < $2)) AND status = 'processed' \
                      AND (expires_ms IS NULL OR expires_ms > $3) AND ($4 = '' OR purpose = $4) \
                      AND ($6 = '' OR key_id = $6) ORDER BY created_ms DESC, id DESC LIMIT $5";
        let oldest = "SELECT * FROM files WHERE (created_ms > $1 OR (created_ms = $1 AND id > $2)) AND status = 'processed' \
                      AND (expires_ms IS NULL OR expires_ms > $3) AND ($4 = '' OR purpose = $4) \
                      AND ($6 = '' OR key_id = $6) ORDER BY created_ms, id LIMIT $5";
        let purpose = query.purpose.clone().unwrap_or_default();
        let limit = query.paging.limit;
        let select = sqlx::query(if query.oldest_first { oldest } else { newest });
        let select = select.bind(at).bind(id).bind(query.now_ms).bind(purpose).bind(limit as i64 + 1);
        let select = select.bind(query.owner.clone().unwrap_or_default());
        page(select.fetch_all(pool).await?, limit, FileObject::read).map(Some)
    }

    /// The part behind `at`, from -1 on; `None` at the end.
    pub async fn part(&self, file: &FileObject, at: i64) -> Result<Option<Part>> {
        let pool = self.pool().await?;
        let rows = match &file.origin {
            Origin::Uploaded => {
                let select =
                    "SELECT part, content FROM file_parts WHERE file_id = $1 AND part > $2 ORDER BY part LIMIT 1";
                sqlx::query(select).bind(&file.id).bind(at).fetch_all(pool).await?
            }
            Origin::Written { batch, outcome } => {
                let select = "SELECT line, answer FROM batch_items WHERE batch_id = $1 AND outcome = $2 AND line > $3 \
                              ORDER BY line LIMIT $4";
                let select = sqlx::query(select).bind(batch).bind(outcome.number()).bind(at).bind(ANSWERS_PER_PART);
                select.fetch_all(pool).await?
            }
        };
        let Some(last) = rows.last() else { return Ok(None) };
        let at = last.try_get(0)?;
        let mut content = String::new();
        for row in &rows {
            content.push_str(row.try_get(1)?);
            if file.origin != Origin::Uploaded {
                content.push('\n');
            }
        }
        Ok(Some(Part { content, at }))
    }

    /// The content is gone, too; a batch that reads it has copied what it needs. False if there is no such file.
    pub async fn delete_file(&self, id: &str) -> Result<bool> {
        let mut transaction = self.begin().await?;
        let row = sqlx::query("SELECT * FROM files WHERE id = $1").bind(id).fetch_optional(&mut *transaction).await?;
        let Some(row) = row else { return Ok(false) };
        if let Origin::Written { batch, outcome } = FileObject::read(&row)?.origin {
            let erase = "UPDATE batch_items SET answer = '' WHERE batch_id = $1 AND outcome = $2";
            sqlx::query(erase).bind(batch).bind(outcome.number()).execute(&mut *transaction).await?;
        }
        // Its parts follow by the foreign key.
        sqlx::query("DELETE FROM files WHERE id = $1").bind(id).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(true)
    }
}
