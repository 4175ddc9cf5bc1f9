//! AVX-512 with VNNI: `vpdpbusd` adds four products of an unsigned and a signed byte to each of 16 sums, exactly.
//!
//! A block is up to `R` rows of `x` against `P` panels; its sums stay in registers over all groups. Weights are read in
//! one of two forms: as they lie in the panel, which costs the unpacking once per block and reads the fewest bytes (few
//! rows), or as bytes that were unpacked once for all blocks (many rows).
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code)] // intrinsics that load through pointers, in functions that need AVX-512

use std::arch::x86_64::*;
use std::ops::Range;

use super::expand::{self, GroupScales};
use super::format::{Codes, GROUP, GROUP_CODES, Scheme};
use super::job::{Job, Scratch, blocks};

/// Up to this many rows the weights are unpacked inside the block.
const FEW_ROWS: usize = 8;

/// Computes the outputs of `panels`.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn panels(job: &Job, panels: Range<usize>, scratch: &mut Scratch) {
    if job.rows.count() <= FEW_ROWS {
        for index in panels {
            few_rows(job, index, scratch);
        }
    } else {
        let mut index = panels.start;
        while index + 2 <= panels.end {
            many_rows::<2>(job, index, scratch);
            index += 2;
        }
        if index < panels.end {
            many_rows::<1>(job, index, scratch);
        }
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn few_rows(job: &Job, index: usize, scratch: &mut Scratch) {
    let format = job.panels.format;
    let (header, codes) = job.panels.panel(index);
    let groups = job.panels.groups();
    expand::scales(format, header, &mut scratch.scales[..groups]);
    let weights = Weights::<1> { index, codes: [codes], scales: [&scratch.scales[..groups]] };
    match (format.codes, format.scheme) {
        (Codes::Four, Scheme::Symmetric { .. }) => rows::<Four, Symmetric, 1>(job, &weights),
        (Codes::Four, _) => rows::<Four, Affine, 1>(job, &weights),
        (Codes::Five, Scheme::Symmetric { .. }) => rows::<Five, Symmetric, 1>(job, &weights),
        (Codes::Five, _) => rows::<Five, Affine, 1>(job, &weights),
        (Codes::Six, _) => rows::<Six, Halves, 1>(job, &weights),
        (Codes::Eight, _) => rows::<Eight, Symmetric, 1>(job, &weights),
    }
}

/// `P` panels, unpacked first.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn many_rows<const P: usize>(job: &Job, index: usize, scratch: &mut Scratch) {
    let format = job.panels.format;
    let groups = job.panels.groups();
    for p in 0..P {
        let (header, codes) = job.panels.panel(index + p);
        expand::scales(format, header, &mut scratch.scales[p * groups..][..groups]);
        let groups = codes.chunks_exact(format.codes.bytes()).zip(&mut scratch.codes[p * groups..][..groups]);
        for (group, wide) in groups {
            expand::codes(format.codes, group, &mut wide.0);
        }
    }
    let mut weights = Weights::<P> { index, codes: [&[]; P], scales: [&[]; P] };
    for p in 0..P {
        weights.codes[p] = bytemuck::cast_slice(&scratch.codes[p * groups..][..groups]);
        weights.scales[p] = &scratch.scales[p * groups..][..groups];
    }
    match format.scheme {
        Scheme::Symmetric { .. } => rows::<Eight, Symmetric, P>(job, &weights),
        Scheme::Affine => rows::<Eight, Affine, P>(job, &weights),
        Scheme::Halves { .. } => rows::<Eight, Halves, P>(job, &weights),
    }
}

/// `P` neighbouring panels from `index` on.
struct Weights<'a, const P: usize> {
    index: usize,
    codes: [&'a [u8]; P],
    scales: [&'a [GroupScales]; P],
}

/// All rows, cut into blocks.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn rows<L: Load, S: Sums, const P: usize>(job: &Job, weights: &Weights<P>) {
    // Sums in registers: one of integers and one of floats per row and panel, two of integers for halves.
    let most = if P == 1 {
        8
    } else if S::HALVES {
        4
    } else {
        6
    };
    for range in blocks(job.rows.count(), most) {
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
    let terms_per_group = if S::HALVES { 2 } else { 1 };
    let range = start * groups..(start + R) * groups;
    let x = &job.rows.codes[range.start * GROUP..range.end * GROUP];
    let scales = &job.rows.scales[range.clone()];
    let terms = &job.terms[range.start * terms_per_group..range.end * terms_per_group];
    for p in 0..P {
        assert!(weights.codes[p].len() == groups * L::BYTES && weights.scales[p].len() == groups, "a panel's length");
    }

    // SAFETY: AVX-512 is enabled here. Every pointer stays within the slices above: `g` is below `groups`, `r` below `R`,
    // and the lengths were computed from, or compared with, both.
    unsafe {
        let mut y = [[_mm512_setzero_ps(); P]; R];
        for g in 0..groups {
            let mut first = [[_mm512_setzero_si512(); P]; R];
            let mut second = first;
            if !S::AFFINE {
                for r in 0..R {
                    let term = terms.as_ptr().add((r * groups + g) * terms_per_group);
                    first[r] = [_mm512_set1_epi32(*term); P];
                    if S::HALVES {
                        second[r] = [_mm512_set1_epi32(*term.add(1)); P];
                    }
                }
            }
            for j in 0..4 {
                let mut w = [(_mm512_setzero_si512(), _mm512_setzero_si512()); P];
                for p in 0..P {
                    w[p] = L::quads(weights.codes[p].as_ptr().add(g * L::BYTES), j);
                }
                for r in 0..R {
                    let x = x.as_ptr().add((r * groups + g) * GROUP).cast::<i32>();
                    let (low, high) = (x.add(j).read_unaligned(), x.add(4 + j).read_unaligned());
                    let (low, high) = (_mm512_set1_epi32(low), _mm512_set1_epi32(high));
                    for p in 0..P {
                        first[r][p] = _mm512_dpbusd_epi32(first[r][p], w[p].0, low);
                        let sum = if S::HALVES { &mut second[r][p] } else { &mut first[r][p] };
                        *sum = _mm512_dpbusd_epi32(*sum, w[p].1, high);
                    }
                }
            }
            for p in 0..P {
                let w = &*weights.scales[p].as_ptr().add(g);
                let (scale, other) = (_mm512_load_ps(w.scale.as_ptr()), _mm512_load_ps(w.second.as_ptr()));
                for r in 0..R {
                    let mut part = _mm512_mul_ps(_mm512_cvtepi32_ps(first[r][p]), scale);
                    if S::HALVES {
                        part = _mm512_fmadd_ps(_mm512_cvtepi32_ps(second[r][p]), other, part);
                    } else if S::AFFINE {
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
                let (place, count) = job.out.place(start + r, weights.index + p);
                _mm512_mask_storeu_ps(place, 0xffff >> (16 - count), y[r][p]);
            }
        }
    }
}

/// How a scheme adds up one group.
trait Sums {
    const HALVES: bool = false;
    const AFFINE: bool = false;
}
struct Symmetric;
struct Affine;
struct Halves;
impl Sums for Symmetric {}
impl Sums for Affine {
    const AFFINE: bool = true;
}
impl Sums for Halves {
    const HALVES: bool = true;
}

/// How codes are read.
trait Load {
    /// Of one group.
    const BYTES: usize;

    /// Codes of inputs `4·j..` and `16 + 4·j..`, four of each of the 16 outputs, as bytes.
    ///
    /// # Safety
    /// AVX-512 F and BW are there, `group` points at `BYTES` readable bytes, `j` is below 4.
    unsafe fn quads(group: *const u8, j: usize) -> (__m512i, __m512i);
}
struct Four;
struct Five;
struct Six;
struct Eight;

impl Load for Four {
    const BYTES: usize = Codes::Four.bytes();

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn quads(group: *const u8, j: usize) -> (__m512i, __m512i) {
        let low = _mm512_set1_epi8(15);
        // SAFETY: bytes 64·j to 64·j + 64 are within the 256 that the caller promises.
        let both = unsafe { _mm512_loadu_si512(group.add(64 * j).cast()) };
        (_mm512_and_si512(both, low), _mm512_and_si512(_mm512_srli_epi16::<4>(both), low))
    }
}

impl Load for Five {
    const BYTES: usize = Codes::Five.bytes();

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn quads(group: *const u8, j: usize) -> (__m512i, __m512i) {
        // SAFETY: the fifth bits are bytes 256 to 320 of those that the caller promises.
        let (low, high, fifth) = unsafe {
            let (low, high) = Four::quads(group, j);
            (low, high, _mm512_loadu_si512(group.add(GROUP_CODES / 2).cast()))
        };
        // Bit j of each byte belongs to `low`, bit j + 4 to `high`; both go to bit 4. Shifts of 16 bits carry bits over
        // from the neighbouring byte, none of which the mask keeps.
        let below = _mm512_sll_epi16(fifth, _mm_cvtsi32_si128(4 - j as i32));
        let above = _mm512_srl_epi16(fifth, _mm_cvtsi32_si128(j as i32));
        (or_masked(low, below, 16), or_masked(high, above, 16))
    }
}

impl Load for Six {
    const BYTES: usize = Codes::Six.bytes();

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn quads(group: *const u8, j: usize) -> (__m512i, __m512i) {
        // SAFETY: the high bits are bytes 256 to 384 of those that the caller promises.
        let (low, high, below, above) = unsafe {
            let (low, high) = Four::quads(group, j);
            let bits = group.add(GROUP_CODES / 2);
            (low, high, _mm512_loadu_si512(bits.cast()), _mm512_loadu_si512(bits.add(64).cast()))
        };
        // Bits 2·j and 2·j + 1 go to bits 4 and 5.
        let shift = |bits| match j {
            0 => _mm512_slli_epi16::<4>(bits),
            1 => _mm512_slli_epi16::<2>(bits),
            2 => bits,
            _ => _mm512_srli_epi16::<2>(bits),
        };
        (or_masked(low, shift(below), 48), or_masked(high, shift(above), 48))
    }
}

impl Load for Eight {
    const BYTES: usize = Codes::Eight.bytes();

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn quads(group: *const u8, j: usize) -> (__m512i, __m512i) {
        // SAFETY: within the 512 bytes that the caller promises.
        unsafe {
            let group = group.add(64 * j);
            (_mm512_loadu_si512(group.cast()), _mm512_loadu_si512(group.add(GROUP_CODES / 2).cast()))
        }
    }
}

/// `a | (b & mask)`, the mask for each byte.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn or_masked(a: __m512i, b: __m512i, mask: i8) -> __m512i {
    _mm512_ternarylogic_epi32::<0b1111_1000>(a, b, _mm512_set1_epi8(mask))
}
