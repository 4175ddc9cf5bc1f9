//! Which store, and how large it may grow.

use super::location::Location;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub location: Location,
    /// MiB that a SQLite database may have; `None` is as many as the disk.
    pub max_mib: Option<u32>,
}

impl Default for Config {
    fn default() -> Config {
        Config { location: Location::File("forebay.db".into()), max_mib: None }
    }
}

impl Config {
    /// Gone with the process.
    pub fn memory() -> Config {
        Config { location: Location::Memory, max_mib: None }
    }
}
