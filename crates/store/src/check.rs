//! Whether the schema is the one that this program knows, for `forebay db check`.

use sqlx::Row;

use super::{Result, Store, migrations};

/// A step of the schema, and whether it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub version: i64,
    pub name: &'static str,
    pub state: SchemaState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaState {
    Applied,
    /// Not taken yet: `forebay db migrate`, or the next start of a server, takes it.
    Pending,
    /// Taken by a text that was not ours, or only half.
    Different,
}

impl Store {
    /// The steps that we know, and the versions of those that somebody newer took.
    pub async fn schema(&self) -> Result<(Vec<Step>, Vec<i64>)> {
        let select =
            "SELECT version, CAST(success AS INTEGER) AS success, checksum FROM _sqlx_migrations ORDER BY version";
        let rows = match sqlx::query(select).fetch_all(self.pool().await?).await {
            // A database in which nobody has been yet.
            Err(sqlx::Error::Database(error)) if error.message().contains("_sqlx_migrations") => Vec::new(),
            other => other?,
        };
        let mut taken = Vec::new();
        for row in &rows {
            let version: i64 = row.try_get("version")?;
            let success: i64 = row.try_get::<i32, _>("success").map(i64::from).or_else(|_| row.try_get("success"))?;
            let checksum: Vec<u8> = row.try_get("checksum")?;
            taken.push((version, success != 0, checksum));
        }
        let migrator = migrations::migrator();
        let step = |migration: &sqlx::migrate::Migration, name: &'static str| {
            let state = match taken.iter().find(|(version, ..)| *version == migration.version) {
                None => SchemaState::Pending,
                Some((_, true, checksum)) if **checksum == *migration.checksum => SchemaState::Applied,
                Some(_) => SchemaState::Different,
            };
            Step { version: migration.version, name, state }
        };
        let steps: Vec<Step> = migrator.iter().zip(migrations::names()).map(|(one, name)| step(one, name)).collect();
        let newer = taken.iter().map(|(version, ..)| *version);
        let newer = newer.filter(|version| steps.iter().all(|step| step.version != *version)).collect();
        Ok((steps, newer))
    }
}
