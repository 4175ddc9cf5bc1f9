//! Weights in blocks of 32, up to four rows against a panel: as [`crate::quant::avx512`] with registers of half the width.
//!
//! Without `vpdpbusd`, `vpmaddubsw` adds two products of an unsigned and a signed byte in 16 bits. Codes of four bits
//! leave room for a whole group there, those of five for half of one; eight bits would saturate, so their sign goes over
//! to the activations and their magnitude, at most 128, fits. With `vpdpbusd` they get their offset back.
#![allow(unsafe_code)] // intrinsics that load through pointers, in functions that need AVX2

use std::arch::x86_64::*;
use std::ops::Range;

use super::load::{self, Eight, Five, Four, LANES, Load};
use super::vnni::dpbusd;
use crate::parallel::blocks;
use crate::quant::expand::{GroupScales, Scratch};
use crate::quant::format::{Codes, GROUP, PANEL, SIGN, Scheme};
use crate::quant::job::Job;

/// Rows of a block: their sums for eight outputs, in 32 and in 16 bits, fill half of the registers.
const MOST: usize = 4;

/// How far ahead of the products weights are asked for.
const AHEAD: usize = 4096;

/// Computes the outputs of `panels`; `VNNI` promises AVX-VNNI.
///
/// # Safety
/// AVX-VNNI is there if `VNNI`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn panels<const VNNI: bool>(job: &Job, panels: Range<usize>, scratch: &mut Scratch) {
    let format = job.panels.format;
    let scales = &mut scratch.scales[..job.panels.groups()];
    for index in panels {
        let (header, codes) = job.panels.whole(index);
        load::scales(format, header, scales);
        let weights = Weights { index, codes, scales };
        // SAFETY: as the caller promises.
        unsafe {
            match (format.codes, format.scheme) {
                (Codes::Four, Scheme::Symmetric { .. }) => rows::<Four, SYMMETRIC, VNNI>(job, &weights),
                (Codes::Four, _) => rows::<Four, AFFINE, VNNI>(job, &weights),
                (Codes::Five, Scheme::Symmetric { .. }) => rows::<Five, SYMMETRIC, VNNI>(job, &weights),
                (Codes::Five, _) => rows::<Five, AFFINE, VNNI>(job, &weights),
                (Codes::Six | Codes::Eight, _) => rows::<Eight, SYMMETRIC, VNNI>(job, &weights),
            }
        }
    }
}

// How a scheme adds up one group.
const SYMMETRIC: u8 = 0;
const AFFINE: u8 = 1;

struct Weights<'a> {
    index: usize,
    codes: &'a [u8],
    scales: &'a [GroupScales],
}

/// All rows, cut into blocks.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows<L: Load, const SCHEME: u8, const VNNI: bool>(job: &Job, weights: &Weights) {
    for range in blocks(job.rows.count(), MOST) {
        // SAFETY: as the caller promises.
        unsafe {
            match range.len() {
                1 => block::<L, SCHEME, VNNI, 1>(job, weights, range.start),
                2 => block::<L, SCHEME, VNNI, 2>(job, weights, range.start),
                3 => block::<L, SCHEME, VNNI, 3>(job, weights, range.start),
                _ => block::<L, SCHEME, VNNI, MOST>(job, weights, range.start),
            }
        }
    }
}

/// Rows `start..start + R` against one panel.
#[target_feature(enable = "avx2,fma,f16c")]
#[allow(clippy::needless_range_loop)] // registers in arrays, indexed by constants once unrolled
unsafe fn block<L: Load, const SCHEME: u8, const VNNI: bool, const R: usize>(
    job: &Job,
    weights: &Weights,
    start: usize,
) {
    let groups = job.panels.groups();
    let range = start * groups..(start + R) * groups;
    let x = &job.rows.codes[range.start * GROUP..range.end * GROUP];
    let x_scales = &job.rows.scales[range.clone()];
    let terms = &job.terms[range];
    assert!(weights.codes.len() == groups * L::BYTES && weights.scales.len() == groups, "a panel's length");

    let mut y = [[_mm256_setzero_ps(); 2]; R];
    for g in 0..groups {
        // SAFETY: AVX2 is enabled here, and AVX-VNNI there if `VNNI`. Every pointer stays within the slices above: `g` is
        // below `groups`, `r` below `R`, and the lengths were computed from, or compared with, both.
        unsafe {
            let codes = weights.codes.as_ptr().add(g * L::BYTES);
            for line in 0..L::BYTES / 64 {
                _mm_prefetch::<_MM_HINT_T0>(codes.wrapping_add(AHEAD + 64 * line).cast());
            }
            let w = &*weights.scales.as_ptr().add(g);
            for h in 0..2 {
                let sums = dots::<L, VNNI, R>(codes, x.as_ptr().add(g * GROUP), groups * GROUP, h);
                let scale = _mm256_loadu_ps(w.scale.as_ptr().add(LANES * h));
                let second = _mm256_loadu_ps(w.second.as_ptr().add(LANES * h));
                for r in 0..R {
                    let at = r * groups + g;
                    let term = *terms.as_ptr().add(at);
                    let part = if SCHEME == AFFINE {
                        let part = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[r]), scale);
                        _mm256_fmadd_ps(_mm256_set1_ps(f32::from_bits(term as u32)), second, part)
                    } else if L::LARGE && !VNNI {
                        // The sign of large codes is gone over to `x`: their dot product needs no correction.
                        _mm256_mul_ps(_mm256_cvtepi32_ps(sums[r]), scale)
                    } else {
                        let sum = _mm256_add_epi32(sums[r], _mm256_set1_epi32(term));
                        _mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale)
                    };
                    let scale = _mm256_set1_ps(*x_scales.as_ptr().add(at));
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

/// One group's integer sums of `R` rows, `stride` bytes apart, and the outputs of half `h`.
///
/// # Safety
/// AVX-VNNI is there if `VNNI`; `codes` points at a group, `x` at 32 bytes of each row, `h` is below 2.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
#[allow(clippy::needless_range_loop)]
unsafe fn dots<L: Load, const VNNI: bool, const R: usize>(
    codes: *const u8,
    x: *const i8,
    stride: usize,
    h: usize,
) -> [__m256i; R] {
    let mut sums = [_mm256_setzero_si256(); R];
    // SAFETY: as the caller promises; `j` stays below 4.
    unsafe {
        let quad = |r: usize, j: usize| _mm256_set1_epi32(x.add(r * stride + 4 * j).cast::<i32>().read_unaligned());
        for first in (0..4).step_by(L::STEPS) {
            let mut narrow = [_mm256_setzero_si256(); R];
            for j in first..first + L::STEPS {
                let (mut low, mut high) = L::quads(codes, j, h);
                if VNNI && L::LARGE {
                    let sign = _mm256_set1_epi8(SIGN as i8);
                    (low, high) = (_mm256_xor_si256(low, sign), _mm256_xor_si256(high, sign));
                }
                for r in 0..R {
                    let (x_low, x_high) = (quad(r, j), quad(r, 4 + j));
                    if VNNI {
                        sums[r] = dpbusd(sums[r], low, x_low);
                        sums[r] = dpbusd(sums[r], high, x_high);
                    } else if L::LARGE {
                        sums[r] = _mm256_add_epi32(sums[r], widen(pairs::<L>(low, x_low)));
                        sums[r] = _mm256_add_epi32(sums[r], widen(pairs::<L>(high, x_high)));
                    } else {
                        narrow[r] = _mm256_add_epi16(narrow[r], pairs::<L>(low, x_low));
                        narrow[r] = _mm256_add_epi16(narrow[r], pairs::<L>(high, x_high));
                    }
                }
            }
            if !VNNI && !L::LARGE {
                for r in 0..R {
                    sums[r] = _mm256_add_epi32(sums[r], widen(narrow[r]));
                }
            }
        }
    }
    sums
}

/// Sums of two products in 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn pairs<L: Load>(codes: __m256i, x: __m256i) -> __m256i {
    if L::LARGE {
        _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes))
    } else {
        _mm256_maddubs_epi16(codes, x)
    }
}

/// Sums of two numbers of 16 bits in 32.
#[inline]
#[target_feature(enable = "avx2")]
fn widen(pairs: __m256i) -> __m256i {
    _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
}
