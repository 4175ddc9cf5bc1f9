//! An open GGUF file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::header::{self, Header, Refusal, TensorInfo};
use super::keys::Keys;
use crate::files::map::Bytes;
use crate::types::error::{LoadError, TensorRule};

/// An open file whose header has been checked.
pub(crate) struct Gguf {
    path: PathBuf,
    pub bytes: Arc<Bytes>,
    pub header: Header,
}

impl Gguf {
    pub(crate) fn open(path: &Path) -> Result<Gguf, LoadError> {
        let bytes = Bytes::map(path)?;
        let header = header::parse(&bytes).map_err(|refusal| match refusal {
            Refusal::File(rule) => LoadError::Gguf { path: path.to_path_buf(), rule },
            Refusal::Tensor(name, rule) => LoadError::Tensor { path: path.to_path_buf(), tensor: name, rule },
        })?;
        let file = Gguf { path: path.to_path_buf(), bytes: Arc::new(bytes), header };
        let keys = file.keys();
        if keys.integer("split.count", 0..=usize::from(u16::MAX))?.is_some_and(|count| count > 1) {
            return Err(keys.broken("split.count", "must be 1: models split into several files are not supported"));
        }
        Ok(file)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn keys(&self) -> Keys<'_> {
        Keys { path: &self.path, bytes: &self.bytes, entries: &self.header.keys }
    }

    pub(crate) fn fault(&self, tensor: &str, rule: TensorRule) -> LoadError {
        LoadError::Tensor { path: self.path.clone(), tensor: tensor.to_string(), rule }
    }

    /// `general.architecture`.
    pub(crate) fn architecture(&self) -> Result<&str, LoadError> {
        let key = "general.architecture";
        self.keys().text(key)?.ok_or_else(|| self.keys().broken(key, "is missing"))
    }

    /// The tensor's entry and bytes.
    pub(crate) fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.header.tensors.get(name)
    }

    /// `(type, bytes)` of every tensor.
    pub(crate) fn census(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.header.tensors.values().map(|tensor| (tensor.kind.name, tensor.bytes.len() as u64))
    }
}
