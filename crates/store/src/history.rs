//! Samples of what servers were like, for the time before their memory begins.

use sqlx::Row;

use super::{Result, Store};

/// Rows of one server; the oldest go first, however young they are.
const MOST: i64 = 100_000;

/// A sample as JSON, and when it was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub at_ms: i64,
    pub body: String,
}

impl Store {
    /// Keeps a sample of `instance`, and none of it that is older than `oldest_ms`. A second one of the same moment replaces the
    /// first.
    pub async fn keep_snapshot(&self, instance: &str, snapshot: &Snapshot, oldest_ms: i64) -> Result<()> {
        let mut transaction = self.begin().await?;
        let insert = "INSERT INTO metric_history (instance, at_ms, body) VALUES ($1, $2, $3) \
                      ON CONFLICT (instance, at_ms) DO UPDATE SET body = excluded.body";
        let query = sqlx::query(insert).bind(instance).bind(snapshot.at_ms).bind(&snapshot.body);
        query.execute(&mut *transaction).await?;
        // The one that is as far back as there may be rows, if there are as many.
        let select = "SELECT at_ms FROM metric_history WHERE instance = $1 ORDER BY at_ms DESC LIMIT 1 OFFSET $2";
        let beyond: Option<i64> =
            sqlx::query_scalar(select).bind(instance).bind(MOST - 1).fetch_optional(&mut *transaction).await?;
        let delete = "DELETE FROM metric_history WHERE instance = $1 AND at_ms < $2";
        let before = beyond.unwrap_or(i64::MIN).max(oldest_ms);
        sqlx::query(delete).bind(instance).bind(before).execute(&mut *transaction).await?;
        Ok(transaction.commit().await?)
    }

    /// The samples of `instance` after `since_ms` and before `before_ms`, oldest first; if there are more than `most`, the newest
    /// of them.
    pub async fn snapshots(&self, instance: &str, since_ms: i64, before_ms: i64, most: usize) -> Result<Vec<Snapshot>> {
        let select = "SELECT at_ms, body FROM metric_history WHERE instance = $1 AND at_ms > $2 AND at_ms < $3 \
                      ORDER BY at_ms DESC LIMIT $4";
        let query = sqlx::query(select).bind(instance).bind(since_ms).bind(before_ms).bind(most as i64);
        let rows = query.fetch_all(self.pool().await?).await?;
        let read = |row: &sqlx::any::AnyRow| Ok(Snapshot { at_ms: row.try_get("at_ms")?, body: row.try_get("body")? });
        let newest_first = rows.iter().map(read).collect::<sqlx::Result<Vec<Snapshot>>>()?;
        Ok(newest_first.into_iter().rev().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stores;

    fn snapshot(at_ms: i64) -> Snapshot {
        Snapshot { at_ms, body: format!("{{\"at\":{at_ms}}}") }
    }

    #[tokio::test]
    async fn samples_are_kept_for_their_time_and_each_server_has_its_own() {
        for (store, _folder) in stores().await {
            for at in [100, 200, 300] {
                store.keep_snapshot("a:1", &snapshot(at), 0).await.unwrap();
            }
            store.keep_snapshot("b:1", &snapshot(150), 0).await.unwrap();
            let told = async |since, before, most| {
                let all = store.snapshots("a:1", since, before, most).await.unwrap();
                all.iter().map(|one| one.at_ms).collect::<Vec<_>>()
            };
            assert_eq!(told(0, i64::MAX, 10).await, [100, 200, 300]);
            assert_eq!(told(100, 300, 10).await, [200]);
            assert_eq!(told(0, i64::MAX, 2).await, [200, 300], "the newest");
            store.keep_snapshot("a:1", &snapshot(400), 300).await.unwrap();
            assert_eq!(told(0, i64::MAX, 10).await, [300, 400]);
            assert_eq!(store.snapshots("b:1", 0, 1_000, 10).await.unwrap(), [snapshot(150)]);
            let again = Snapshot { body: "{}".into(), ..snapshot(400) };
            store.keep_snapshot("a:1", &again, 0).await.unwrap();
            assert_eq!(store.snapshots("a:1", 300, 500, 10).await.unwrap(), [again]);
        }
    }
}
