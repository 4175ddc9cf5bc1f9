//! The schema, in steps that are never edited once released.

use std::borrow::Cow;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

const STEPS: &[(i64, &str, &str)] = &[
    (1, "store", include_str!("../../../migrations/0001_store.sql")),
    (2, "keys", include_str!("../../../migrations/0002_keys.sql")),
    (3, "metric_history", include_str!("../../../migrations/0003_metric_history.sql")),
];

/// Built here, not by sqlx's macro, which would compile the drivers a second time for the compiler.
pub(super) fn migrator() -> Migrator {
    let step = |&(version, name, sql): &(i64, &'static str, &'static str)| {
        Migration::new(version, Cow::Borrowed(name), MigrationType::Simple, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(STEPS.iter().map(step).collect())
}

/// In the order of the migrator.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    STEPS.iter().map(|(_, name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_a_step() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations");
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<String> = names.filter(|name| name.ends_with(".sql")).collect();
        files.sort();
        let steps: Vec<String> = STEPS.iter().map(|(version, name, _)| format!("{version:04}_{name}.sql")).collect();
        assert_eq!(files, steps);
    }

    #[test]
    fn the_texts_are_portable() {
        for (_, name, sql) in STEPS {
            let upper = sql.to_uppercase();
            for word in ["BOOLEAN", "TIMESTAMP", "SERIAL", "AUTOINCREMENT", "BYTEA", "BLOB", "NOW()", " DATE ", "JSONB"]
            {
                assert!(!upper.contains(word), "{name}: {word}");
            }
        }
    }
}
