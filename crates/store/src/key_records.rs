//! API keys: digests of what clients send, roles and limits. Who may do what with them is the business of `keys`.

use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};

use super::{Result, Store};

/// A row. Numbers are as wide as SQL's; `keys` reads them as what they mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    pub id: String,
    pub created_ms: i64,
    pub name: String,
    pub roles: String,
    /// Hexadecimal.
    pub digest: String,
    pub previous_digest: Option<String>,
    pub previous_until_ms: Option<i64>,
    pub expires_ms: Option<i64>,
    pub revoked_ms: Option<i64>,
    pub requests_per_minute: Option<i64>,
    pub tokens_per_minute: Option<i64>,
    pub tokens_per_month: Option<i64>,
    pub concurrency: Option<i64>,
    pub priority_ceiling: Option<String>,
    /// Thousandths.
    pub weight: i64,
    pub cache_salt: String,
}

impl KeyRecord {
    fn read(row: &AnyRow) -> sqlx::Result<KeyRecord> {
        Ok(KeyRecord {
            id: row.try_get("id")?,
            created_ms: row.try_get("created_ms")?,
            name: row.try_get("name")?,
            roles: row.try_get("roles")?,
            digest: row.try_get("digest")?,
            previous_digest: row.try_get("previous_digest")?,
            previous_until_ms: row.try_get("previous_until_ms")?,
            expires_ms: row.try_get("expires_ms")?,
            revoked_ms: row.try_get("revoked_ms")?,
            requests_per_minute: row.try_get("requests_per_minute")?,
            tokens_per_minute: row.try_get("tokens_per_minute")?,
            tokens_per_month: row.try_get("tokens_per_month")?,
            concurrency: row.try_get("concurrency")?,
            priority_ceiling: row.try_get("priority_ceiling")?,
            weight: row.try_get("weight")?,
            cache_salt: row.try_get("cache_salt")?,
        })
    }
}

impl Store {
    pub async fn add_key(&self, key: &KeyRecord) -> Result<()> {
        let insert = "INSERT INTO api_keys (id, created_ms, name, roles, digest, previous_digest, previous_until_ms, \
                      expires_ms, revoked_ms, requests_per_minute, tokens_per_minute, tokens_per_month, concurrency, \
                      priority_ceiling, weight, cache_salt) \
                      VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";
        let mut transaction = self.begin().await?;
        let query = sqlx::query(insert).bind(&key.id).bind(key.created_ms).bind(&key.name).bind(&key.roles);
        let query = query.bind(&key.digest).bind(&key.previous_digest).bind(key.previous_until_ms);
        let query = query.bind(key.expires_ms).bind(key.revoked_ms).bind(key.requests_per_minute);
        let query = query.bind(key.tokens_per_minute).bind(key.tokens_per_month).bind(key.concurrency);
        let query = query.bind(&key.priority_ceiling).bind(key.weight).bind(&key.cache_salt);
        query.execute(&mut *transaction).await?;
        changed(&mut transaction).await?;
        Ok(transaction.commit().await?)
    }

    /// All keys, oldest first, revoked ones too.
    pub async fn keys(&self) -> Result<Vec<KeyRecord>> {
        let rows = sqlx::query("SELECT * FROM api_keys ORDER BY created_ms, id").fetch_all(self.pool().await?).await?;
        Ok(rows.iter().map(KeyRecord::read).collect::<sqlx::Result<_>>()?)
    }

    /// A number that grows with every change of a key.
    pub async fn keys_revision(&self) -> Result<i64> {
        let select = "SELECT revision FROM api_keys_revision WHERE id = 1";
        Ok(sqlx::query_scalar(select).fetch_one(self.pool().await?).await?)
    }

    /// False if there is no such key, or it was revoked before.
    pub async fn revoke_key(&self, id: &str, now_ms: i64) -> Result<bool> {
        let update = "UPDATE api_keys SET revoked_ms = $2 WHERE id = $1 AND revoked_ms IS NULL";
        let mut transaction = self.begin().await?;
        let done = sqlx::query(update).bind(id).bind(now_ms).execute(&mut *transaction).await?.rows_affected() == 1;
        changed(&mut transaction).await?;
        transaction.commit().await?;
        Ok(done)
    }

    /// Gives a key another digest; the one before is good until `previous_until_ms`. False if there is no such key that was
    /// not revoked.
    pub async fn rotate_key(&self, id: &str, digest: &str, previous_until_ms: i64) -> Result<bool> {
        let update = "UPDATE api_keys SET previous_digest = digest, previous_until_ms = $3, digest = $2 \
                      WHERE id = $1 AND revoked_ms IS NULL";
        let mut transaction = self.begin().await?;
        let query = sqlx::query(update).bind(id).bind(digest).bind(previous_until_ms);
        let done = query.execute(&mut *transaction).await?.rows_affected() == 1;
        changed(&mut transaction).await?;
        transaction.commit().await?;
        Ok(done)
    }
}

async fn changed(transaction: &mut Transaction<'static, Any>) -> sqlx::Result<()> {
    let update = "UPDATE api_keys_revision SET revision = revision + 1 WHERE id = 1";
    sqlx::query(update).execute(&mut **transaction).await?;
    Ok(())
}
