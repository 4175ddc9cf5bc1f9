//! A value as somebody wrote it, and where.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::place::Place;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    /// And where in it, as far as that is known.
    File(PathBuf, Option<Place>),
    Environment(String),
    Flag(&'static str),
}

impl Origin {
    pub fn place(&self) -> Option<Place> {
        if let Origin::File(_, place) = self { *place } else { None }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => write!(f, "default"),
            Origin::File(path, None) => write!(f, "file {}", path.display()),
            Origin::File(path, Some(place)) => write!(f, "file {}:{place}", path.display()),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(name) => write!(f, "flag --{name}"),
        }
    }
}

/// A value as text, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub text: String,
    pub origin: Origin,
}

/// One entry per key.
pub type Merged = BTreeMap<&'static str, Entry>;

/// A flag that was given: its name, its key and its value.
pub type Flag = (&'static str, &'static str, String);
