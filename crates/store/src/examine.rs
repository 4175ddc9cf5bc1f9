//! A look at a store without changing it, for `forebay doctor`: whether it can be reached, and how old its schema is.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use super::check::{SchemaState, Step};
use super::{Config, Location, Store, StoreError};

/// What is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Examined {
    /// Kept in memory: nothing to look at.
    Memory,
    /// The first start makes it.
    Missing,
    There {
        /// The steps of the schema that we know.
        steps: Vec<Step>,
        /// Steps that a newer version of the program took.
        newer: usize,
    },
}

/// A server that does not answer by then is as good as none.
const PATIENCE: Duration = Duration::from_secs(5);

/// Changes nothing, and takes no lock that a server needs.
pub async fn examine(config: &Config) -> Result<Examined, StoreError> {
    let fail = |message: String| StoreError::Open { location: config.location.to_string(), message };
    match &config.location {
        Location::Memory => return Ok(Examined::Memory),
        Location::File(path) if !path.exists() => {
            writable(path).map_err(fail)?;
            return Ok(Examined::Missing);
        }
        Location::File(path) => {
            OpenOptions::new().read(true).write(true).open(path).map_err(|error| fail(error.to_string()))?;
        }
        Location::Postgres(_) => {}
    }
    let store = Store::reader(config.clone());
    let schema = timeout(PATIENCE, store.schema()).await;
    let (steps, newer) = schema.map_err(|_| fail(format!("no answer within {} s", PATIENCE.as_secs())))??;
    store.close().await;
    Ok(Examined::There { steps, newer: newer.len() })
}

impl Examined {
    /// Names of the steps in such a state.
    pub fn steps(&self, state: SchemaState) -> Vec<&'static str> {
        match self {
            Examined::Memory | Examined::Missing => Vec::new(),
            Examined::There { steps, .. } => {
                steps.iter().filter(|step| step.state == state).map(|step| step.name).collect()
            }
        }
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
    use super::super::migrations;
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
        let whole = examine(&config).await.unwrap();
        assert!(matches!(whole, Examined::There { newer: 0, .. }), "also while a server uses it: {whole:?}");
        assert_eq!(whole.steps(SchemaState::Applied).len(), migrations::names().count());
        assert!(whole.steps(SchemaState::Pending).is_empty() && whole.steps(SchemaState::Different).is_empty());
        store.close().await;
        std::fs::write(&path, "this is no database, but long enough to be looked at as one".repeat(100)).unwrap();
        assert!(examine(&config).await.is_err());
        let nowhere = Config { location: Location::File(folder.path().join("a/b.db")), max_mib: None };
        assert!(examine(&nowhere).await.unwrap_err().to_string().contains("a"));
    }
}
