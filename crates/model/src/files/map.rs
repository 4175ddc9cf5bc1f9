//! Files as bytes without reading them.
#![allow(unsafe_code)] // one memory map

use std::fs::{self, File};
use std::ops::{Deref, Range};
use std::path::Path;

use memmap2::Mmap;
#[cfg(unix)]
use memmap2::UncheckedAdvice;

use crate::types::error::LoadError;

/// A mapped file, or bytes inside the program.
pub(crate) enum Bytes {
    Mapped(Mmap),
    Static(&'static [u8]),
    Owned(Vec<u8>),
}

impl Bytes {
    /// Maps a regular file; a FIFO or a device is refused before it is opened, for opening may block.
    pub(crate) fn map(path: &Path) -> Result<Bytes, LoadError> {
        let io = |source| LoadError::Io { path: path.to_path_buf(), source };
        let metadata = fs::metadata(path).map_err(io)?;
        if !metadata.is_file() {
            return Err(LoadError::NotRegular { path: path.to_path_buf() });
        }
        if metadata.len() == 0 {
            return Ok(Bytes::Static(&[])); // an empty file cannot be mapped
        }
        let file = File::open(path).map_err(io)?;
        // SAFETY: the map is read-only and lives only while weights are copied out of it. Whoever truncates a file
        // meanwhile kills the process with SIGBUS, as in every program that maps files (replacing it by a rename is
        // harmless); bytes changed meanwhile become wrong numbers, never wrong lengths, for ranges are checked once and
        // kept apart from the file.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Ok(Bytes::Mapped(map))
    }

    /// Lets go of the memory behind `range`, where it is the file's: reading it again costs time, nothing else.
    pub(crate) fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Bytes::Mapped(map) = self
            && range.end <= map.len()
            && !range.is_empty()
        {
            // SAFETY: pages of a read-only map of a file are read from the file again, so no byte that a slice shows
            // changes. A refusal leaves the memory where it is.
            let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len()) };
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Static(bytes) => bytes,
            Bytes::Owned(bytes) => bytes,
        }
    }
}
