//! Memory of weights: aligned, in large pages where the system grants them.
#![allow(unsafe_code)] // a call of the C library

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Bytes of one matrix.
pub struct Memory(MmapMut);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes of weights do not fit into memory")]
pub struct OutOfMemory {
    pub bytes: usize,
}

/// How much is copied before the source may be let go: small beside any model, large enough not to matter.
pub(super) const SLAB_BYTES: usize = 32 << 20;

impl Memory {
    /// Zeros, which the system hands out as they are touched.
    pub fn zeroed(bytes: usize) -> Result<Memory, OutOfMemory> {
        let map = MmapMut::map_anon(bytes.max(1)).map_err(|_| OutOfMemory { bytes })?;
        // Streaming weights through pages of 4 KiB costs a walk of the page table per page. A refusal costs only that.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Memory(map))
    }

    /// A copy. After each slab `done` is told how many bytes of `source` will not be read again, so that its owner can let
    /// go of them: memory never holds the weights twice.
    pub fn copy_of(source: &[u8], mut done: impl FnMut(usize)) -> Result<Memory, OutOfMemory> {
        let mut memory = Memory::zeroed(source.len())?;
        let mut copied = 0;
        for (to, from) in memory.chunks_mut(SLAB_BYTES).zip(source.chunks(SLAB_BYTES)) {
            to[..from.len()].copy_from_slice(from);
            copied += from.len();
            done(copied);
        }
        Ok(memory)
    }
}

/// Gives back to the system what the allocator keeps of memory that was freed. Reading a vocabulary leaves a hundred
/// megabytes of it, in pieces between others that stay. Does nothing where the C library is not glibc.
pub fn release_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: glibc has it, it may be called at any time by any thread, and it touches free memory only.
        unsafe { malloc_trim(0) };
    }
}

impl Deref for Memory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_say_what_they_are_done_with() {
        let source: Vec<u8> = (0..SLAB_BYTES + 5).map(|i| i as u8).collect();
        let mut marks = Vec::new();
        let memory = Memory::copy_of(&source, |mark| marks.push(mark)).unwrap();
        assert!(memory[..source.len()] == source[..]);
        assert_eq!(marks, [SLAB_BYTES, SLAB_BYTES + 5]);
        assert_eq!(memory.as_ptr().addr() % 64, 0);
    }

    #[test]
    fn too_much_is_an_error() {
        let bytes = usize::MAX / 2;
        assert_eq!(Memory::zeroed(bytes).err(), Some(OutOfMemory { bytes }));
    }
}
