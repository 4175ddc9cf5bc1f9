//! A look at a store without changing it, for `forebay doctor`: whether it can be reached, and how old its schema is.

use std::fs::OpenOptions;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, install_default_drivers};
use sqlx::{AnyConnection, ConnectOptions, Connection};
use tokio::time::timeout;

use super::{Config, Location, StoreError, migrations};

/// What is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Examined {
    /// Kept in memory: nothing to look at.
    Memory,
    /// The first start makes it.
    Missing,
    There {
        /// Steps of the schema that were taken.
        applied: usize,
        /// Steps that the next start takes.
        pending: Vec<&'static str>,
        /// Taken by a newer version of the program.
        newer: usize,
    },
}

/// A server that does not answer by then is as good as none.
const PATIENCE: Duration = Duration::from_secs(5);

/// Makes nothing, changes nothing, and takes no lock.
pub async fn examine(config: &Config) -> Result<Examined, StoreError> {
    let fail = |message: String| StoreError::Open { location: config.location.to_string(), message };
    let url = match &config.location {
        Location::Memory => return Ok(Examined::Memory),
        Location::File(path) if !path.exists() => {
            writable(path).map_err(fail)?;
            return Ok(Examined::Missing);
        }
        Location::File(path) => {
            OpenOptions::new().read(true).write(true).open(path).map_err(|error| fail(error.to_string()))?;
            config.location.url().replace("mode=rwc", "mode=rw")
        }
        Location::Postgres(url) => url.clone(),
    };
    install_default_drivers();
    let options = AnyConnectOptions::from_str(&url).map_err(|error| fail(error.to_string()))?;
    let options = options.disable_statement_logging();
    let connected = timeout(PATIENCE, AnyConnection::connect_with(&options)).await;
    let connected = connected.map_err(|_| fail(format!("no answer within {} s", PATIENCE.as_secs())))?;
    let mut connection = connected.map_err(|error| fail(error.to_string()))?;
    let taken = taken(&mut connection).await.map_err(|error| fail(error.to_string()));
    let _ = connection.close().await;
    Ok(compared(&taken?))
}

fn compared(taken: &[i64]) -> Examined {
    let known = migrations::steps();
    let (there, missing): (Vec<_>, Vec<_>) = known.into_iter().partition(|(version, _)| taken.contains(version));
    let newer = taken.len().saturating_sub(there.len());
    Examined::There { applied: there.len(), pending: missing.into_iter().map(|(_, name)| name).collect(), newer }
}

/// Versions of the steps that were taken; none where nobody has been yet.
async fn taken(connection: &mut AnyConnection) -> sqlx::Result<Vec<i64>> {
    match sqlx::query_scalar("SELECT version FROM _sqlx_migrations").fetch_all(connection).await {
        Err(sqlx::Error::Database(error)) if error.message().contains("_sqlx_migrations") => Ok(Vec::new()),
        taken => taken,
    }
}

/// Whether the folder takes a new file.
fn writable(path: &Path) -> Result<(), String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let probe = folder.join(format!(".forebay-doctor-{}", std::process::id()));
    let made = OpenOptions::new().create_new(true).write(true).open(&probe);
    made.map_err(|error| format!("{}: {error}", folder.display()))?;
    std::fs::remove_file(&probe).map_err(|error| format!("{}: {error}", probe.display()))
}

#[cfg(test)]
mod tests {
    use super::super::Store;
    use super::*;

    #[tokio::test]
    async fn it_says_what_is_there_and_leaves_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let config = Config { location: Location::File(path.clone()), max_mib: None };
        assert_eq!(examine(&Config::memory()).await.unwrap(), Examined::Memory);
        assert_eq!(examine(&config).await.unwrap(), Examined::Missing);
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing was left behind");
        let store = Store::new(config.clone());
        store.open().await.unwrap();
        let known = migrations::steps().len();
        let whole = Examined::There { applied: known, pending: Vec::new(), newer: 0 };
        assert_eq!(examine(&config).await.unwrap(), whole, "also while a server uses it");
        store.close().await;
        std::fs::write(&path, "this is no database, but long enough to be looked at as one".repeat(100)).unwrap();
        assert!(examine(&config).await.is_err());
        let nowhere = Config { location: Location::File(folder.path().join("a/b.db")), max_mib: None };
        assert!(examine(&nowhere).await.unwrap_err().to_string().contains("a"));
    }

    #[test]
    fn steps_are_counted_by_their_versions() {
        let first = migrations::steps()[0];
        assert!(matches!(compared(&[]), Examined::There { applied: 0, pending, newer: 0 } if pending[0] == first.1));
        assert!(matches!(compared(&[first.0, 9_999]), Examined::There { applied: 1, newer: 1, .. }));
    }
}
