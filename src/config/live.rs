//! Reading the configuration again while the server runs: what differs, and whether it can be put in force without a restart.

use std::path::Path;

use forebay_core::settings::Effect;

use super::error::ConfigError;
use super::load::{Loaded, environment, load};
use super::origin::Entry;
use super::table;

/// A key whose value is another than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub key: &'static str,
    /// As they may be shown.
    pub from: String,
    pub to: String,
    pub effect: Effect,
}

impl Loaded {
    /// The same flags over the file and the environment as they are now.
    pub fn again(&self) -> Result<Loaded, ConfigError> {
        if let Some(path) = &self.source.file {
            regular(path)?;
        }
        load(self.source.file.as_deref(), environment(), &self.source.flags)
    }

    /// Keys that somebody set to something else than their default.
    pub fn changed_keys(&self) -> Vec<&'static str> {
        let is_default =
            |name: &str, entry: &Entry| table::find(name).is_some_and(|row| row.same(&row.default_text(), &entry.text));
        self.merged.iter().filter(|(name, entry)| !is_default(name, entry)).map(|(name, _)| *name).collect()
    }

    /// What `next` says otherwise, by key.
    pub fn differences(&self, next: &Loaded) -> Vec<Difference> {
        let effect = |key: &str| table::find(key).map_or(Effect::Restart, |row| row.effect);
        let same =
            |key: &str, from: &Entry, to: &Entry| table::find(key).is_some_and(|row| row.same(&from.text, &to.text));
        let shown = |entry: &Entry| forebay_store::without_password(&entry.text);
        let pairs = self.merged.iter().zip(next.merged.values());
        let changed = pairs.filter(|((key, from), to)| !same(key, from, to));
        let difference = |((key, from), to): ((&&'static str, &Entry), &Entry)| Difference {
            key,
            from: shown(from),
            to: shown(to),
            effect: effect(key),
        };
        changed.map(difference).collect()
    }
}

/// A pipe has been read to its end, and to wait for more of it would be to wait for ever.
fn regular(path: &Path) -> Result<(), ConfigError> {
    let fail = |message: String| ConfigError::File { path: path.into(), message };
    let metadata = std::fs::metadata(path).map_err(|error| fail(error.to_string()))?;
    if metadata.is_file() { Ok(()) } else { Err(fail("is no regular file, and cannot be read again".into())) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_file_is_read_again_under_the_same_flags() {
        let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
        let write = |text: &str| std::fs::write(file.path(), text).unwrap();
        write("batching:\n  strategy: fixed\nstore:\n  url: postgres://u:old@h/db\n");
        let flags = [("port", "server.port", "3".to_owned())];
        let before = load(Some(file.path()), BTreeMap::new(), &flags).unwrap();
        write("batching:\n  strategy: immediate\nserver:\n  port: 9\nstore:\n  url: postgres://u:new@h/db2\n");
        let after = before.again().unwrap();
        let differences = before.differences(&after);
        let seen: Vec<_> = differences.iter().map(|d| (d.key, d.from.as_str(), d.to.as_str(), d.effect)).collect();
        assert_eq!(
            seen,
            [
                ("batching.strategy", "fixed", "immediate", Effect::Tuned("strategy")),
                ("store.url", "postgres://u:***@h/db", "postgres://u:***@h/db2", Effect::Restart),
            ],
            "a flag goes before the file"
        );
        write("batching:\n  strategy: 5\n");
        let refused = before.again().unwrap_err();
        assert_eq!(refused.place().map(|place| (place.line, place.column)), Some((2, 3)), "{refused}");
        write("thermal:\n  fair_celsius: 99\n");
        assert_eq!(before.again().unwrap_err().place().map(|place| place.line), Some(2));
    }

    #[test]
    fn what_is_no_file_is_refused_and_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        std::fs::write(&path, "").unwrap();
        let before = load(Some(&path), BTreeMap::new(), &[]).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(before.again().unwrap_err().to_string().contains("no regular file"));
        std::fs::remove_dir(&path).unwrap();
        assert!(before.again().is_err());
        std::fs::write(&path, [0xff, 0xfe, b'a']).unwrap();
        assert!(before.again().unwrap_err().to_string().contains("utf-8"));
        std::fs::write(&path, "#".repeat(2 << 20)).unwrap();
        assert!(before.again().unwrap_err().to_string().contains("longer"));
    }
}
