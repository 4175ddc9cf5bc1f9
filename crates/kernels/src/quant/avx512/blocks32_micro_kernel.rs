//! The micro-kernel for weights in blocks of 32: a few rows against one or two panels.
#![allow(unsafe_code)] // intrinsics that load through pointers, in functions that need AVX-512

use std::arch::x86_64::*;

use super::load::{AHEAD, Load};
use crate::parallel::blocks;
use crate::quant::expand::GroupScales;
use crate::quant::format::{GROUP, PANEL};
use crate::quant::job::Job;

/// Rows of a block.
const MOST: usize = 8;

/// `P` neighbouring panels from `index` on.
pub(super) struct Weights<'a, const P: usize> {
    pub index: usize,
    pub codes: [&'a [u8]; P],
    pub scales: [&'a [GroupScales]; P],
    /// Codes of the panels after.
    pub next: [*const u8; P],
}

/// All rows, cut into blocks.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn rows<L: Load, S: Sums, const P: usize>(job: &Job, weights: &Weights<P>) {
    for range in blocks(job.rows.count(), MOST) {
        match range.len() {
            1 => block::<L, S, 1, P>(job, weights, range.start),
            2 => block::<L, S, 2, P>(job, weights, range.start),
            3 => block::<L, S, 3, P>(job, weights, range.start),
            4 => block::<L, S, 4, P>(job, weights, range.start),
            5 => block::<L, S, 5, P>(job, weights, range.start),
            6 => block::<L, S, 6, P>(job, weights, range.start),
            7 => block::<L, S, 7, P>(job, weights, range.start),
            _ => block::<L, S, 8, P>(job, weights, range.start),
        }
    }
}

/// Rows `start..start + R` against `P` panels.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
#[allow(clippy::needless_range_loop)] // registers in arrays, indexed by constants once unrolled
fn block<L: Load, S: Sums, const R: usize, const P: usize>(job: &Job, weights: &Weights<P>, start: usize) {
    let groups = job.panels.groups();
    let range = start * groups..(start + R) * groups;
    let x = &job.rows.codes[range.start * GROUP..range.end * GROUP];
    let scales = &job.rows.scales[range.clone()];
    let terms = &job.terms[range];
    // Stores are done in order: one that waits for memory would keep those of sums that leave the registers.
    for r in 0..R {
        for p in 0..P {
            _mm_prefetch::<_MM_HINT_ET0>(job.out.place(start + r, (weights.index + p) * PANEL).0.cast());
        }
    }
    for p in 0..P {
        assert!(weights.codes[p].len() == groups * L::BYTES && weights.scales[p].len() == groups, "a panel's length");
    }

    // SAFETY: AVX-512 is enabled here. Every pointer stays within the slices above: `g` is below `groups`, `r` below `R`,
    // and the lengths were computed from, or compared with, both.
    unsafe {
        let mut y = [[_mm512_setzero_ps(); P]; R];
        for g in 0..groups {
            let mut first = [[_mm512_setzero_si512(); P]; R];
            if !S::AFFINE {
                for r in 0..R {
                    first[r] = [_mm512_set1_epi32(*terms.as_ptr().add(r * groups + g)); P];
                }
            }
            if !L::UNPACKED {
                for p in 0..P {
                    let g = g + AHEAD / L::BYTES;
                    let ahead = match g < groups {
                        true => weights.codes[p].as_ptr().wrapping_add(g * L::BYTES),
                        false => weights.next[p].wrapping_add((g - groups) * L::BYTES),
                    };
                    for line in 0..L::BYTES / 64 {
                        _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(64 * line).cast());
                    }
                }
            }
            for j in 0..4 {
                let mut w = [(_mm512_setzero_si512(), _mm512_setzero_si512()); P];
                for p in 0..P {
                    w[p] = L::quads(weights.codes[p].as_ptr().add(g * L::BYTES), j);
                }
                // All low quads before all high ones: neighbours that wait for each other's sum would stall.
                for r in 0..R {
                    let x = x.as_ptr().add((r * groups + g) * GROUP).cast::<i32>();
                    let low = _mm512_set1_epi32(x.add(j).read_unaligned());
                    for p in 0..P {
                        first[r][p] = _mm512_dpbusd_epi32(first[r][p], w[p].0, low);
                    }
                }
                for r in 0..R {
                    let x = x.as_ptr().add((r * groups + g) * GROUP).cast::<i32>();
                    let high = _mm512_set1_epi32(x.add(4 + j).read_unaligned());
                    for p in 0..P {
                        first[r][p] = _mm512_dpbusd_epi32(first[r][p], w[p].1, high);
                    }
                }
            }
            for p in 0..P {
                let w = &*weights.scales[p].as_ptr().add(g);
                let (scale, other) = (_mm512_load_ps(w.scale.as_ptr()), _mm512_load_ps(w.second.as_ptr()));
                for r in 0..R {
                    let mut part = _mm512_mul_ps(_mm512_cvtepi32_ps(first[r][p]), scale);
                    if S::AFFINE {
                        let sum = f32::from_bits(*terms.as_ptr().add(r * groups + g) as u32);
                        part = _mm512_fmadd_ps(_mm512_set1_ps(sum), other, part);
                    }
                    let scale = _mm512_set1_ps(*scales.as_ptr().add(r * groups + g));
                    y[r][p] = _mm512_fmadd_ps(part, scale, y[r][p]);
                }
            }
        }
        for r in 0..R {
            for p in 0..P {
                let (place, count) = job.out.place(start + r, (weights.index + p) * PANEL);
                _mm512_mask_storeu_ps(place, 0xffff >> (PANEL - count.min(PANEL)), y[r][p]);
            }
        }
    }
}

/// How a scheme adds up one group.
pub(super) trait Sums {
    const AFFINE: bool = false;
}
pub(super) struct Symmetric;
pub(super) struct Affine;
impl Sums for Symmetric {}
impl Sums for Affine {
    const AFFINE: bool = true;
}
