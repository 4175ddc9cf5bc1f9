//! Of several servers on one PostgreSQL, who runs the batches.

use sqlx::{AnyConnection, Connection};

use super::{Location, Result, Store};

/// Unlike the keys of sqlx's migrator and of anyone else who is likely here: "forebay" and "jobs" in ASCII.
const KEY: i64 = 0x66_6f72_6562_6a6f;

/// The right to run batches, held while this is. SQLite has one process anyway; in PostgreSQL it is an advisory lock of a
/// session, which ends with the process.
#[derive(Debug)]
pub struct Lead(Option<AnyConnection>);

impl Lead {
    /// Whether it is still held: a lock ends with its connection, and others may have it since.
    pub async fn holds(&mut self) -> bool {
        match &mut self.0 {
            None => true,
            Some(connection) => connection.ping().await.is_ok(),
        }
    }
}

impl Store {
    /// `None` while another server leads.
    pub async fn lead(&self) -> Result<Option<Lead>> {
        if !matches!(self.0.config.location, Location::Postgres(_)) {
            return Ok(Some(Lead(None)));
        }
        // Out of the pool: it is kept for as long as the server runs.
        let mut connection = self.pool().await?.acquire().await?.detach();
        let leads: bool =
            sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(KEY).fetch_one(&mut connection).await?;
        if leads {
            return Ok(Some(Lead(Some(connection))));
        }
        connection.close().await?;
        Ok(None)
    }
}
