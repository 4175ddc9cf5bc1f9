//! The lines of a batch. A line is answered once: who answers it second changes nothing.

use std::collections::BTreeMap;

use sqlx::Row;

use super::{Result, Store};

/// How a line ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Completed,
    Failed,
}

impl Outcome {
    pub const ALL: [Outcome; 2] = [Outcome::Completed, Outcome::Failed];

    pub(super) const fn number(self) -> i64 {
        match self {
            Outcome::Completed => 1,
            Outcome::Failed => 2,
        }
    }

    pub(super) fn from_number(number: i64) -> Option<Outcome> {
        Outcome::ALL.into_iter().find(|outcome| outcome.number() == number)
    }
}

/// A line that is to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewItem {
    /// From 1, as in the file.
    pub line: i64,
    pub custom_id: String,
    /// The body of the request.
    pub request: String,
}

pub type Item = NewItem;

/// A line and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedItem {
    pub batch: String,
    pub line: i64,
    pub outcome: Outcome,
    /// The line of the output or error file, without its end.
    pub answer: String,
}

impl Store {
    /// Lines that are there already stay as they are.
    pub async fn add_items(&self, batch: &str, items: &[NewItem]) -> Result<()> {
        let mut transaction = self.begin().await?;
        for NewItem { line, custom_id, request } in items {
            let insert = "INSERT INTO batch_items (batch_id, line, custom_id, request, outcome, answer, bytes) \
                          VALUES ($1, $2, $3, $4, 0, '', 0) ON CONFLICT DO NOTHING";
            let query = sqlx::query(insert).bind(batch).bind(line).bind(custom_id).bind(request);
            query.execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// Lines behind `line` that have no answer, in order.
    pub async fn open_items(&self, batch: &str, line: i64, limit: usize) -> Result<Vec<Item>> {
        let select = "SELECT line, custom_id, request FROM batch_items WHERE batch_id = $1 AND outcome = 0 AND line > $2 \
                      ORDER BY line LIMIT $3";
        let query = sqlx::query(select).bind(batch).bind(line).bind(limit as i64);
        let rows = query.fetch_all(self.pool().await?).await?;
        let item = |row: &sqlx::any::AnyRow| {
            Ok(Item { line: row.try_get(0)?, custom_id: row.try_get(1)?, request: row.try_get(2)? })
        };
        Ok(rows.iter().map(item).collect::<sqlx::Result<_>>()?)
    }

    /// Answers lines and counts them, all in one transaction; those that have an answer keep it.
    pub async fn finish_items(&self, items: &[FinishedItem]) -> Result<()> {
        let mut transaction = self.begin().await?;
        let mut counts: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for item in items {
            let update = "UPDATE batch_items SET outcome = $3, answer = $4, bytes = $5, request = '' \
                          WHERE batch_id = $1 AND line = $2 AND outcome = 0";
            let query = sqlx::query(update).bind(&item.batch).bind(item.line).bind(item.outcome.number());
            let query = query.bind(&item.answer).bind(item.answer.len() as i64 + 1);
            let first = query.execute(&mut *transaction).await?.rows_affected() as i64;
            let (completed, failed) = counts.entry(&item.batch).or_default();
            match item.outcome {
                Outcome::Completed => *completed += first,
                Outcome::Failed => *failed += first,
            }
        }
        for (batch, (completed, failed)) in counts {
            let update = "UPDATE batches SET completed = completed + $2, failed = failed + $3 WHERE id = $1";
            sqlx::query(update).bind(batch).bind(completed).bind(failed).execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }
}
