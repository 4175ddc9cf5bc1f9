//! Memory of weights: aligned, in large pages where the system grants them.
//!
//! A large page must be whole: matrices of one or two megabytes that were mapped one by one would get none. They are cut from
//! slabs, one behind another; a slab goes back to the system with the last of them.
#![allow(unsafe_code)] // parts of a mapping, each for one owner; a call of the C library

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use memmap2::MmapMut;

/// Bytes of one matrix.
pub struct Memory {
    start: *mut u8,
    len: usize,
    /// Where they lie.
    _slab: Arc<Slab>,
}

// SAFETY: it stands for a `Box<[u8]>`: nobody else has these bytes of the slab.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Unmapped when the last piece of it is gone.
struct Slab {
    _mapping: MmapMut,
}

/// Where the next small piece comes from.
struct Open {
    slab: Weak<Slab>,
    /// Where the bytes begin that are left.
    start: usize,
    /// Where they end.
    end: usize,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes of weights do not fit into memory")]
pub struct OutOfMemory {
    pub bytes: usize,
}

/// How much is copied before the source may be let go, and what is mapped at once: small beside any model, large enough not to
/// matter.
pub(super) const SLAB_BYTES: usize = 32 << 20;
/// What the system calls huge.
const LARGE_PAGE: usize = 2 << 20;
/// Pieces begin at multiples of this, so that threads which write neighbours share no line, nor what is fetched with one.
const PIECE: usize = 4096;

impl Memory {
    /// Zeros, which the system hands out as they are touched.
    pub fn zeroed(bytes: usize) -> Result<Memory, OutOfMemory> {
        static OPEN: Mutex<Open> = Mutex::new(Open { slab: Weak::new(), start: 0, end: 0 });
        let refused = OutOfMemory { bytes };
        let len = bytes.max(1).checked_next_multiple_of(PIECE).ok_or(refused)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slab) = open.slab.upgrade()
            && open.end - open.start >= len
        {
            let start = open.start;
            open.start += len;
            return Ok(Memory { start: std::ptr::with_exposed_provenance_mut(start), len: bytes, _slab: slab });
        }
        let mapped = len.max(SLAB_BYTES);
        let (slab, start) = slab(mapped).ok_or(OutOfMemory { bytes })?;
        // What is left of the larger one stays in use.
        let left = mapped - len;
        if left > open.end - open.start || open.slab.strong_count() == 0 {
            *open = Open {
                slab: Arc::downgrade(&slab),
                start: start.expose_provenance() + len,
                end: start.addr() + mapped,
            };
        }
        Ok(Memory { start, len: bytes, _slab: slab })
    }

    /// Has the system hand out the first bytes now rather than when they are first written: clearing a large page takes as long
    /// as a small op.
    pub fn touch(&mut self, bytes: usize) {
        let len = bytes.min(self.len);
        for byte in self[..len].iter_mut().step_by(PIECE) {
            // SAFETY: a byte of ours. Volatile, for writing a zero over a zero would be left out.
            unsafe { std::ptr::from_mut(byte).write_volatile(*byte) };
        }
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

/// A mapping with so many bytes from the start of a large page on.
fn slab(bytes: usize) -> Option<(Arc<Slab>, *mut u8)> {
    let mut map = MmapMut::map_anon(bytes.checked_add(LARGE_PAGE)?).ok()?;
    // Streaming weights through pages of 4 KiB costs a walk of the page table per page. A refusal costs only that.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    let start = map.as_mut_ptr();
    let start = start.wrapping_add(start.align_offset(LARGE_PAGE));
    Some((Arc::new(Slab { _mapping: map }), start))
}

impl Deref for Memory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes of a mapping that `_slab` keeps, initialised by the system, and this owner's alone.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
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
    fn pieces_are_zeros_of_their_own_and_share_large_pages() {
        let mut pieces: Vec<Memory> = (1..40).map(|n| Memory::zeroed(n * 100_000).unwrap()).collect();
        for (n, piece) in pieces.iter_mut().enumerate() {
            assert!(piece.len() == (n + 1) * 100_000 && piece.iter().all(|&byte| byte == 0), "{n}");
            piece.fill(n as u8 + 1);
        }
        let other = Memory::zeroed(LARGE_PAGE).unwrap();
        assert!(other.iter().all(|&byte| byte == 0));
        assert!(pieces.iter().enumerate().all(|(n, piece)| piece.iter().all(|&byte| byte == n as u8 + 1)));
        assert!(Memory::zeroed(2 * SLAB_BYTES).unwrap().as_ptr().addr().is_multiple_of(LARGE_PAGE));
    }

    #[test]
    fn too_much_is_an_error() {
        let bytes = usize::MAX / 2;
        assert_eq!(Memory::zeroed(bytes).err(), Some(OutOfMemory { bytes }));
    }
}
