//! The ledger: what each key has used, per day, route and model.

use std::collections::HashMap;

use sqlx::Row;
use sqlx::any::AnyRow;

use super::{Result, Store};

/// Requests and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageSum {
    pub requests: i64,
    pub prompt_tokens: i64,
    /// Of the prompt's, those that were in the KV cache.
    pub cached_tokens: i64,
    pub completion_tokens: i64,
}

/// What was used of one kind. In a report, what it was not grouped by is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageRow {
    pub key_id: Option<String>,
    /// Since 1970, in UTC.
    pub day: Option<i64>,
    pub route: Option<String>,
    pub model: Option<String>,
    pub sum: UsageSum,
}

/// What a report tells apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grouping {
    pub key: bool,
    pub day: bool,
    pub route: bool,
    pub model: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageQuery {
    /// Both included.
    pub days: (i64, i64),
    pub key_id: Option<String>,
    pub by: Grouping,
}

/// Writes older than that cannot be on their way any more.
const REMEMBERED_MS: i64 = 86_400_000;

impl Store {
    /// Adds rows, once for each `write`: whoever does not know whether it was done before asks again with the same id. Each
    /// row names its key, day, route and model.
    pub async fn add_usage(&self, write: &str, rows: &[UsageRow], now_ms: i64) -> Result<()> {
        let mut transaction = self.begin().await?;
        let claim = "INSERT INTO usage_writes (id, at_ms) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";
        let claimed = sqlx::query(claim).bind(write).bind(now_ms).execute(&mut *transaction).await?;
        if claimed.rows_affected() == 0 {
            return Ok(());
        }
        let insert = "INSERT INTO key_usage (key_id, day, route, model, requests, prompt_tokens, cached_tokens, \
                      completion_tokens) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
                      ON CONFLICT (key_id, day, route, model) DO UPDATE SET \
                      requests = key_usage.requests + excluded.requests, \
                      prompt_tokens = key_usage.prompt_tokens + excluded.prompt_tokens, \
                      cached_tokens = key_usage.cached_tokens + excluded.cached_tokens, \
                      completion_tokens = key_usage.completion_tokens + excluded.completion_tokens";
        for UsageRow { key_id, day, route, model, sum } in rows {
            let query = sqlx::query(insert).bind(key_id).bind(day).bind(route).bind(model).bind(sum.requests);
            let query = query.bind(sum.prompt_tokens).bind(sum.cached_tokens).bind(sum.completion_tokens);
            query.execute(&mut *transaction).await?;
        }
        let forget = sqlx::query("DELETE FROM usage_writes WHERE at_ms < $1").bind(now_ms - REMEMBERED_MS);
        forget.execute(&mut *transaction).await?;
        Ok(transaction.commit().await?)
    }

    /// Sums, in the order of what they are grouped by.
    pub async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageRow>> {
        let Grouping { key, day, route, model } = query.by;
        let columns = [(key, "key_id"), (day, "day"), (route, "route"), (model, "model")];
        let columns: Vec<&str> = columns.iter().filter(|(wanted, _)| *wanted).map(|(_, name)| *name).collect();
        let names = columns.iter().map(|name| format!("{name}, ")).collect::<String>();
        let by = if columns.is_empty() { String::new() } else { columns.join(", ") };
        let grouped = if by.is_empty() { String::new() } else { format!("GROUP BY {by} ORDER BY {by}") };
        // PostgreSQL's SUM of BIGINT is no BIGINT.
        let sum = |name: &str| format!("CAST(COALESCE(SUM({name}), 0) AS BIGINT) AS {name}");
        let sums = ["requests", "prompt_tokens", "cached_tokens", "completion_tokens"].map(sum).join(", ");
        let of_key = if query.key_id.is_some() { "AND key_id = $3" } else { "" };
        // Made of names that stand above, and nobody's input.
        let select = sqlx::AssertSqlSafe(format!(
            "SELECT {names}{sums} FROM key_usage WHERE day >= $1 AND day <= $2 {of_key} {grouped}"
        ));
        let mut select = sqlx::query(select).bind(query.days.0).bind(query.days.1);
        if let Some(key) = &query.key_id {
            select = select.bind(key);
        }
        let rows = select.fetch_all(self.pool().await?).await?;
        Ok(rows.iter().map(|row| read(row, query.by)).collect::<sqlx::Result<_>>()?)
    }

    /// Tokens of each key that has a monthly limit, from a day on.
    pub async fn tokens_since(&self, day: i64) -> Result<HashMap<String, u64>> {
        let select = "SELECT key_id, CAST(SUM(prompt_tokens + completion_tokens) AS BIGINT) AS tokens FROM key_usage \
                      WHERE day >= $1 AND key_id IN (SELECT id FROM api_keys WHERE tokens_per_month IS NOT NULL) \
                      GROUP BY key_id";
        let rows = sqlx::query(select).bind(day).fetch_all(self.pool().await?).await?;
        let read = |row: &AnyRow| -> sqlx::Result<(String, u64)> {
            Ok((row.try_get("key_id")?, row.try_get::<i64, _>("tokens")?.max(0) as u64))
        };
        Ok(rows.iter().map(read).collect::<sqlx::Result<_>>()?)
    }
}

fn read(row: &AnyRow, by: Grouping) -> sqlx::Result<UsageRow> {
    let text = |wanted: bool, name: &str| wanted.then(|| row.try_get(name)).transpose();
    Ok(UsageRow {
        key_id: text(by.key, "key_id")?,
        day: by.day.then(|| row.try_get("day")).transpose()?,
        route: text(by.route, "route")?,
        model: text(by.model, "model")?,
        sum: UsageSum {
            requests: row.try_get("requests")?,
            prompt_tokens: row.try_get("prompt_tokens")?,
            cached_tokens: row.try_get("cached_tokens")?,
            completion_tokens: row.try_get("completion_tokens")?,
        },
    })
}
