//! What is wrong with a configuration.

use std::net::IpAddr;
use std::path::PathBuf;

use thiserror::Error;

use super::origin::Origin;
use super::place::Place;

/// What is wrong with what the user wrote.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("unknown key {key} ({origin}){}", similar.map(|key| format!("; did you mean {key}?")).unwrap_or_default())]
    UnknownKey { key: String, origin: Origin, similar: Option<&'static str> },
    #[error("{key} = {value:?} ({origin}) is not allowed: it must be {allowed}")]
    BadValue { key: &'static str, value: String, origin: Origin, allowed: String },
    #[error("{section}.{param}{} contradicts another key: {message}", place.map(|at| format!(" (line {at})")).unwrap_or_default())]
    Contradiction { section: &'static str, param: &'static str, message: String, place: Option<Place> },
    #[error("{}:{place}: {message}", path.display())]
    Syntax { path: PathBuf, place: Place, message: String },
    #[error("{}: {message}", path.display())]
    File { path: PathBuf, message: String },
    #[error(
        "others can reach {host}, and nobody is asked for an API key: set keys.required (--require-keys), or server.insecure (--insecure) if that is meant"
    )]
    OpenToOthers { host: IpAddr },
}

impl ConfigError {
    /// Where in the file, if it is the file's mistake.
    pub fn place(&self) -> Option<Place> {
        match self {
            ConfigError::Syntax { place, .. } => Some(*place),
            ConfigError::Contradiction { place, .. } => *place,
            ConfigError::UnknownKey { origin, .. } | ConfigError::BadValue { origin, .. } => origin.place(),
            ConfigError::File { .. } | ConfigError::OpenToOthers { .. } => None,
        }
    }
}
