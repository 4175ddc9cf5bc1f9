//! Weights in blocks of 256, up to four rows against half a panel.
//!
//! Without `vpdpbusd`, `vpmaddubsw` adds products in 16 bits, and the `vpmaddwd` that widens them multiplies with the scale.
#![allow(unsafe_code)] // intrinsics that load through pointers, in functions that need AVX2

use std::arch::x86_64::*;
use std::ops::Range;

use super::load::{Five, Four, LANES, Load, Six};
use super::vnni::dpbusd;
use crate::parallel::blocks;
use crate::quant::format::{Codes, GROUP, PANEL};
use crate::quant::job::Job;
use crate::quant::superblock::{GROUPS, OFFSET, header_bytes};

/// Rows of a block.
const MOST: usize = 4;
/// How far ahead of the products weights are asked for.
const AHEAD: usize = 4096;

/// Computes the outputs of `panels`; `VNNI` promises AVX-VNNI.
///
/// # Safety
/// AVX-VNNI is there if `VNNI`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn panels<const VNNI: bool>(job: &Job, panels: Range<usize>) {
    for index in panels {
        let weights = Weights { index, panel: job.panels.panel(index) };
        // SAFETY: as the caller promises.
        unsafe {
            match job.panels.format.codes {
                Codes::Four => rows::<Four, true, VNNI>(job, &weights),
                Codes::Five => rows::<Five, true, VNNI>(job, &weights),
                _ => rows::<Six, false, VNNI>(job, &weights),
            }
        }
    }
}

struct Weights<'a> {
    index: usize,
    panel: &'a [u8],
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows<L: Load, const AFFINE: bool, const VNNI: bool>(job: &Job, weights: &Weights) {
    for range in blocks(job.rows.count(), MOST) {
        // SAFETY: as the caller promises.
        unsafe {
            match range.len() {
                1 => block::<L, AFFINE, VNNI, 1>(job, weights, range.start),
                2 => block::<L, AFFINE, VNNI, 2>(job, weights, range.start),
                3 => block::<L, AFFINE, VNNI, 3>(job, weights, range.start),
                _ => block::<L, AFFINE, VNNI, MOST>(job, weights, range.start),
            }
        }
    }
}

/// Rows `start..start + R`.
#[target_feature(enable = "avx2,fma,f16c")]
#[allow(clippy::needless_range_loop)] // registers in arrays, indexed by constants once unrolled
unsafe fn block<L: Load, const AFFINE: bool, const VNNI: bool, const R: usize>(
    job: &Job,
    weights: &Weights,
    start: usize,
) {
    let groups = job.panels.groups();
    let blocks = groups / GROUPS;
    let header_bytes = header_bytes(AFFINE);
    let block_bytes = header_bytes + GROUPS * L::BYTES;
    let pairs = if AFFINE { GROUPS / 2 } else { GROUPS };
    let x = &job.rows.codes[start * groups * GROUP..(start + R) * groups * GROUP];
    let scales = &job.rows.scales[start * groups..(start + R) * groups];
    let terms = &job.terms[start * blocks * pairs..(start + R) * blocks * pairs];
    assert!(weights.panel.len() == blocks * block_bytes, "a panel's length");

    let mut y = [[_mm256_setzero_ps(); 2]; R];
    for b in 0..blocks {
        for line in 0..header_bytes / 64 {
            let ahead = weights.panel.as_ptr().wrapping_add(b * block_bytes + AHEAD + 64 * line);
            _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
        }
        for h in 0..2 {
            // SAFETY: AVX2 is enabled here, and AVX-VNNI there if `VNNI`. Every pointer stays within the slices above: `b` is
            // below `blocks`, `r` below `R`, and the lengths were computed from, or compared with, both.
            unsafe {
                let entry = weights.panel.as_ptr().add(b * block_bytes);
                let codes = entry.add(header_bytes);
                let first = x.as_ptr().add(b * GROUPS * GROUP);
                let products = products::<L, AFFINE, VNNI, R>(entry, codes, first, groups * GROUP, h);
                let d = half(entry, h);
                for r in 0..R {
                    let terms = terms.as_ptr().add((r * blocks + b) * pairs);
                    let mut sums = _mm256_setzero_si256();
                    for p in 0..pairs {
                        let term = _mm256_set1_epi32(*terms.add(p));
                        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(pair::<AFFINE>(entry, p, h), term));
                    }
                    let part = if AFFINE {
                        let part = _mm256_mul_ps(_mm256_cvtepi32_ps(products[r]), d);
                        _mm256_fnmadd_ps(_mm256_cvtepi32_ps(sums), half(entry.add(2 * PANEL), h), part)
                    } else {
                        let offset = _mm256_slli_epi32::<{ OFFSET.ilog2() as i32 }>(sums);
                        _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(products[r], offset)), d)
                    };
                    let scale = _mm256_set1_ps(*scales.as_ptr().add(r * groups + b * GROUPS));
                    y[r][h] = _mm256_fmadd_ps(part, scale, y[r][h]);
                }
            }
        }
    }
    for (r, y) in y.iter().enumerate() {
        let mut out = [0.0; PANEL];
        // SAFETY: `out` has room for two times eight numbers.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), y[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(LANES), y[1]);
        }
        job.out.write(start + r, weights.index * PANEL, &out);
    }
}

/// One block's products of `R` rows, `stride` bytes apart, and the outputs of half `h`.
///
/// # Safety
/// AVX-VNNI is there if `VNNI`; `entry` points at a header's entry, `codes` at a block's codes, `x` at 256 bytes of each row,
/// `h` is below 2.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
#[allow(clippy::needless_range_loop)] // registers in arrays, indexed by constants once unrolled
unsafe fn products<L: Load, const AFFINE: bool, const VNNI: bool, const R: usize>(
    entry: *const u8,
    codes: *const u8,
    x: *const i8,
    stride: usize,
    h: usize,
) -> [__m256i; R] {
    let upper = if AFFINE { 0 } else { 1 };
    let mut sums = [_mm256_setzero_si256(); R];
    for g in 0..GROUPS {
        // SAFETY: as the caller promises; `j` stays below 4.
        unsafe {
            let codes = codes.add(g * L::BYTES);
            for line in 0..L::BYTES / 64 {
                _mm_prefetch::<_MM_HINT_T0>(codes.wrapping_add(AHEAD + 64 * line).cast());
            }
            let scales = if AFFINE {
                [bytes::<AFFINE>(entry, 4 + 2 * g, h), _mm256_setzero_si256()]
            } else {
                [bytes::<AFFINE>(entry, 2 + 2 * g, h), bytes::<AFFINE>(entry, 3 + 2 * g, h)]
            };
            let quad = |r: usize, j: usize| {
                _mm256_set1_epi32(x.add(r * stride + g * GROUP + 4 * j).cast::<i32>().read_unaligned())
            };
            let steps = if VNNI { 4 } else { L::STEPS };
            for first in (0..4).step_by(steps) {
                let mut part = [[_mm256_setzero_si256(); 2]; R];
                for j in first..first + steps {
                    let (low, high) = L::quads(codes, j, h);
                    for r in 0..R {
                        let (x_low, x_high) = (quad(r, j), quad(r, 4 + j));
                        if VNNI {
                            part[r][0] = dpbusd(part[r][0], low, x_low);
                            part[r][upper] = dpbusd(part[r][upper], high, x_high);
                        } else {
                            part[r][0] = _mm256_add_epi16(part[r][0], _mm256_maddubs_epi16(low, x_low));
                            part[r][upper] = _mm256_add_epi16(part[r][upper], _mm256_maddubs_epi16(high, x_high));
                        }
                    }
                }
                for r in 0..R {
                    for n in 0..=upper {
                        let scaled = if VNNI {
                            _mm256_mullo_epi32(part[r][n], scales[n])
                        } else {
                            let both = _mm256_blend_epi16::<0xaa>(scales[n], _mm256_slli_epi32::<16>(scales[n]));
                            _mm256_madd_epi16(part[r][n], both)
                        };
                        sums[r] = _mm256_add_epi32(sums[r], scaled);
                    }
                }
            }
        }
    }
    sums
}

/// What pair `p` of the rows' sums is multiplied with: two groups' mins, or the scales of a group's halves.
///
/// # Safety
/// `entry` points at a header's entry; `h` is below 2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn pair<const AFFINE: bool>(entry: *const u8, p: usize, h: usize) -> __m256i {
    let (first, second) = if AFFINE { (5 + 4 * p, 7 + 4 * p) } else { (2 + 2 * p, 3 + 2 * p) };
    // SAFETY: as the caller promises.
    let (first, second) = unsafe { (bytes::<AFFINE>(entry, first, h), bytes::<AFFINE>(entry, second, h)) };
    _mm256_blend_epi16::<0xaa>(first, _mm256_slli_epi32::<16>(second))
}

/// Eight bytes of row `row` as integers: unsigned where `AFFINE`.
///
/// # Safety
/// As for [`pair`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn bytes<const AFFINE: bool>(entry: *const u8, row: usize, h: usize) -> __m256i {
    // SAFETY: within the entry.
    let bytes = unsafe { _mm_loadl_epi64(entry.add(row * PANEL + h * LANES).cast()) };
    if AFFINE { _mm256_cvtepu8_epi32(bytes) } else { _mm256_cvtepi8_epi32(bytes) }
}

/// Eight `f16`.
///
/// # Safety
/// As for [`pair`].
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn half(row: *const u8, h: usize) -> __m256 {
    // SAFETY: as the caller promises.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(row.add(2 * LANES * h).cast()) })
}
