//! `vdpbf16ps`: each of sixteen outputs meets a pair of inputs, three panels of outputs times eight rows at once.
#![allow(unsafe_code)] // intrinsics that load through pointers, in functions that need AVX-512

use std::arch::x86_64::*;
use std::ops::Range;

use super::unit::TILE;
use super::weights::Weights;
use crate::isa::one_stream;
use crate::parallel::{Columns, Shared, blocks, for_each_index};

/// Rows and panels of a tile: 24 sums in registers.
const ROWS: usize = 8;
pub(super) const PANELS: usize = 3;
/// Bytes of rows that stay in the second cache while they meet one panel after the other.
const CACHE: usize = 512 << 10;
/// How far ahead weights are asked for, and rows.
const AHEAD: usize = 4096;
const ROWS_AHEAD: usize = 512;
/// Bytes of sixteen outputs' pairs: a cache line.
const LINE: usize = 64;

/// Rows rounded to BF16, cut into blocks of up to eight: `[inputs / 2, rows of the block]` pairs each. A row of its own would be
/// a stream too short for the processor to foresee, eight of them a third of a tile's time. Their memory is kept from one call
/// to the next.
#[derive(Default)]
pub(super) struct Rounded {
    pairs: Vec<u32>,
    count: usize,
}

impl Rounded {
    /// Replaces what was here by the rows of `x`.
    ///
    /// # Safety
    /// This machine has [`super::unit::Unit::Pairs`].
    pub unsafe fn fill(&mut self, x: &[f32], inputs: usize) {
        self.count = x.len() / inputs;
        self.pairs.resize(x.len() / 2, 0);
        let (count, pairs) = (self.count, Shared::new(&mut self.pairs));
        for_each_index(count.div_ceil(ROWS), x.len(), |index| {
            let rows = block(count, index);
            // SAFETY: blocks do not overlap, and the caller has the instructions.
            unsafe {
                let pairs = pairs.part(rows.start * inputs / 2..rows.end * inputs / 2);
                let x = &x[rows.start * inputs..rows.end * inputs];
                x.chunks_exact(inputs).enumerate().for_each(|(r, x)| round(x, r, rows.len(), pairs));
            }
        });
    }
}

/// The rows of a block.
fn block(count: usize, index: usize) -> Range<usize> {
    blocks(count, ROWS).nth(index).expect("an index below their number")
}

/// To the nearest, ties to even; row `r` of `rows`.
#[target_feature(enable = "avx512f,avx512vl,avx512bf16")]
fn round(x: &[f32], r: usize, rows: usize, pairs: &mut [u32]) {
    for (x, pairs) in x.as_chunks::<16>().0.iter().zip(pairs.chunks_exact_mut(8 * rows)) {
        // SAFETY: sixteen numbers, as the type says; all bits are numbers of either type.
        let rounded: [u32; 8] = unsafe { std::mem::transmute(_mm512_cvtneps_pbh(_mm512_loadu_ps(x.as_ptr()))) };
        for (k, pair) in rounded.into_iter().enumerate() {
            pairs[k * rows + r] = pair;
        }
    }
}

/// Computes the outputs `16 · range`.
///
/// # Safety
/// This machine has [`super::unit::Unit::Pairs`].
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) unsafe fn panels(rows: &Rounded, weights: &Weights, range: Range<usize>, out: &Columns) {
    let several = rows.count > 1 || !one_stream();
    let most = CACHE / (2 * weights.inputs() * ROWS);
    for some in blocks(rows.count.div_ceil(ROWS), most.max(1)) {
        let mut at = range.start;
        while several && at + PANELS <= range.end {
            Part { rows, weights, out, first: at }.all::<PANELS>(&some);
            at += PANELS;
        }
        (at..range.end).for_each(|at| Part { rows, weights, out, first: at }.all::<1>(&some));
    }
}

/// Some panels, of which `first` is the first.
struct Part<'a> {
    rows: &'a Rounded,
    weights: &'a Weights,
    out: &'a Columns<'a>,
    first: usize,
}

impl Part<'_> {
    /// `P` panels against some blocks of rows.
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn all<const P: usize>(&self, blocks: &Range<usize>) {
        let bytes = P * self.weights.panel(self.first).len();
        let lines = (bytes / LINE).div_ceil(blocks.len());
        let next = self.weights.panel(self.first).as_ptr().wrapping_add(bytes);
        for index in blocks.clone() {
            // The next panels little by little: one block alone asks for them at the pace of its own weights.
            let part = (index - blocks.start) * lines;
            for line in (part..part + lines).filter(|_| blocks.len() > 1) {
                _mm_prefetch::<_MM_HINT_T1>(next.wrapping_add(LINE * line).cast());
            }
            let rows = block(self.rows.count, index);
            match rows.len() {
                1 => self.tile::<1, P>(rows.start),
                2 => self.tile::<2, P>(rows.start),
                3 => self.tile::<3, P>(rows.start),
                4 => self.tile::<4, P>(rows.start),
                5 => self.tile::<5, P>(rows.start),
                6 => self.tile::<6, P>(rows.start),
                7 => self.tile::<7, P>(rows.start),
                _ => self.tile::<ROWS, P>(rows.start),
            }
        }
    }

    /// `R` rows from `start` on.
    #[target_feature(enable = "avx512f,avx512bf16")]
    #[allow(clippy::needless_range_loop)] // registers in arrays, indexed by constants once unrolled
    fn tile<const R: usize, const P: usize>(&self, start: usize) {
        let pairs = self.weights.inputs() / 2;
        let x = &self.rows.pairs[start * pairs..(start + R) * pairs];
        let mut w: [&[u8]; P] = [&[]; P];
        for p in 0..P {
            w[p] = self.weights.panel(self.first + p);
            assert!(w[p].len() == pairs * LINE, "a panel's length");
            for r in 0..R {
                // Stores are done in order: one that waits for memory would keep the next ones.
                _mm_prefetch::<_MM_HINT_ET0>(self.out.place(start + r, (self.first + p) * TILE).0.cast());
            }
        }
        let mut sums = [[_mm512_setzero_ps(); P]; R];
        for k in 0..pairs {
            // What comes behind the end of a panel was read as the next one's beginning, but for the last of them.
            let next = if k * LINE + AHEAD < pairs * LINE { 0 } else { (P - 1) * pairs * LINE };
            let mut weights = [_mm512_setzero_si512(); P];
            // SAFETY: `k` is below `pairs`; so many lines has each panel, and `R` times so many pairs `x`. Prefetches may
            // point anywhere.
            unsafe {
                for p in 0..P {
                    let at = w[p].as_ptr().add(k * LINE);
                    weights[p] = _mm512_loadu_si512(at.cast());
                    _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD + next).cast());
                }
                let x = x.as_ptr().add(k * R);
                _mm_prefetch::<_MM_HINT_T0>(x.cast::<i8>().wrapping_add(ROWS_AHEAD));
                for r in 0..R {
                    let x = _mm512_set1_epi32(*x.add(r) as i32);
                    for p in 0..P {
                        sums[r][p] = _mm512_dpbf16_ps(sums[r][p], pairs_of(x), pairs_of(weights[p]));
                    }
                }
            }
        }
        for r in 0..R {
            for p in 0..P {
                let (place, count) = self.out.place(start + r, (self.first + p) * TILE);
                // SAFETY: there is room for `count`, and the mask keeps the others.
                unsafe { _mm512_mask_storeu_ps(place, 0xffff >> (TILE - count.min(TILE)), sums[r][p]) }
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn pairs_of(bits: __m512i) -> __m512bh {
    // SAFETY: as many bits, and all are numbers of either type.
    unsafe { std::mem::transmute::<__m512i, __m512bh>(bits) }
}
