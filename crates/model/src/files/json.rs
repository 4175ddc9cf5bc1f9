//! Reading JSON files that may lie: bounded, regular files only, and every complaint names file and key.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::types::error::LoadError;

/// Reads a whole file, refusing what is not a regular file (a FIFO would block for ever) or is larger than `limit`.
pub(crate) fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, LoadError> {
    let io = |source| LoadError::Io { path: path.to_path_buf(), source };
    let metadata = fs::metadata(path).map_err(io)?;
    if !metadata.is_file() {
        return Err(LoadError::NotRegular { path: path.to_path_buf() });
    }
    if metadata.len() > limit {
        return Err(LoadError::TooLarge { path: path.to_path_buf(), bytes: metadata.len(), limit });
    }
    fs::read(path).map_err(io)
}

/// A JSON object together with where it came from; a key that is `null` counts as absent.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    path: PathBuf,
    /// Dotted path of this object inside the file, ending in a dot, or empty.
    prefix: String,
    map: Map<String, Value>,
}

impl Fields {
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Fields, LoadError> {
        let json = |reason: String| LoadError::Json { path: path.to_path_buf(), reason };
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(map)) => Ok(Fields { path: path.to_path_buf(), prefix: String::new(), map }),
            Ok(_) => Err(json("must be an object".into())),
            Err(error) => Err(json(error.to_string())),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &String> {
        self.map.keys()
    }

    /// A key with where it stands in the file.
    pub(crate) fn full(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// The error that `key` breaks `rule`; appends what was found.
    pub(crate) fn broken(&self, key: &str, rule: &str) -> LoadError {
        let found = self.get(key).map(|value| {
            let text: String = value.to_string().chars().take(60).collect();
            format!(", found {text}")
        });
        let rule = format!("{rule}{}", found.unwrap_or_default());
        LoadError::Key { path: self.path.clone(), key: self.full(key), rule }
    }

    pub(crate) fn integer(&self, key: &str, range: RangeInclusive<usize>) -> Result<Option<usize>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| range.contains(n));
        let rule = || format!("must be an integer from {} to {}", range.start(), range.end());
        number.map(Some).ok_or_else(|| self.broken(key, &rule()))
    }

    pub(crate) fn required_integer(&self, key: &str, range: RangeInclusive<usize>) -> Result<usize, LoadError> {
        self.integer(key, range)?.ok_or_else(|| self.broken(key, "is missing"))
    }

    /// A number in `range`; NaN and infinities cannot be written in JSON and are in no range.
    pub(crate) fn number(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_f64().filter(|n| range.contains(n));
        let rule = || format!("must be a number from {:e} to {:e}", range.start(), range.end());
        number.map(Some).ok_or_else(|| self.broken(key, &rule()))
    }

    pub(crate) fn required_number(&self, key: &str, range: RangeInclusive<f64>) -> Result<f64, LoadError> {
        self.number(key, range)?.ok_or_else(|| self.broken(key, "is missing"))
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.broken(key, "must be true or false"))
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.broken(key, "must be a string"))
    }

    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<&str>>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let list = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
        list.map(Some).ok_or_else(|| self.broken(key, "must be a list of strings"))
    }

    /// Integers in `range`.
    pub(crate) fn integers(&self, key: &str, range: RangeInclusive<usize>) -> Result<Option<Vec<usize>>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = |value: &Value| value.as_u64().map(|n| n as usize).filter(|n| range.contains(n));
        let list = value.as_array().and_then(|list| list.iter().map(number).collect());
        let rule = || format!("must be a list of integers from {} to {}", range.start(), range.end());
        list.map(Some).ok_or_else(|| self.broken(key, &rule()))
    }

    /// Numbers in `range`.
    pub(crate) fn numbers(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<Vec<f64>>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = |value: &Value| value.as_f64().filter(|n| range.contains(n));
        let list = value.as_array().and_then(|list| list.iter().map(number).collect());
        let rule = || format!("must be a list of numbers from {:e} to {:e}", range.start(), range.end());
        list.map(Some).ok_or_else(|| self.broken(key, &rule()))
    }

    pub(crate) fn object(&self, key: &str) -> Result<Option<Fields>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let map = value.as_object().ok_or_else(|| self.broken(key, "must be an object"))?.clone();
        Ok(Some(Fields { path: self.path.clone(), prefix: format!("{}{key}.", self.prefix), map }))
    }
}
