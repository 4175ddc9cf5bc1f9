//! The tile unit: 32 outputs times 32 rows, or 64 times 16, or what is left.
//!
//! Weights are the first factor, so that they stream from memory tile by tile as they lie there; sums come out with outputs
//! down and rows across, and are turned round when they are written.
#![allow(unsafe_code)] // intrinsics and tile instructions that load through pointers

use std::arch::asm;
use std::arch::x86_64::*;
use std::ops::Range;

use super::split::{Pairs, Split};
use super::unit::{TILE, TILE_NUMBERS};
use super::weights::Weights;
use crate::amx::registers::Configured;
use crate::parallel::Columns;

/// Tiles of weights that are best taken together.
pub(super) const TOGETHER: usize = 4;

/// Sums of four tiles, `[4, 16, 16]`.
#[repr(C, align(64))]
struct Sums([[f32; TILE * TILE]; 4]);

/// Computes the outputs `16 · range`.
///
/// # Safety
/// This machine has [`super::unit::Unit::Tiles`].
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn tiles(rows: &Split, weights: &Weights, range: Range<usize>, out: &Columns) {
    let across = 4 * rows.height() as u8;
    let (sums, pairs) = ((TILE as u8, across), (TILE as u8, across));
    // SAFETY: as the caller promises; a tile of rows has at most 16.
    let configured = unsafe {
        Configured::new(&[
            (0, sums.0, sums.1),
            (1, sums.0, sums.1),
            (2, sums.0, sums.1),
            (3, sums.0, sums.1),
            (4, 16, 64),
            (5, 16, 64),
            (6, pairs.0, pairs.1),
            (7, pairs.0, pairs.1),
        ])
    };
    let tile = Tile { _configured: configured, rows, weights, out };
    let mut at = range.start;
    while at < range.end {
        let left = range.end - at;
        if rows.tiles() == 1 && left >= 4 {
            tile.four(at, 0);
            at += 4;
        } else if left >= 2 {
            for pair in (0..rows.tiles()).step_by(2) {
                if pair + 1 < rows.tiles() {
                    tile.two_by_two(at, pair);
                } else {
                    (0..2).for_each(|n| tile.one(at + n, pair));
                }
            }
            at += 2;
        } else {
            (0..rows.tiles()).for_each(|row| tile.one(at, row));
            at += 1;
        }
    }
}

/// What may use the tile registers: with it goes the promise that they are configured for `rows`.
struct Tile<'a> {
    _configured: Configured,
    rows: &'a Split,
    weights: &'a Weights,
    out: &'a Columns<'a>,
}

impl Tile<'_> {
    /// Four tiles of weights, one of rows.
    fn four(&self, panel: usize, row: usize) {
        let w: [*const u8; 4] = std::array::from_fn(|n| self.weights.panel(panel + n).as_ptr());
        let rows = self.rows.tile(row);
        let mut sums = Sums([[0.0; TILE * TILE]; 4]);
        // SAFETY: tiles are configured; each panel has `rows.len()` tiles of 1 KiB, and so many pairs of tiles have the rows.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "2:",
                // The tile unit waits for each line that it misses: they are asked for well ahead.
                ".irp at,0,64,128,192,256,320,384,448,512,576,640,704,768,832,896,960",
                "prefetcht0 [{w0} + 4096 + \\at]",
                "prefetcht0 [{w1} + 4096 + \\at]",
                "prefetcht0 [{w2} + 4096 + \\at]",
                "prefetcht0 [{w3} + 4096 + \\at]",
                ".endr",
                "tileloadd tmm6, [{x} + {line}]",
                "tileloadd tmm7, [{x} + {line} + 1024]",
                "tileloadd tmm4, [{w0} + {line}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm0, tmm4, tmm7",
                "tileloadd tmm5, [{w1} + {line}]",
                "tdpbf16ps tmm1, tmm5, tmm6",
                "tdpbf16ps tmm1, tmm5, tmm7",
                "tileloadd tmm4, [{w2} + {line}]",
                "tdpbf16ps tmm2, tmm4, tmm6",
                "tdpbf16ps tmm2, tmm4, tmm7",
                "tileloadd tmm5, [{w3} + {line}]",
                "tdpbf16ps tmm3, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {x}, 2048",
                "add {w0}, 1024",
                "add {w1}, 1024",
                "add {w2}, 1024",
                "add {w3}, 1024",
                "dec {left}",
                "jnz 2b",
                "tilestored [{sums} + {line}], tmm0",
                "tilestored [{sums} + {line} + 1024], tmm1",
                "tilestored [{sums} + {line} + 2048], tmm2",
                "tilestored [{sums} + {line} + 3072], tmm3",
                x = inout(reg) rows.as_ptr() => _, w0 = inout(reg) w[0] => _, w1 = inout(reg) w[1] => _,
                w2 = inout(reg) w[2] => _, w3 = inout(reg) w[3] => _, left = inout(reg) rows.len() => _,
                sums = in(reg) &mut sums, line = in(reg) 64usize, options(nostack),
            );
        }
        (0..4).for_each(|n| self.write(panel + n, row, &sums.0[n]));
    }

    /// Two tiles of each, from `panel` and from `row` on.
    fn two_by_two(&self, panel: usize, row: usize) {
        let w: [*const u8; 2] = std::array::from_fn(|n| self.weights.panel(panel + n).as_ptr());
        let x: [&[Pairs]; 2] = std::array::from_fn(|n| self.rows.tile(row + n));
        let mut sums = Sums([[0.0; TILE * TILE]; 4]);
        // SAFETY: as in `four`.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "2:",
                "tileloadd tmm4, [{w0} + {line}]",
                "tileloadd tmm6, [{x0} + {line}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm5, [{w1} + {line}]",
                "tdpbf16ps tmm1, tmm5, tmm6",
                "tileloadd tmm7, [{x1} + {line}]",
                "tdpbf16ps tmm2, tmm4, tmm7",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "tileloadd tmm6, [{x0} + {line} + 1024]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm5, tmm6",
                "tileloadd tmm7, [{x1} + {line} + 1024]",
                "tdpbf16ps tmm2, tmm4, tmm7",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {x0}, 2048",
                "add {x1}, 2048",
                "add {w0}, 1024",
                "add {w1}, 1024",
                "dec {left}",
                "jnz 2b",
                "tilestored [{sums} + {line}], tmm0",
                "tilestored [{sums} + {line} + 1024], tmm1",
                "tilestored [{sums} + {line} + 2048], tmm2",
                "tilestored [{sums} + {line} + 3072], tmm3",
                x0 = inout(reg) x[0].as_ptr() => _, x1 = inout(reg) x[1].as_ptr() => _, w0 = inout(reg) w[0] => _,
                w1 = inout(reg) w[1] => _, left = inout(reg) x[0].len() => _,
                sums = in(reg) &mut sums, line = in(reg) 64usize, options(nostack),
            );
        }
        for n in 0..4 {
            self.write(panel + n % 2, row + n / 2, &sums.0[n]);
        }
    }

    /// A tile of each.
    fn one(&self, panel: usize, row: usize) {
        let rows = self.rows.tile(row);
        let mut sums = Sums([[0.0; TILE * TILE]; 4]);
        // SAFETY: as in `four`.
        unsafe {
            asm!(
                "tilezero tmm0",
                "2:",
                "tileloadd tmm4, [{w} + {line}]",
                "tileloadd tmm6, [{x} + {line}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{x} + {line} + 1024]",
                "tdpbf16ps tmm0, tmm4, tmm7",
                "add {x}, 2048",
                "add {w}, 1024",
                "dec {left}",
                "jnz 2b",
                "tilestored [{sums} + {line}], tmm0",
                x = inout(reg) rows.as_ptr() => _, w = inout(reg) self.weights.panel(panel).as_ptr() => _,
                left = inout(reg) rows.len() => _, sums = in(reg) &mut sums, line = in(reg) 64usize, options(nostack),
            );
        }
        self.write(panel, row, &sums.0[0]);
    }

    /// Turns a tile `[outputs, rows]` round.
    fn write(&self, panel: usize, row: usize, sums: &[f32; TILE * TILE]) {
        // SAFETY: AVX-512 is there, says `_configured`: whoever has AMX has it.
        let turned = unsafe { transposed(sums) };
        let start = self.rows.start(row);
        for (r, y) in turned.iter().take(self.rows.height()).enumerate() {
            let (place, count) = self.out.place(start + r, panel * TILE);
            // SAFETY: AVX-512 is there; `place` has room for `count` numbers, and the mask keeps the others.
            unsafe { store(place, count, *y) }
        }
    }
}

/// # Safety
/// `place` has room for `count` numbers.
#[target_feature(enable = "avx512f")]
unsafe fn store(place: *mut f32, count: usize, y: __m512) {
    // SAFETY: as the caller promises.
    unsafe { _mm512_mask_storeu_ps(place, 0xffff >> (TILE - count.min(TILE)), y) }
}

/// Columns become rows.
#[target_feature(enable = "avx512f")]
fn transposed(tile: &[f32; TILE * TILE]) -> [__m512; TILE] {
    let zero = [_mm512_setzero_ps(); TILE];
    let (mut a, mut b, mut c, mut out) = (zero, zero, zero, zero);
    // SAFETY: sixteen rows of sixteen numbers.
    let row = |n: usize| unsafe { _mm512_loadu_ps(tile.as_ptr().add(n * TILE)) };
    for i in 0..8 {
        a[2 * i] = _mm512_unpacklo_ps(row(2 * i), row(2 * i + 1));
        a[2 * i + 1] = _mm512_unpackhi_ps(row(2 * i), row(2 * i + 1));
    }
    let low = |x, y| _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
    let high = |x, y| _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
    for i in 0..4 {
        b[4 * i] = low(a[4 * i], a[4 * i + 2]);
        b[4 * i + 1] = high(a[4 * i], a[4 * i + 2]);
        b[4 * i + 2] = low(a[4 * i + 1], a[4 * i + 3]);
        b[4 * i + 3] = high(a[4 * i + 1], a[4 * i + 3]);
    }
    // Quarter `q` of `b[4·i + j]` holds column `4·q + j` of rows `4·i..`.
    for j in 0..4 {
        c[j] = _mm512_shuffle_f32x4::<0x88>(b[j], b[4 + j]);
        c[4 + j] = _mm512_shuffle_f32x4::<0xdd>(b[j], b[4 + j]);
        c[8 + j] = _mm512_shuffle_f32x4::<0x88>(b[8 + j], b[12 + j]);
        c[12 + j] = _mm512_shuffle_f32x4::<0xdd>(b[8 + j], b[12 + j]);
    }
    for j in 0..4 {
        out[j] = _mm512_shuffle_f32x4::<0x88>(c[j], c[8 + j]);
        out[4 + j] = _mm512_shuffle_f32x4::<0x88>(c[4 + j], c[12 + j]);
        out[8 + j] = _mm512_shuffle_f32x4::<0xdd>(c[j], c[8 + j]);
        out[12 + j] = _mm512_shuffle_f32x4::<0xdd>(c[4 + j], c[12 + j]);
    }
    out
}

const _: () = assert!(size_of::<Pairs>() == 4 * TILE_NUMBERS);
