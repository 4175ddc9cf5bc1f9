//! What no single row can see: settings that contradict each other, with errors that name the key and its origin.

use super::error::ConfigError;
use super::origin::{Entry, Merged};

/// The text of the merged layers. Asking for a key that is not in the table is a bug of ours.
pub struct Reader<'a>(&'a Merged);

impl<'a> Reader<'a> {
    pub fn new(merged: &'a Merged) -> Reader<'a> {
        Reader(merged)
    }

    fn entry(&self, key: &str) -> &'a Entry {
        self.0.get(key).unwrap_or_else(|| panic!("{key} is not in the table of settings"))
    }

    pub fn text(&self, key: &str) -> &'a str {
        self.entry(key).text.trim()
    }

    /// A value that its row takes and the rest of the configuration does not.
    pub fn refuse(&self, key: &'static str, allowed: String) -> ConfigError {
        let Entry { text, origin } = self.entry(key).clone();
        ConfigError::BadValue { key, value: text, origin, allowed }
    }

    /// Two keys that do not go together; the mistake is where `section.param` stands.
    pub fn contradiction(&self, section: &'static str, param: &'static str, message: String) -> ConfigError {
        let entry = self.0.get(format!("{section}.{param}").as_str());
        let place = entry.and_then(|entry| entry.origin.place());
        ConfigError::Contradiction { section, param, message, place }
    }
}
