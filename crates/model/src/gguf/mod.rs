//! GGUF files, versions 2 and 3: everything about a model in one file, its weights used where they are mapped.
//!
//! A file is checked in full before anything is taken from it: counts against its length, keys and names once each,
//! every tensor's type, shape, offset and end. Values stay in the file as ranges of bytes, so a file costs no memory
//! beyond its list of keys, whatever it claims.
//!
//! ```text
//! map.rs → header.rs (cursor.rs, value.rs, types.rs) → Gguf ┬→ keys.rs → spec.rs, rope.rs → DecoderSpec, vocab.rs → GgufVocab
//!                                                           └→ tensors.rs → weights, quantize.rs → another file
//! checkpoint → export.rs (entries.rs) → a file
//! ```

mod cursor;
mod entries;
mod export;
mod header;
mod keys;
mod quantize;
mod rope;
mod spec;
mod tensors;
mod types;
mod value;
mod vocab;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{LoadError, TensorRule};
use super::weights::Bytes;
use header::{Header, Refusal, TensorInfo};
use keys::Keys;

pub use quantize::{Written, quantize};
pub(super) use spec::{architecture, read_pooling, read_spec};
pub(super) use tensors::GgufWeights;
pub(super) use vocab::read_vocab;

/// An open file whose header has been checked.
pub(super) struct Gguf {
    path: PathBuf,
    bytes: Arc<Bytes>,
    header: Header,
}

impl Gguf {
    pub(super) fn open(path: &Path) -> Result<Gguf, LoadError> {
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

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn keys(&self) -> Keys<'_> {
        Keys { path: &self.path, bytes: &self.bytes, entries: &self.header.keys }
    }

    fn fault(&self, tensor: &str, rule: TensorRule) -> LoadError {
        LoadError::Tensor { path: self.path.clone(), tensor: tensor.to_string(), rule }
    }

    /// The tensor's entry and bytes.
    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.header.tensors.get(name)
    }

    /// `(type, bytes)` of every tensor.
    pub(super) fn census(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.header.tensors.values().map(|tensor| (tensor.kind.name, tensor.bytes.len() as u64))
    }
}
