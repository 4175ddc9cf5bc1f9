//! The tile instructions for weights in blocks of 32: a group of 32 inputs, or two at once.
#![allow(unsafe_code)] // tile instructions that load through pointers

use std::arch::asm;

use super::cut::TILE;
use crate::amx::registers::Configured;
use crate::quant::format::{GROUP, GROUP_CODES};

/// Two times two tiles of sums: one pair is read while the other is filled. Together just 4 KiB: loads wait for stores
/// that differ from them only in the upper bits of the address.
#[repr(C, align(4096))]
pub(super) struct Sums([i32; 2 * PAIR]);

/// Sums of two tiles.
const PAIR: usize = 2 * TILE;

impl Sums {
    pub fn new() -> Sums {
        Sums([0; 2 * PAIR])
    }

    pub fn half(&mut self, index: usize) -> *mut i32 {
        self.0[index * PAIR..].as_mut_ptr()
    }

    /// The pair that `half` is not.
    #[inline]
    pub fn other(&mut self, half: *mut i32) -> *mut i32 {
        half.map_addr(|address| address ^ (PAIR * size_of::<i32>()))
    }
}

/// The tile registers of this thread, configured for groups of 32 inputs.
pub(super) struct GroupTiles {
    _configured: Configured,
}

impl GroupTiles {
    /// Configures registers for `rows` rows: 0 and 1 hold sums, 4 and 6 activations, 5 and 7 weights.
    ///
    /// # Safety
    /// The system has granted AMX; rows are at most 16.
    pub unsafe fn configure(rows: usize) -> GroupTiles {
        let (sums, x, w) = ((rows as u8, 64), (rows as u8, GROUP as u8), ((GROUP / 4) as u8, 64));
        // SAFETY: as the caller promises; the sizes are those of tiles.
        let configured = unsafe {
            Configured::new(&[
                (0, sums.0, sums.1),
                (1, sums.0, sums.1),
                (4, x.0, x.1),
                (5, w.0, w.1),
                (6, x.0, x.1),
                (7, w.0, w.1),
            ])
        };
        GroupTiles { _configured: configured }
    }

    /// Multiplies one group.
    ///
    /// # Safety
    /// `x` points at as many rows of 32 bytes as are configured, `codes` at 512 bytes, `sums` has room for a tile.
    #[inline]
    pub unsafe fn one(&self, x: *const i8, codes: *const u8, sums: *mut i32) {
        // SAFETY: a value of this type says that AMX is there and configured; the rest is the caller's promise.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tileloadd tmm4, [{x} + {row}]",
                "tileloadd tmm5, [{codes} + {line}]",
                "tdpbssd tmm0, tmm4, tmm5",
                "tilestored [{sums} + {line}], tmm0",
                x = in(reg) x, codes = in(reg) codes, sums = in(reg) sums,
                row = in(reg) GROUP, line = in(reg) 64usize, options(nostack, preserves_flags),
            );
        }
    }

    /// Multiplies two groups at once, so that one's latency hides behind the other's.
    ///
    /// # Safety
    /// `x` and `codes` point at groups of which those from the `FROM`th on are meant; else as for [`GroupTiles::one`], for
    /// two groups, `LINES` rows apart in `x`, and two tiles.
    #[inline(always)]
    pub unsafe fn two<const LINES: usize, const FROM: usize>(&self, x: *const i8, codes: *const u8, sums: *mut i32) {
        // SAFETY: as in `one`.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tileloadd tmm4, [{x} + {row} + {X}]",
                "tileloadd tmm5, [{codes} + {line} + {CODES}]",
                "tdpbssd tmm0, tmm4, tmm5",
                "tileloadd tmm6, [{x} + {row} + {OTHER_X}]",
                "tileloadd tmm7, [{codes} + {line} + {OTHER_CODES}]",
                "tdpbssd tmm1, tmm6, tmm7",
                "tilestored [{sums} + {line}], tmm0",
                "tilestored [{sums} + {line} + 1024], tmm1",
                x = in(reg) x, codes = in(reg) codes, sums = in(reg) sums,
                X = const FROM * LINES * GROUP, OTHER_X = const (FROM + 1) * LINES * GROUP,
                CODES = const FROM * GROUP_CODES, OTHER_CODES = const (FROM + 1) * GROUP_CODES,
                row = in(reg) GROUP, line = in(reg) 64usize, options(nostack, preserves_flags),
            );
        }
    }
}
