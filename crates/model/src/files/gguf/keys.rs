//! Metadata by key, each value checked against a range; every complaint names file and key.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::Path;

use super::value::{Array, Value};
use crate::types::error::LoadError;

/// Elements of an array that is decoded: twice the largest vocabularies' merges, and what an honest machine can hold.
const MAX_ELEMENTS: usize = 1 << 22;

/// The keys of one file.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    pub path: &'a Path,
    pub bytes: &'a [u8],
    pub entries: &'a HashMap<String, Value>,
}

impl<'a> Keys<'a> {
    /// The error that `key` breaks `rule`; appends what was found.
    pub(crate) fn broken(&self, key: &str, rule: &str) -> LoadError {
        let found = self.entries.get(key).map(|value| match value {
            Value::Text(range) => {
                let text: String = String::from_utf8_lossy(&self.bytes[range.clone()]).chars().take(60).collect();
                format!(", found {text:?}")
            }
            value => format!(", found {value}"),
        });
        let rule = format!("{rule}{}", found.unwrap_or_default());
        LoadError::Key { path: self.path.to_path_buf(), key: key.to_string(), rule }
    }

    /// A whole number of any integer type.
    pub(crate) fn integer(&self, key: &str, range: RangeInclusive<usize>) -> Result<Option<usize>, LoadError> {
        let number = match self.entries.get(key) {
            None => return Ok(None),
            Some(Value::Unsigned(n)) => usize::try_from(*n).ok(),
            Some(Value::Signed(n)) => usize::try_from(*n).ok(),
            Some(_) => None,
        };
        let rule = || format!("must be an integer from {} to {}", range.start(), range.end());
        number.filter(|n| range.contains(n)).map(Some).ok_or_else(|| self.broken(key, &rule()))
    }

    pub(crate) fn required_integer(&self, key: &str, range: RangeInclusive<usize>) -> Result<usize, LoadError> {
        self.integer(key, range)?.ok_or_else(|| self.broken(key, "is missing"))
    }

    /// A number in `range`; NaN is in no range.
    pub(crate) fn number(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, LoadError> {
        let number = match self.entries.get(key) {
            None => return Ok(None),
            Some(Value::Float(x)) => Some(*x),
            Some(Value::Unsigned(n)) => Some(*n as f64),
            Some(Value::Signed(n)) => Some(*n as f64),
            Some(_) => None,
        };
        let rule = || format!("must be a number from {:e} to {:e}", range.start(), range.end());
        number.filter(|x| range.contains(x)).map(Some).ok_or_else(|| self.broken(key, &rule()))
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, LoadError> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(Value::Flag(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.broken(key, "must be true or false")),
        }
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, LoadError> {
        let text = match self.entries.get(key) {
            None => return Ok(None),
            Some(Value::Text(range)) => std::str::from_utf8(&self.bytes[range.clone()]).ok(),
            Some(_) => None,
        };
        text.map(Some).ok_or_else(|| self.broken(key, "must be a string in UTF-8"))
    }

    pub(crate) fn is_array(&self, key: &str) -> bool {
        matches!(self.entries.get(key), Some(Value::Array(_)))
    }

    /// The array `key`, decoded by `decode`, which answers `None` for elements of another type than `of`.
    pub(crate) fn array<T>(
        &self,
        key: &str,
        of: &str,
        decode: impl Fn(&Array, &'a [u8]) -> Option<Vec<T>>,
    ) -> Result<Option<Vec<T>>, LoadError> {
        let values = match self.entries.get(key) {
            None => return Ok(None),
            Some(Value::Array(array)) if array.count > MAX_ELEMENTS => {
                return Err(self.broken(key, &format!("must have at most {MAX_ELEMENTS} elements")));
            }
            Some(Value::Array(array)) => decode(array, self.bytes),
            Some(_) => None,
        };
        values.map(Some).ok_or_else(|| self.broken(key, &format!("must be an array of {of}")))
    }
}
