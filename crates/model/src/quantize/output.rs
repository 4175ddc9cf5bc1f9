//! A file that appears when all of it is written, and what was written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::types::error::LoadError;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub tensors: usize,
    pub quantised: usize,
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Texts can be cut by the file: not so where it has no form for a checkpoint's tokenizer.
    pub tokenizer: bool,
}

/// `to` appears when `write` has written all of it elsewhere; it must not exist.
pub(super) fn atomically(to: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), LoadError> {
    let io = |source| LoadError::Io { path: to.to_path_buf(), source };
    if to.exists() {
        return Err(io(io::Error::from(io::ErrorKind::AlreadyExists)));
    }
    let mut partial = to.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let done = write(&partial).and_then(|()| fs::rename(&partial, to));
    if done.is_err() {
        // What is left of a failure is of no use to anybody.
        let _ = fs::remove_file(&partial);
    }
    done.map_err(io)
}
