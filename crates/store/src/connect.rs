//! Opening: one connection that says clearly what is wrong, then the schema, then the pool.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions, install_default_drivers};
use sqlx::{AnyConnection, AnyPool, ConnectOptions, Connection};

use super::config::Config;
use super::migrations;
use super::{Location, StoreError};

/// Who opens a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum User {
    /// The one server of a SQLite file; brings the schema up to date.
    Server,
    /// A command beside the server, which may be running.
    Command,
    /// The same, and it changes nothing.
    Reader,
}

/// Readers beside the one writer that SQLite has.
const CONNECTIONS: u32 = 4;
/// For a connection of the pool; what SQLite waits for its lock comes on top.
const ACQUIRE: Duration = Duration::from_secs(10);
const BUSY_MS: i64 = 5_000;

#[derive(Debug)]
pub(super) struct Opened {
    pub pool: AnyPool,
    /// Released by the system when the process ends, however it ends.
    _lock: Option<File>,
}

pub(super) async fn open(config: &Config, user: User) -> Result<Opened, StoreError> {
    let fail = |message: String| StoreError::Open { location: config.location.to_string(), message };
    let wrong = |error: &dyn std::error::Error| fail(error.to_string());
    install_default_drivers();
    let lock = match &config.location {
        Location::File(_) if user == User::Reader => None,
        Location::File(path) => match lock(path) {
            Ok(lock) => Some(lock),
            // A server runs: it has brought the schema up to date, and SQLite itself keeps writers apart.
            Err(Lock::Held(_)) if user == User::Command => None,
            Err(Lock::Held(message) | Lock::Failed(message)) => return Err(fail(message)),
        },
        Location::Memory | Location::Postgres(_) => None,
    };
    let migrates = user != User::Reader && (lock.is_some() || !matches!(config.location, Location::File(_)));
    let options = AnyConnectOptions::from_str(&config.location.url()).map_err(|error| wrong(&error))?;
    let options = options.disable_statement_logging();
    let pragmas = Pragmas::of(config);
    if !matches!(config.location, Location::Memory) {
        // The pool hides why a connection could not be made; a plain one says it.
        let mut connection = AnyConnection::connect_with(&options).await.map_err(|error| wrong(&error))?;
        pragmas.set(&mut connection).await.map_err(|error| wrong(&error))?;
        connection.close().await.map_err(|error| wrong(&error))?;
    }
    let pool = pool(config).after_connect(move |connection, _| Box::pin(pragmas.set(connection)));
    let pool = pool.connect_with(options).await.map_err(|error| wrong(&error))?;
    if migrates {
        migrations::migrator().run(&pool).await.map_err(|error| wrong(&error))?;
    }
    Ok(Opened { pool, _lock: lock })
}

fn pool(config: &Config) -> AnyPoolOptions {
    let options = AnyPoolOptions::new().acquire_timeout(ACQUIRE).min_connections(1);
    // A full SQLite ends a transaction by itself, which sqlx does not notice: the connection could begin no other.
    let options = options.after_release(|connection, _| {
        Box::pin(async move {
            connection.ping().await?;
            Ok(!connection.is_in_transaction())
        })
    });
    match config.location {
        // What is in memory ends with its connection.
        Location::Memory => options.max_connections(1).idle_timeout(None).max_lifetime(None),
        Location::File(_) | Location::Postgres(_) => options.max_connections(CONNECTIONS),
    }
}

/// How SQLite is to behave. PostgreSQL is its owner's to configure.
#[derive(Clone, Copy)]
struct Pragmas {
    sqlite: bool,
    file: bool,
    max_mib: Option<u32>,
}

impl Pragmas {
    fn of(config: &Config) -> Pragmas {
        let file = matches!(config.location, Location::File(_));
        let max_mib = config.max_mib.filter(|_| file);
        Pragmas { sqlite: file || config.location == Location::Memory, file, max_mib }
    }

    /// Sets them and reads them back: a database that does not obey would lose what it acknowledged.
    async fn set(self, connection: &mut AnyConnection) -> sqlx::Result<()> {
        if !self.sqlite {
            return Ok(());
        }
        let journal: String = sqlx::query_scalar("PRAGMA journal_mode = WAL").fetch_one(&mut *connection).await?;
        if self.file && journal != "wal" {
            return Err(refused("journal_mode", &journal));
        }
        // FULL: each commit is on the disk before it is acknowledged.
        for set in ["PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON", "PRAGMA busy_timeout = 5000"] {
            sqlx::raw_sql(set).execute(&mut *connection).await?;
        }
        for (pragma, read, wanted) in [
            ("synchronous", "PRAGMA synchronous", 2),
            ("foreign_keys", "PRAGMA foreign_keys", 1),
            ("busy_timeout", "PRAGMA busy_timeout", BUSY_MS),
        ] {
            let is: i64 = sqlx::query_scalar(read).fetch_one(&mut *connection).await?;
            if is != wanted {
                return Err(refused(pragma, &is.to_string()));
            }
        }
        if let Some(mib) = self.max_mib {
            let page: i64 = sqlx::query_scalar("PRAGMA page_size").fetch_one(&mut *connection).await?;
            let pages = (i64::from(mib) << 20) / page.max(1);
            let limit = sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"));
            sqlx::raw_sql(limit).execute(&mut *connection).await?;
        }
        Ok(())
    }
}

fn refused(pragma: &str, value: &str) -> sqlx::Error {
    sqlx::Error::Configuration(format!("{pragma} is {value} although it was set otherwise").into())
}

/// Why there is no lock.
enum Lock {
    Held(String),
    Failed(String),
}

/// One server per SQLite file: a second one would run the same batches again.
fn lock(path: &Path) -> Result<File, Lock> {
    let mut name = path.as_os_str().to_owned();
    name.push("-lock");
    let open = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&name);
    let mut file = open.map_err(|error| {
        Lock::Failed(format!(
            "{}: {error}; name another place with store.url (--store), or `memory` to keep nothing",
            Path::new(&name).display()
        ))
    })?;
    match file.try_lock() {
        Ok(()) => {
            let written = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
            written.map(|()| file).map_err(|error| Lock::Failed(format!("{}: {error}", Path::new(&name).display())))
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.rewind().and_then(|()| file.read_to_string(&mut holder));
            let holder = if holder.is_empty() { "another process".to_owned() } else { format!("process {holder}") };
            Err(Lock::Held(format!("{holder} uses it; give each server its own with store.url (--store), or `memory`")))
        }
        Err(TryLockError::Error(error)) => Err(Lock::Failed(format!("{}: {error}", Path::new(&name).display()))),
    }
}
