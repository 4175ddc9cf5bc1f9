//! What `store.url` means.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where the store is.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// SQLite without a file.
    Memory,
    /// A SQLite file, made where there is none.
    File(PathBuf),
    /// As PostgreSQL's own clients take it.
    Postgres(String),
}

impl Location {
    /// The forms of `store.url`, for messages.
    pub const FORMS: &'static str = "memory, sqlite:PATH, or postgres://USER:PASSWORD@HOST:PORT/DATABASE";

    pub fn parse(text: &str) -> Option<Location> {
        if text == "memory" {
            return Some(Location::Memory);
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Some(Location::Postgres(text.to_owned()));
        }
        let path = text.strip_prefix("sqlite:")?;
        let path = path.strip_prefix("//").unwrap_or(path);
        (!path.is_empty() && !path.contains(['?', '\0'])).then(|| Location::File(path.into()))
    }

    /// As `store.url` spells it, password and all.
    pub fn spelled(&self) -> String {
        match self {
            Location::Memory => "memory".into(),
            Location::File(path) => format!("sqlite:{}", path.display()),
            Location::Postgres(url) => url.clone(),
        }
    }

    /// As sqlx takes it.
    pub(super) fn url(&self) -> String {
        match self {
            Location::Memory => "sqlite::memory:".into(),
            Location::File(path) => format!("sqlite:{}?mode=rwc", encoded(path)),
            Location::Postgres(url) => url.clone(),
        }
    }
}

/// Without the password.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Memory => f.write_str("memory"),
            Location::File(path) => write!(f, "sqlite:{}", path.display()),
            Location::Postgres(url) => f.write_str(&without_password(url)),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A URL as it may be shown.
pub fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let Some((user, host)) = authority.rsplit_once('@') else { return url.to_owned() };
    let user = user.split(':').next().unwrap_or_default();
    format!("{scheme}://{user}:***@{host}{path}")
}

/// Percent-encoded where a URL would read it as something else.
fn encoded(path: &Path) -> String {
    let mut out = String::new();
    for c in path.to_string_lossy().chars() {
        match c {
            '%' | '?' | '#' | ' ' => out.push_str(&format!("%{:02X}", c as u32)),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let file = |path: &str| Some(Location::File(path.into()));
        for (text, expected) in [
            ("memory", Some(Location::Memory)),
            ("sqlite:forebay.db", file("forebay.db")),
            ("sqlite:/var/lib/a b.db", file("/var/lib/a b.db")),
            ("sqlite:///var/lib/x.db", file("/var/lib/x.db")),
            ("sqlite:", None),
            ("sqlite:x.db?mode=ro", None),
            ("forebay.db", None),
            ("mysql://x", None),
            ("", None),
        ] {
            assert_eq!(Location::parse(text), expected, "{text}");
        }
        assert!(matches!(Location::parse("postgresql://u@h/db"), Some(Location::Postgres(_))));
        assert_eq!(Location::File("/a b#1.db".into()).url(), "sqlite:/a%20b%231.db?mode=rwc");
    }

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("postgres://u:p@h:1/db", "postgres://u:***@h:1/db"),
            ("postgres://u:p@x@h/db?sslmode=require", "postgres://u:***@h/db?sslmode=require"),
            ("postgres://h/db", "postgres://h/db"),
        ] {
            let location = Location::parse(url).unwrap();
            assert_eq!((location.to_string(), format!("{location:?}")), (shown.to_owned(), shown.to_owned()));
        }
    }
}
