//! What outlives the process: files, batches and their lines, and who changed what. SQLite by default, PostgreSQL by URL;
//! one SQL text for both, over sqlx's `Any` driver.
//!
//! ```text
//! location.rs    what `store.url` means      connect.rs  pragmas, the lock of a SQLite file, the pool
//! migrations.rs  the schema, in steps        error.rs    what can go wrong, as a client meets it
//! files.rs       files and their content     batches.rs  batches from `validating` to their end
//! items.rs       the lines of a batch        audit.rs    changes by the operator
//! key_records.rs API keys, as digests        usage.rs    what each key has used
//! check.rs       whether the schema is ours, for `forebay db`
//! examine.rs     a look from outside
//! config.rs      which store                      settings.rs  its settings
//! lead.rs        of several servers on one PostgreSQL, who runs the batches
//! history.rs     what servers were like, a sample per minute
//! keys/          API keys in memory: who may ask, and how much      jobs/  the Batch API behind its routes
//! ```
//! What a method returned `Ok` for is on disk (WAL, synchronous FULL). Each is one transaction, so a process that is killed
//! leaves either all of it or nothing. The engine knows nothing of this crate and never waits for it;
//! this crate knows neither HTTP nor models: whoever answers a batch's lines is handed in ([`jobs::Answerer`]).
//!
//! Read [`Store`], [`Batch`], [`keys::Keys`], [`jobs::Runner`] and [`StoreError`] first.
//!
//! ```
//! use forebay_store::{Config, Location, Store};
//!
//! # async fn f() -> Result<(), forebay_store::StoreError> {
//! // Opens with its first use; gone with the process.
//! let store = Store::new(Config::memory());
//! store.open().await?;
//! assert_eq!(store.location(), &Location::Memory);
//! store.close().await;
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new().unwrap().block_on(f()).unwrap();
//! ```

mod audit;
mod batches;
mod check;
mod config;
mod connect;
mod error;
mod examine;
mod files;
mod history;
mod items;
pub mod jobs;
mod key_records;
pub mod keys;
mod lead;
mod location;
mod migrations;
mod settings;
mod usage;

use std::sync::Arc;

use sqlx::any::AnyRow;
use sqlx::{Any, AnyPool, Transaction};
use tokio::sync::OnceCell;

pub use audit::AuditEntry;
pub use batches::{Batch, BatchStatus, NewBatch};
pub use check::{SchemaState, Step};
pub use config::Config;
pub use error::StoreError;
pub use examine::{Examined, examine};
pub use files::{FileObject, FileQuery, NewFile, Origin, Part};
pub use history::Snapshot;
pub use items::{FinishedItem, Item, NewItem, Outcome};
pub use key_records::KeyRecord;
pub use lead::Lead;
pub use location::{Location, without_password};
pub use settings::{jobs_settings, settings};
pub use usage::{Grouping, UsageQuery, UsageRow, UsageSum};

use connect::{Opened, User};

type Result<T> = std::result::Result<T, StoreError>;

/// A store that opens with its first use. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Config,
    user: User,
    opened: OnceCell<Opened>,
}

/// A part of a list, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    pub data: Vec<T>,
    pub has_more: bool,
}

/// Which part of a list is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paging {
    /// Id of the last one that the client has.
    pub after: Option<String>,
    pub limit: usize,
}

impl Store {
    pub fn new(config: Config) -> Store {
        Store(Arc::new(Inner { config, user: User::Server, opened: OnceCell::new() }))
    }

    /// For a command that works on the store while a server may have it open: takes no lock that the server needs, and
    /// changes the schema only where no server runs.
    pub fn beside(config: Config) -> Store {
        Store(Arc::new(Inner { config, user: User::Command, opened: OnceCell::new() }))
    }

    /// For a look: changes not even the schema.
    pub fn reader(config: Config) -> Store {
        Store(Arc::new(Inner { config, user: User::Reader, opened: OnceCell::new() }))
    }

    pub fn location(&self) -> &Location {
        &self.0.config.location
    }

    /// Connects and brings the schema up to date, if that was not done before.
    pub async fn open(&self) -> Result<()> {
        self.opened().await.map(|_| ())
    }

    /// Waits for what is under way. A store that is closed stays closed.
    pub async fn close(&self) {
        if let Some(opened) = self.0.opened.get() {
            opened.pool.close().await;
        }
    }

    async fn opened(&self) -> Result<&Opened> {
        self.0.opened.get_or_try_init(|| connect::open(&self.0.config, self.0.user)).await
    }

    async fn pool(&self) -> Result<&AnyPool> {
        Ok(&self.opened().await?.pool)
    }

    /// A transaction that will write. SQLite's takes the right to write at once: one that asked for it later would fail
    /// if another had it meanwhile, instead of waiting.
    async fn begin(&self) -> Result<Transaction<'static, Any>> {
        let pool = self.pool().await?;
        Ok(match self.0.config.location {
            Location::Memory | Location::File(_) => pool.begin_with("BEGIN IMMEDIATE").await?,
            Location::Postgres(_) => pool.begin().await?,
        })
    }
}

/// The rows of a page of which one more than `limit` were asked for.
fn page<T>(rows: Vec<AnyRow>, limit: usize, read: impl Fn(&AnyRow) -> sqlx::Result<T>) -> Result<Page<T>> {
    let has_more = rows.len() > limit;
    let data = rows.iter().take(limit).map(read).collect::<sqlx::Result<Vec<T>>>()?;
    Ok(Page { data, has_more })
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
