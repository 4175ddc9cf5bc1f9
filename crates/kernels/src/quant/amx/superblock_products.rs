//! The tile unit's part: sums of a block for two tiles of rows.
#![allow(unsafe_code)] // tile instructions that load through pointers

use std::arch::asm;

use super::cut::TILE;
use crate::amx::registers::Configured;
use crate::quant::amx::superblock_planes::Planes;
use crate::quant::amx::superblock_rows::{STEP, Tile};

/// Tiles of rows that share the weights' loads.
pub(super) const PAIR: usize = 2;

/// High and low of two tiles.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(super) struct Sums(pub [[[i32; TILE]; 2]; PAIR]);

/// Tiles for `rows` rows: 0 to 3 sums, 4 and 5 activations, 6 and 7 weights.
///
/// # Safety
/// The system has granted AMX; rows are at most 16.
pub(super) unsafe fn configure(rows: usize) -> Configured {
    let rows = rows as u8;
    // SAFETY: as the caller promises.
    unsafe {
        Configured::new(&[
            (0, rows, 64),
            (1, rows, 64),
            (2, rows, 64),
            (3, rows, 64),
            (4, rows, 64),
            (5, rows, 64),
            (6, 16, 64),
            (7, 16, 64),
        ])
    }
}

/// Sums begin at zero.
///
/// # Safety
/// After [`configure`].
#[inline(always)]
pub(super) unsafe fn begin(_: &Configured) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// Stores the sums of one tile or of two.
///
/// # Safety
/// After [`configure`].
#[inline(always)]
pub(super) unsafe fn end<const TWO: bool>(_: &Configured, sums: &mut Sums) {
    // SAFETY: as the caller promises; four tiles have room.
    unsafe {
        asm!(
            "tilestored [{sums} + {line}], tmm0",
            "tilestored [{sums} + {line} + 1024], tmm1",
            sums = in(reg) &mut *sums, line = in(reg) STEP, options(nostack, preserves_flags),
        );
        if TWO {
            asm!(
                "tilestored [{sums} + {line} + 2048], tmm2",
                "tilestored [{sums} + {line} + 3072], tmm3",
                sums = in(reg) sums, line = in(reg) STEP, options(nostack, preserves_flags),
            );
        }
    }
}

macro_rules! step {
    ($name:ident, $high:literal) => {
        /// 64 inputs of both planes, for one tile of rows or for two.
        ///
        /// # Safety
        /// See [`multiply`]; `planes` points at the inputs' tile in a block's [`Planes`], `x` at that of the rows.
        #[inline(always)]
        unsafe fn $name<const TWO: bool>(x: *const i8, planes: *const u8) {
            // SAFETY: as the caller promises.
            unsafe {
                asm!(
                    "tileloadd tmm4, [{x} + {line}]",
                    "tileloadd tmm6, [{w} + {line}]",
                    concat!($high, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{w} + {line} + 4096]",
                    "tdpbsud tmm1, tmm4, tmm7",
                    x = in(reg) x, w = in(reg) planes, line = in(reg) STEP, options(nostack, preserves_flags),
                );
                if TWO {
                    asm!(
                        "tileloadd tmm5, [{x} + {line} + {OTHER}]",
                        concat!($high, " tmm2, tmm5, tmm6"),
                        "tdpbsud tmm3, tmm5, tmm7",
                        x = in(reg) x, OTHER = const size_of::<Tile>(), line = in(reg) STEP,
                        options(nostack, preserves_flags),
                    );
                }
            }
        }
    };
}

step!(affine, "tdpbsud");
step!(halves, "tdpbssd");

/// The `step`th 64 inputs of a block for one tile of rows or for two.
///
/// # Safety
/// After [`configure`]; `step` is below 4, and there are as many tiles.
#[inline(always)]
pub(super) unsafe fn multiply<const AFFINE: bool, const TWO: bool>(
    _: &Configured,
    rows: &[Tile],
    planes: &Planes,
    step: usize,
) {
    // SAFETY: as the caller promises; tiles of weights are 1 KiB, as are those of rows, which are a tile's first part.
    unsafe {
        let planes = std::ptr::from_ref(planes).cast::<u8>().add(step * 1024);
        let x = rows.as_ptr().cast::<i8>().add(step * 1024);
        if AFFINE { affine::<TWO>(x, planes) } else { halves::<TWO>(x, planes) }
    }
}
