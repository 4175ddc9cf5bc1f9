//! What the user wrote, where: layers of text by key, merged by precedence (flags, environment, file, defaults).

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use config::{Config, Environment, File, FileFormat, Value, ValueKind};

use super::error::ConfigError;
use super::origin::{Entry, Flag, Merged, Origin};
use super::place::{self, Place};
use super::table::{self, Row, table};

/// Merges the layers; an unknown key anywhere is an error.
pub fn merge(
    file: Option<&Path>,
    environment: BTreeMap<String, String>,
    flags: &[Flag],
) -> Result<Merged, ConfigError> {
    let default = |row: &Row| (row.key, Entry { text: row.default_text(), origin: Origin::Default });
    let mut merged: Merged = table().iter().map(default).collect();
    if let Some(path) = file {
        let FileText { values, places } = read_file(path)?;
        for (name, text) in values {
            let place = places.get(&name).copied();
            put(&mut merged, &name, text, Origin::File(path.into(), place))?;
        }
    }
    for (name, text) in read_environment(environment)? {
        let variable = table::env_name(&name);
        put(&mut merged, &name, text, Origin::Environment(variable))?;
    }
    for (flag, key, text) in flags {
        put(&mut merged, key, text.clone(), Origin::Flag(flag))?;
    }
    Ok(merged)
}

fn put(merged: &mut Merged, name: &str, text: String, origin: Origin) -> Result<(), ConfigError> {
    let Some(row) = table::find(name) else {
        return Err(unknown(name, origin));
    };
    merged.insert(row.key, Entry { text, origin });
    Ok(())
}

fn unknown(name: &str, origin: Origin) -> ConfigError {
    ConfigError::UnknownKey { key: name.into(), origin, similar: similar(name) }
}

/// What a file says, and where.
struct FileText {
    values: Vec<(String, String)>,
    places: BTreeMap<String, Place>,
}

/// A file of settings has some hundred lines; what is longer is something else.
const LONGEST_FILE: u64 = 1 << 20;

fn read_file(path: &Path) -> Result<FileText, ConfigError> {
    let unreadable = |message: String| ConfigError::File { path: path.into(), message };
    // Read here: the config crate guesses extensions and reports a missing file without its reason.
    let file = std::fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(LONGEST_FILE + 1).read_to_end(&mut bytes).map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(unreadable(format!("is longer than {LONGEST_FILE} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|error| unreadable(error.to_string()))?;
    let syntax = |(place, message)| ConfigError::Syntax { path: path.into(), place, message };
    let places = place::places(&text).map_err(syntax)?;
    let source = File::from_str(&text, FileFormat::Yaml);
    let config = Config::builder().add_source(source).build().map_err(|error| unreadable(error.to_string()))?;
    Ok(FileText { values: flatten(config.cache), places })
}

fn read_environment(variables: BTreeMap<String, String>) -> Result<Vec<(String, String)>, ConfigError> {
    // By name first: as paths, FOREBAY__SERVER and FOREBAY__SERVER__PORT would overwrite each other without a word.
    for name in variables.keys() {
        let key = name.strip_prefix("FOREBAY__").unwrap_or(name).to_lowercase().replace("__", ".");
        if table::find(&key).is_none() {
            return Err(unknown(&key, Origin::Environment(name.clone())));
        }
    }
    let source = Environment::with_prefix("FOREBAY")
        .prefix_separator("__")
        .separator("__")
        .source(Some(variables.into_iter().collect()));
    let config = Config::builder().add_source(source).build();
    let config =
        config.map_err(|error| ConfigError::File { path: "environment".into(), message: error.to_string() })?;
    Ok(flatten(config.cache))
}

/// `a: {b: 1}` becomes `a.b` = `1`; empty values (a key with only comments below it) are nothing.
fn flatten(value: Value) -> Vec<(String, String)> {
    fn walk(prefix: &str, value: Value, out: &mut Vec<(String, String)>) {
        match value.kind {
            ValueKind::Nil => {}
            ValueKind::Table(table) => {
                for (name, value) in table {
                    let name = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
                    walk(&name, value, out);
                }
            }
            ValueKind::Array(items) => {
                let items: Vec<String> = items.into_iter().map(|item| item.kind.to_string()).collect();
                out.push((prefix.into(), items.join(",")));
            }
            scalar => out.push((prefix.into(), scalar.to_string())),
        }
    }
    let mut out = Vec::new();
    walk("", value, &mut out);
    out.sort();
    out
}

/// The known key that differs least, if it differs little.
fn similar(name: &str) -> Option<&'static str> {
    let closest = table().iter().map(|row| (distance(name, row.key), row.key)).min()?;
    (closest.0 <= 3).then_some(closest.1)
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
