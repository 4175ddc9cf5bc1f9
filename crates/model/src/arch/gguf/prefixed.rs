//! A file's keys under the name of its architecture.

use crate::arch::limits::{MAX_EXPERTS, MULTIPLIER};
use crate::files::gguf::file::Gguf;
use crate::files::gguf::keys::Keys;
use crate::types::error::LoadError;

/// Keys that begin with the architecture's name.
pub(super) struct Prefixed<'a> {
    pub file: &'a Gguf,
    pub keys: Keys<'a>,
    pub architecture: &'static str,
}

impl Prefixed<'_> {
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    pub(super) fn integer(&self, name: &str, limit: usize) -> Result<Option<usize>, LoadError> {
        self.keys.integer(&self.key(name), 1..=limit)
    }

    pub(super) fn required(&self, name: &str, limit: usize) -> Result<usize, LoadError> {
        self.keys.required_integer(&self.key(name), 1..=limit)
    }

    /// A multiplier or a cap; zero stands for none.
    pub(super) fn factor(&self, name: &str) -> Result<Option<f32>, LoadError> {
        let key = self.key(name);
        if self.keys.number(&key, f64::NEG_INFINITY..=f64::INFINITY)? == Some(0.0) {
            return Ok(None);
        }
        Ok(self.keys.number(&key, MULTIPLIER)?.map(|factor| factor as f32))
    }

    pub(super) fn broken(&self, name: &str, rule: &str) -> LoadError {
        self.keys.broken(&self.key(name), rule)
    }

    pub(super) fn expert_count(&self) -> Result<Option<usize>, LoadError> {
        Ok(self.keys.integer(&self.key("expert_count"), 0..=MAX_EXPERTS)?.filter(|&count| count > 0))
    }
}
