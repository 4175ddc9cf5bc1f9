//! AVX-512 with VNNI: up to eight rows against a panel, all sums in registers.
#![allow(unsafe_code)] // intrinsics that load through pointers, in functions that need AVX-512

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::avx512::load::{self, AHEAD, Eight, Five, Four, Load, Six};
use super::super::format::{Codes, GROUP, Header, PANEL};
use super::super::job::{Job, Scratch, blocks};
use super::{GROUPS, OFFSET};

/// Up to this many rows codes are unpacked for each block of rows, beyond it once for all.
const FEW_ROWS: usize = 32;

/// Computes the outputs of `panels`.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(in super::super) fn panels(job: &Job, panels: Range<usize>, scratch: &mut Scratch) {
    let format = job.panels.format;
    for index in panels {
        let (header, codes) = job.panels.panel(index);
        if job.rows.count() > FEW_ROWS {
            let wide = &mut scratch.codes[..job.panels.groups()];
            load::codes(format.codes, 0, codes, wide);
            let weights = Weights { index, header, codes: bytemuck::cast_slice(wide) };
            match format.header {
                Header::SuperAffine => rows::<Eight, true>(job, &weights),
                _ => rows::<Eight, false>(job, &weights),
            }
            continue;
        }
        let weights = Weights { index, header, codes };
        match format.codes {
            Codes::Four => rows::<Four, true>(job, &weights),
            Codes::Five => rows::<Five, true>(job, &weights),
            _ => rows::<Six, false>(job, &weights),
        }
    }
}

struct Weights<'a> {
    index: usize,
    header: &'a [u8],
    codes: &'a [u8],
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn rows<L: Load, const AFFINE: bool>(job: &Job, weights: &Weights) {
    // Three sums per row, four for halves; those that are touched once per block may leave the registers.
    for range in blocks(job.rows.count(), 8) {
        match range.len() {
            1 => block::<L, AFFINE, 1>(job, weights, range.start),
            2 => block::<L, AFFINE, 2>(job, weights, range.start),
            3 => block::<L, AFFINE, 3>(job, weights, range.start),
            4 => block::<L, AFFINE, 4>(job, weights, range.start),
            5 => block::<L, AFFINE, 5>(job, weights, range.start),
            6 => block::<L, AFFINE, 6>(job, weights, range.start),
            7 => block::<L, AFFINE, 7>(job, weights, range.start),
            _ => block::<L, AFFINE, 8>(job, weights, range.start),
        }
    }
}

/// Rows `start..start + R`.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
#[allow(clippy::needless_range_loop)] // registers in arrays, indexed by constants once unrolled
fn block<L: Load, const AFFINE: bool, const R: usize>(job: &Job, weights: &Weights, start: usize) {
    let groups = job.panels.groups();
    let entry_bytes = job.panels.format.header.bytes();
    let pairs = pairs_per_block(AFFINE);
    let x = &job.rows.codes[start * groups * GROUP..(start + R) * groups * GROUP];
    let scales = &job.rows.scales[start * groups..(start + R) * groups];
    let terms = &job.terms[start * groups / GROUPS * pairs..(start + R) * groups / GROUPS * pairs];
    assert!(weights.codes.len() == groups * L::BYTES, "a panel's length");
    assert!(weights.header.len() >= groups / GROUPS * entry_bytes, "a panel's header");

    // SAFETY: AVX-512 is enabled here. Every pointer stays within the slices above: `b` is below `groups / GROUPS`, `g` below
    // `GROUPS`, `r` below `R`, and the lengths were computed from, or compared with, them.
    unsafe {
        let mut y = [_mm512_setzero_ps(); R];
        for b in 0..groups / GROUPS {
            let entry = weights.header.as_ptr().add(b * entry_bytes);
            let mut products = [_mm512_setzero_si512(); R];
            for g in 0..GROUPS {
                let codes = weights.codes.as_ptr().add((b * GROUPS + g) * L::BYTES);
                for line in 0..L::BYTES / 64 {
                    _mm_prefetch::<_MM_HINT_T2>(codes.wrapping_add(AHEAD + 64 * line).cast());
                }
                let mut first = [_mm512_setzero_si512(); R];
                let mut second = first;
                for j in 0..4 {
                    let w = L::quads(codes, j);
                    for r in 0..R {
                        let x = x.as_ptr().add((r * groups + b * GROUPS + g) * GROUP).cast::<i32>();
                        first[r] = _mm512_dpbusd_epi32(first[r], w.0, _mm512_set1_epi32(x.add(j).read_unaligned()));
                    }
                    for r in 0..R {
                        let x = x.as_ptr().add((r * groups + b * GROUPS + g) * GROUP).cast::<i32>();
                        let high = _mm512_set1_epi32(x.add(4 + j).read_unaligned());
                        let sum = if AFFINE { &mut first[r] } else { &mut second[r] };
                        *sum = _mm512_dpbusd_epi32(*sum, w.1, high);
                    }
                }
                let scale = |row: usize| wide::<AFFINE>(entry.add(row * PANEL));
                if AFFINE {
                    let scale = scale(4 + 2 * g);
                    for r in 0..R {
                        products[r] = _mm512_add_epi32(products[r], _mm512_mullo_epi32(first[r], scale));
                    }
                } else {
                    let (low, high) = (scale(2 + 2 * g), scale(3 + 2 * g));
                    for r in 0..R {
                        products[r] = _mm512_add_epi32(products[r], _mm512_mullo_epi32(first[r], low));
                        products[r] = _mm512_add_epi32(products[r], _mm512_mullo_epi32(second[r], high));
                    }
                }
            }
            let mut sums = [_mm512_setzero_si512(); R];
            for p in 0..pairs {
                let pair = pair::<AFFINE>(entry, p);
                for r in 0..R {
                    let term = *terms.as_ptr().add((r * groups / GROUPS + b) * pairs + p);
                    sums[r] = _mm512_dpwssd_epi32(sums[r], pair, _mm512_set1_epi32(term));
                }
            }
            let (d, dmin) = (half(entry), if AFFINE { half(entry.add(2 * PANEL)) } else { _mm512_setzero_ps() });
            for r in 0..R {
                let part = if AFFINE {
                    let part = _mm512_mul_ps(_mm512_cvtepi32_ps(products[r]), d);
                    _mm512_fnmadd_ps(_mm512_cvtepi32_ps(sums[r]), dmin, part)
                } else {
                    let offset = _mm512_slli_epi32::<{ OFFSET.ilog2() }>(sums[r]);
                    _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(products[r], offset)), d)
                };
                let scale = _mm512_set1_ps(*scales.as_ptr().add(r * groups + b * GROUPS));
                y[r] = _mm512_fmadd_ps(part, scale, y[r]);
            }
        }
        for (r, y) in y.iter().enumerate() {
            let (place, count) = job.out.place(start + r, weights.index * PANEL);
            _mm512_mask_storeu_ps(place, 0xffff >> (PANEL - count.min(PANEL)), *y);
        }
    }
}

/// How many pairs of the rows' sums go with a block: of two groups, or of a group's halves.
pub(super) const fn pairs_per_block(affine: bool) -> usize {
    if affine { GROUPS / 2 } else { GROUPS }
}

/// What pair `p` of the rows' sums is multiplied with: two groups' mins, or the scales of a group's halves.
///
/// # Safety
/// `entry` points at a header's entry.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn pair<const AFFINE: bool>(entry: *const u8, p: usize) -> __m512i {
    let (first, second) = if AFFINE { (5 + 4 * p, 7 + 4 * p) } else { (2 + 2 * p, 3 + 2 * p) };
    // SAFETY: rows of 16 bytes within the entry.
    let (first, second) =
        unsafe { (wide::<AFFINE>(entry.add(first * PANEL)), wide::<AFFINE>(entry.add(second * PANEL))) };
    _mm512_mask_blend_epi16(0xaaaa_aaaa, first, _mm512_slli_epi32::<16>(second))
}

/// Sixteen bytes as integers: unsigned where `AFFINE`.
///
/// # Safety
/// `bytes` points at them.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn wide<const AFFINE: bool>(bytes: *const u8) -> __m512i {
    // SAFETY: as the caller promises.
    let bytes = unsafe { _mm_loadu_si128(bytes.cast()) };
    if AFFINE { _mm512_cvtepu8_epi32(bytes) } else { _mm512_cvtepi8_epi32(bytes) }
}

/// Sixteen `f16`.
///
/// # Safety
/// `bytes` points at them.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn half(bytes: *const u8) -> __m512 {
    // SAFETY: as the caller promises.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(bytes.cast()) })
}
