//! Weights in blocks of 256, more than eight rows: sums of products that fit 16 bits.
//!
//! ```text
//! vpdpbusd × steps   32-bit lanes (output n, first half of the group), (output n, second half): below 2¹⁵ each
//! vpackssdw          both lanes as a pair of 16 bits, of 16 outputs
//! vpdpwssd           times the pair of scales, onto the block's integer sum
//! ```
//! So scales cost two instructions for four to eight products of bytes, and no slow multiplication of 32 bits; eight rows'
//! sums stay in registers. A block of weights is unpacked once for all rows, into the first cache.
#![allow(unsafe_code)] // intrinsics that load through pointers, in functions that need AVX-512

use std::arch::x86_64::*;
use std::ops::Range;

use super::load::{Five, Four, Load, Six};
use crate::parallel::blocks;
use crate::quant::avx512::superblock_header::{half, pair, wide};
use crate::quant::avx512::superblock_rows::{CHUNKS, Line, MOST};
use crate::quant::format::{Codes, PANEL};
use crate::quant::job::Job;
use crate::quant::superblock::{GROUPS, header_bytes};

/// Bytes of rows that stay in the second cache while they meet one panel after the other.
const CACHE: usize = 1 << 20;
/// Panels that meet the same rows in turns, if there are many rows: the rows are read from the first cache then, and outputs are
/// written some cache lines at once, which matters where all lines of a column fall on few places of the caches.
const TOGETHER: usize = 4;
const MANY_ROWS: usize = 64;
/// How many blocks ahead of the products memory is asked for weights.
const AHEAD: usize = 2;

/// Scratch memory of one thread, kept between calls.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The block at hand of each panel at hand.
    blocks: Vec<Block>,
    /// Outputs so far, at least `[panels, rows]`.
    y: Vec<Outputs>,
}

/// Sixteen outputs of a row, a cache line.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Outputs([f32; PANEL]);

/// A block of a panel.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Block {
    /// Codes of each chunk: outputs 0, 1, 4, 5, 8, 9, 12, 13, then the others; four inputs of the first half, then of the second.
    codes: [[[[u8; 64]; 2]; CHUNKS]; GROUPS],
    /// Scales of both halves.
    factors: [[i32; PANEL]; GROUPS],
    /// See [`pair`]; only of `Affine`.
    mins: [[i32; PANEL]; GROUPS / 2],
    d: [f32; PANEL],
    dmin: [f32; PANEL],
}

/// Computes the outputs of `panels`.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn panels(job: &Job, panels: Range<usize>, scratch: &mut Scratch) {
    scratch.blocks.resize(TOGETHER, bytemuck::Zeroable::zeroed());
    let most = (CACHE / size_of::<Line>() * GROUPS / job.panels.groups()).max(MOST);
    for rows in blocks(job.rows.count(), most) {
        let mut first = panels.start;
        while rows.len() > MANY_ROWS && first + TOGETHER <= panels.end {
            some::<TOGETHER>(job, &rows, first, scratch);
            first += TOGETHER;
        }
        (first..panels.end).for_each(|index| some::<1>(job, &rows, index, scratch));
    }
}

/// `P` panels.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn some<const P: usize>(job: &Job, rows: &Range<usize>, first: usize, scratch: &mut Scratch) {
    if scratch.y.len() < P * rows.len() {
        scratch.y.resize(P * rows.len(), bytemuck::Zeroable::zeroed());
    }
    let part = Part::<P> { job, rows, first };
    match job.panels.format.codes {
        Codes::Four => part.all::<Four, true, 4>(scratch),
        Codes::Five => part.all::<Five, true, 2>(scratch),
        _ => part.all::<Six, false, 2>(scratch),
    }
}

/// Some rows against `P` panels.
struct Part<'a, const P: usize> {
    job: &'a Job<'a>,
    rows: &'a Range<usize>,
    /// The first panel.
    first: usize,
}

impl<const P: usize> Part<'_, P> {
    /// All blocks; `STEPS` chunks have sums that fit 16 bits.
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
    fn all<L: Load, const AFFINE: bool, const STEPS: usize>(&self, scratch: &mut Scratch) {
        let header_bytes = header_bytes(AFFINE);
        let block_bytes = header_bytes + GROUPS * L::BYTES;
        let count = self.job.panels.groups() / GROUPS;
        let Scratch { blocks, y } = scratch;
        let blocks = blocks.first_chunk_mut::<P>().expect("room for some blocks");
        for b in 0..count {
            let mut ahead = [std::ptr::null(); P];
            // Behind the last block comes the next panel that will be here.
            let next = AHEAD * block_bytes + if b + AHEAD < count { 0 } else { (P - 1) * count * block_bytes };
            for (p, (block, ahead)) in blocks.iter_mut().zip(&mut ahead).enumerate() {
                let at = &self.job.panels.panel(self.first + p)[b * block_bytes..][..block_bytes];
                let (entry, codes) = at.split_at(header_bytes);
                block.unpack::<L, AFFINE>(entry, codes);
                *ahead = at.as_ptr().wrapping_add(next);
            }
            let step = Step { b, count, blocks, ahead, bytes: block_bytes };
            self.step::<AFFINE, STEPS>(&step, y);
        }
    }

    /// Adds the products of a block to `y`, and writes the outputs after the last.
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
    fn step<const AFFINE: bool, const STEPS: usize>(&self, step: &Step<P>, y: &mut [Outputs]) {
        let lines = &self.job.layouts.lines.block(step.b)[self.rows.clone()];
        let (first, last, count) = (step.b == 0, step.b + 1 == step.count, lines.len());
        let place = |t: usize, p: usize| self.job.out.place(self.rows.start + t, (self.first + p) * PANEL);
        // As much each time, so that the processor foresees how often these loops turn. Outputs, too, are asked for little by
        // little, for all blocks are a long time.
        let parts = count.div_ceil(MOST);
        let (codes, outputs) = ((step.bytes / 64).div_ceil(parts), count.div_ceil(step.count * parts));
        for (part, rows) in blocks(count, MOST).enumerate() {
            for ahead in step.ahead {
                for line in part * codes..(part + 1) * codes {
                    _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(64 * line).cast());
                }
            }
            let now = (step.b * parts + part) * outputs;
            for t in now..now + outputs {
                for p in 0..P {
                    _mm_prefetch::<_MM_HINT_ET0>(place(t.min(count - 1), p).0.cast());
                }
            }
            for (p, block) in step.blocks.iter().enumerate() {
                let (lines, y) = (&lines[rows.clone()], &mut y[p * count + rows.start..p * count + rows.end]);
                match lines.len() {
                    1 => block.add::<AFFINE, STEPS, 1>(lines, first, y),
                    2 => block.add::<AFFINE, STEPS, 2>(lines, first, y),
                    3 => block.add::<AFFINE, STEPS, 3>(lines, first, y),
                    4 => block.add::<AFFINE, STEPS, 4>(lines, first, y),
                    5 => block.add::<AFFINE, STEPS, 5>(lines, first, y),
                    6 => block.add::<AFFINE, STEPS, 6>(lines, first, y),
                    7 => block.add::<AFFINE, STEPS, 7>(lines, first, y),
                    _ => block.add::<AFFINE, STEPS, 8>(lines, first, y),
                }
            }
            for t in rows.filter(|_| last) {
                for p in 0..P {
                    let (place, columns) = place(t, p);
                    let mask = 0xffff >> (PANEL - columns.min(PANEL));
                    // SAFETY: sixteen numbers; where they go there is room for `columns`, and the mask keeps the others.
                    unsafe { _mm512_mask_storeu_ps(place, mask, _mm512_load_ps(y[p * count + t].0.as_ptr())) }
                }
            }
        }
    }
}

/// One block of each panel.
struct Step<'a, const P: usize> {
    /// Which block of `count` it is.
    b: usize,
    count: usize,
    blocks: &'a [Block; P],
    /// What memory is asked for while they are multiplied, `bytes` bytes of each panel.
    ahead: [*const u8; P],
    bytes: usize,
}

/// `_mm512_dpwssd_epi32`, which LLVM takes apart into a multiplication and an addition.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn dpwssd(mut sums: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: one instruction on registers, of the features that are enabled here.
    unsafe {
        std::arch::asm!(
            "vpdpwssd {}, {}, {}",
            inout(zmm_reg) sums, in(zmm_reg) a, in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

impl Block {
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
    fn unpack<L: Load, const AFFINE: bool>(&mut self, entry: &[u8], codes: &[u8]) {
        let rows = if AFFINE { 4 + 2 * GROUPS } else { 2 + 2 * GROUPS };
        assert!(entry.len() >= rows * PANEL && codes.len() == GROUPS * L::BYTES, "a block");
        let entry = entry.as_ptr();
        // SAFETY: loads are within the slices, as was just seen; stores are of 64 bytes each, into arrays of as many that are
        // aligned as the structure is.
        unsafe {
            for g in 0..GROUPS {
                let group = codes.as_ptr().add(g * L::BYTES);
                for j in 0..CHUNKS {
                    let (first, second) = L::quads(group, j);
                    let [one, other] = &mut self.codes[g][j];
                    _mm512_store_si512(one.as_mut_ptr().cast(), _mm512_unpacklo_epi32(first, second));
                    _mm512_store_si512(other.as_mut_ptr().cast(), _mm512_unpackhi_epi32(first, second));
                }
                let factor = if AFFINE {
                    let scale = wide::<true>(entry.add((4 + 2 * g) * PANEL));
                    _mm512_or_si512(scale, _mm512_slli_epi32::<16>(scale))
                } else {
                    pair::<false>(entry, g)
                };
                _mm512_store_si512(self.factors[g].as_mut_ptr().cast(), factor);
            }
            _mm512_store_ps(self.d.as_mut_ptr(), half(entry));
            if AFFINE {
                _mm512_store_ps(self.dmin.as_mut_ptr(), half(entry.add(2 * PANEL)));
                for (p, mins) in self.mins.iter_mut().enumerate() {
                    _mm512_store_si512(mins.as_mut_ptr().cast(), pair::<true>(entry, p));
                }
            }
        }
    }

    /// Adds the products of `R` rows to their outputs, or begins with them if it is the `first` block.
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
    #[allow(clippy::needless_range_loop)] // registers in arrays, indexed by constants once unrolled
    fn add<const AFFINE: bool, const STEPS: usize, const R: usize>(
        &self,
        lines: &[Line],
        first: bool,
        y: &mut [Outputs],
    ) {
        assert!(lines.len() == R && y.len() == R, "as many rows");
        let (lines, mask) = (lines.as_ptr(), if first { 0 } else { 0xffff });
        // SAFETY: there are `R` lines and outputs, says the assertion; all else are places in arrays of fixed length.
        unsafe {
            let products = self.products::<AFFINE, STEPS, R>(lines);
            let d = _mm512_load_ps(self.d.as_ptr());
            let mut parts = [_mm512_setzero_ps(); R];
            for r in 0..R {
                parts[r] = _mm512_mul_ps(_mm512_cvtepi32_ps(products[r]), d);
            }
            if AFFINE {
                let mut sums = [_mm512_setzero_si512(); R];
                for (p, mins) in self.mins.iter().enumerate() {
                    let mins = _mm512_load_si512(mins.as_ptr().cast());
                    for r in 0..R {
                        sums[r] = dpwssd(sums[r], mins, _mm512_set1_epi32((*lines.add(r)).sums[p]));
                    }
                }
                let dmin = _mm512_load_ps(self.dmin.as_ptr());
                for r in 0..R {
                    parts[r] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(sums[r]), dmin, parts[r]);
                }
            }
            for r in 0..R {
                let y = y.as_mut_ptr().add(r).cast::<f32>();
                let before = _mm512_maskz_load_ps(mask, y);
                _mm512_store_ps(y, _mm512_fmadd_ps(parts[r], _mm512_set1_ps((*lines.add(r)).scale), before));
            }
        }
    }

    /// The sums of products with the weights' scales.
    ///
    /// # Safety
    /// `lines` points at `R` of them.
    #[inline]
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
    #[allow(clippy::needless_range_loop)] // as above
    unsafe fn products<const AFFINE: bool, const STEPS: usize, const R: usize>(
        &self,
        lines: *const Line,
    ) -> [__m512i; R] {
        let mut products = [_mm512_setzero_si512(); R];
        for g in 0..GROUPS {
            for word in 0..CHUNKS / STEPS {
                let (mut one, mut other) = ([_mm512_setzero_si512(); R], [_mm512_setzero_si512(); R]);
                // SAFETY: as the caller promises; all else are places in arrays of fixed length.
                unsafe {
                    if !AFFINE {
                        for r in 0..R {
                            let start = (&raw const (*lines.add(r)).starts[g][word]).cast::<i64>().read();
                            one[r] = _mm512_set1_epi64(start);
                            other[r] = one[r];
                        }
                    }
                    for j in word * STEPS..(word + 1) * STEPS {
                        let w = self.codes[g][j].each_ref().map(|codes| _mm512_load_si512(codes.as_ptr().cast()));
                        for r in 0..R {
                            let x = (&raw const (*lines.add(r)).codes[g][j]).cast::<i64>().read_unaligned();
                            one[r] = _mm512_dpbusd_epi32(one[r], w[0], _mm512_set1_epi64(x));
                            other[r] = _mm512_dpbusd_epi32(other[r], w[1], _mm512_set1_epi64(x));
                        }
                    }
                    let factor = _mm512_load_si512(self.factors[g].as_ptr().cast());
                    for r in 0..R {
                        let both = _mm512_packs_epi32(one[r], other[r]);
                        products[r] = dpwssd(products[r], both, factor);
                    }
                }
            }
        }
        products
    }
}
