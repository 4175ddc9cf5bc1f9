//! Weights in blocks of 256: up to eight rows against one or two panels. More rows go to
//! [`crate::quant::avx512::superblock_many`].
#![allow(unsafe_code)] // intrinsics that load through pointers, in functions that need AVX-512

use std::arch::x86_64::*;
use std::ops::Range;

use super::load::{Five, Four, Load, Six};
use crate::isa::one_stream;
use crate::quant::avx512::superblock_header::{self, half, wide};
use crate::quant::avx512::superblock_many::{self, Scratch};
use crate::quant::avx512::superblock_rows::MOST;
use crate::quant::format::{Codes, GROUP, PANEL};
use crate::quant::job::Job;
use crate::quant::superblock::{GROUPS, OFFSET, header_bytes};

/// How many blocks ahead of the products memory is asked for weights.
const AHEAD: usize = 2;
/// How far ahead of one row's.
const ROW_AHEAD: usize = 3584;
/// Panels that share the rows' loads: a product that loads its own operand waits for the ports of loads.
const PAIR: usize = 2;
/// Up to this many rows, sums of two panels stay in registers whatever the format.
const NARROW: usize = 4;

/// Computes the outputs of `panels`.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(crate) fn panels(job: &Job, panels: Range<usize>, scratch: &mut Scratch) {
    if !job.layouts.lines.is_empty() {
        return superblock_many::panels(job, panels, scratch);
    }
    let pairs = match job.rows.count() {
        1 => !one_stream(),
        count => job.panels.format.codes == Codes::Four || count <= NARROW,
    };
    let mut index = panels.start;
    while pairs && index + PAIR <= panels.end {
        some::<PAIR>(job, index);
        index += PAIR;
    }
    for index in index..panels.end {
        some::<1>(job, index);
    }
}

/// `P` panels.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn some<const P: usize>(job: &Job, index: usize) {
    let weights = Weights { index, panels: std::array::from_fn(|p| job.panels.panel(index + p)) };
    match job.panels.format.codes {
        Codes::Four => rows::<Four, true, P>(job, &weights),
        Codes::Five => rows::<Five, true, P>(job, &weights),
        _ => rows::<Six, false, P>(job, &weights),
    }
}

struct Weights<'a, const P: usize> {
    /// The first panel's index.
    index: usize,
    panels: [&'a [u8]; P],
}

impl<const P: usize> Weights<'_, P> {
    /// What lies `at` bytes behind the panels' beginnings; behind their ends, the next panels.
    #[inline(always)]
    fn at(&self, at: usize) -> [*const u8; P] {
        let bytes = self.panels[0].len();
        let beyond = if at < bytes { 0 } else { (P - 1) * bytes };
        self.panels.map(|panel| panel.as_ptr().wrapping_add(at + beyond))
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn rows<L: Load, const AFFINE: bool, const P: usize>(job: &Job, weights: &Weights<P>) {
    match job.rows.count() {
        1 => block::<L, AFFINE, 1, P>(job, weights),
        2 => block::<L, AFFINE, 2, P>(job, weights),
        3 => block::<L, AFFINE, 3, P>(job, weights),
        4 => block::<L, AFFINE, 4, P>(job, weights),
        5 => block::<L, AFFINE, 5, P>(job, weights),
        6 => block::<L, AFFINE, 6, P>(job, weights),
        7 => block::<L, AFFINE, 7, P>(job, weights),
        _ => block::<L, AFFINE, MOST, P>(job, weights),
    }
}

/// All `R` rows. A row's sums of products stay in registers, others may leave them.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
#[allow(clippy::needless_range_loop)] // registers in arrays, indexed by constants once unrolled
fn block<L: Load, const AFFINE: bool, const R: usize, const P: usize>(job: &Job, weights: &Weights<P>) {
    let groups = job.panels.groups();
    let block_bytes = const { header_bytes(AFFINE) + GROUPS * L::BYTES };
    let pairs = pairs_per_block(AFFINE);
    let x = &job.rows.codes[..R * groups * GROUP];
    let scales = &job.rows.scales[..R * groups];
    let terms = &job.terms[..R * groups / GROUPS * pairs];
    // Stores are done in order: one that waits for memory would keep those of sums that leave the registers.
    for r in 0..R {
        for p in 0..P {
            _mm_prefetch::<_MM_HINT_ET0>(job.out.place(r, (weights.index + p) * PANEL).0.cast());
        }
    }
    for p in 0..P {
        assert!(weights.panels[p].len() == groups / GROUPS * block_bytes, "a panel's length");
    }

    // SAFETY: AVX-512 is enabled here. Every pointer stays within the slices above: `b` is below `groups / GROUPS`, `r` below
    // `R`, `p` below `P`, and the lengths were computed from, or compared with, them.
    unsafe {
        let mut y = [[_mm512_setzero_ps(); P]; R];
        for b in 0..groups / GROUPS {
            let block = Block {
                entries: std::array::from_fn(|p| weights.panels[p].as_ptr().add(b * block_bytes)),
                ahead: weights.at(b * block_bytes + if R == 1 && P == 1 { ROW_AHEAD } else { AHEAD * block_bytes }),
                x: x.as_ptr().add(b * GROUPS * GROUP),
                stride: groups * GROUP,
            };
            block.fetch::<AFFINE>();
            let (mut parts, mut products) = ([[_mm512_setzero_ps(); P]; R], [[_mm512_setzero_si512(); P]; R]);
            if AFFINE && exact::<L>() {
                parts = block.floats::<L, R>();
            } else {
                products = block.integers::<L, AFFINE, R>();
            }
            for p in 0..P {
                let entry = block.entries[p];
                let mut sums = [_mm512_setzero_si512(); R];
                for pair in 0..pairs {
                    let factors = superblock_header::pair::<AFFINE>(entry, pair);
                    for r in 0..R {
                        let term = *terms.as_ptr().add((r * groups / GROUPS + b) * pairs + pair);
                        sums[r] = _mm512_dpwssd_epi32(sums[r], factors, _mm512_set1_epi32(term));
                    }
                }
                let (d, dmin) = (half(entry), if AFFINE { half(entry.add(2 * PANEL)) } else { _mm512_setzero_ps() });
                for r in 0..R {
                    let part = if AFFINE {
                        let part = if exact::<L>() { parts[r][p] } else { _mm512_cvtepi32_ps(products[r][p]) };
                        _mm512_fnmadd_ps(_mm512_cvtepi32_ps(sums[r]), dmin, _mm512_mul_ps(part, d))
                    } else {
                        let offset = _mm512_slli_epi32::<{ OFFSET.ilog2() }>(sums[r]);
                        _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(products[r][p], offset)), d)
                    };
                    let scale = _mm512_set1_ps(*scales.as_ptr().add(r * groups + b * GROUPS));
                    y[r][p] = _mm512_fmadd_ps(part, scale, y[r][p]);
                }
            }
        }
        for (r, y) in y.iter().enumerate() {
            for (p, y) in y.iter().enumerate() {
                let (place, count) = job.out.place(r, (weights.index + p) * PANEL);
                _mm512_mask_storeu_ps(place, 0xffff >> (PANEL - count.min(PANEL)), *y);
            }
        }
    }
}

/// A block's codes, and what meets them.
struct Block<const P: usize> {
    /// The headers' entries, which the codes follow.
    entries: [*const u8; P],
    /// From where on memory is asked for as much as a block has while this one is multiplied.
    ahead: [*const u8; P],
    /// Codes of the first row, and bytes to the next row's.
    x: *const i8,
    stride: usize,
}

impl<const P: usize> Block<P> {
    /// Asks memory for as much of that as a header has; each group asks for the rest.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn fetch<const AFFINE: bool>(&self) {
        for ahead in self.ahead {
            for line in 0..header_bytes(AFFINE) / 64 {
                _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(64 * line).cast());
            }
        }
    }

    /// The sum of products with the weights' scales, for `R` rows.
    ///
    /// # Safety
    /// The pointers are those of a block, and there are as many rows.
    #[inline]
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
    #[allow(clippy::needless_range_loop)] // as above
    unsafe fn integers<L: Load, const AFFINE: bool, const R: usize>(&self) -> [[__m512i; P]; R] {
        let mut products = [[_mm512_setzero_si512(); P]; R];
        for g in 0..GROUPS {
            // SAFETY: as the caller promises; scales are rows of 16 bytes within the entry.
            unsafe {
                let (first, second) = self.dots::<L, AFFINE, R>(g);
                for p in 0..P {
                    let scale = |row: usize| wide::<AFFINE>(self.entries[p].add(row * PANEL));
                    if AFFINE {
                        let scale = scale(4 + 2 * g);
                        for r in 0..R {
                            let product = _mm512_mullo_epi32(first[r][p], scale);
                            products[r][p] = _mm512_add_epi32(products[r][p], product);
                        }
                    } else {
                        let (low, high) = (scale(2 + 2 * g), scale(3 + 2 * g));
                        for r in 0..R {
                            let (low, high) =
                                (_mm512_mullo_epi32(first[r][p], low), _mm512_mullo_epi32(second[r][p], high));
                            products[r][p] = _mm512_add_epi32(_mm512_add_epi32(products[r][p], low), high);
                        }
                    }
                }
            }
        }
        products
    }

    /// The sum of products as in [`Block::integers`], rounded to `f32`, where [`exact`] allows it: halves of the sum fit the 24 bits of floats, which are added
    /// without rounding, and faster.
    ///
    /// # Safety
    /// As for [`Block::integers`].
    #[inline]
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
    #[allow(clippy::needless_range_loop)] // as above
    unsafe fn floats<L: Load, const R: usize>(&self) -> [[__m512; P]; R] {
        let mut whole = [[_mm512_setzero_ps(); P]; R];
        for part in 0..2 {
            let mut products = [[_mm512_setzero_ps(); P]; R];
            for g in part * GROUPS / 2..(part + 1) * GROUPS / 2 {
                // SAFETY: as the caller promises; scales are rows of 16 bytes within the entry.
                unsafe {
                    let (first, _) = self.dots::<L, true, R>(g);
                    for p in 0..P {
                        let scale = _mm512_cvtepi32_ps(wide::<true>(self.entries[p].add((4 + 2 * g) * PANEL)));
                        for r in 0..R {
                            products[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(first[r][p]), scale, products[r][p]);
                        }
                    }
                }
            }
            for r in 0..R {
                for p in 0..P {
                    whole[r][p] = _mm512_add_ps(whole[r][p], products[r][p]);
                }
            }
        }
        whole
    }

    /// Dot products of group `g`: of all inputs where `AFFINE`, else of the first and the second 16.
    ///
    /// # Safety
    /// As for [`Block::integers`]; `g` is below `GROUPS`.
    #[inline]
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
    #[allow(clippy::needless_range_loop)] // as above
    unsafe fn dots<L: Load, const AFFINE: bool, const R: usize>(
        &self,
        g: usize,
    ) -> ([[__m512i; P]; R], [[__m512i; P]; R]) {
        let at = header_bytes(AFFINE) + g * L::BYTES;
        for ahead in self.ahead {
            for line in 0..L::BYTES / 64 {
                _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(at + 64 * line).cast());
            }
        }
        let mut first = [[_mm512_setzero_si512(); P]; R];
        let mut second = first;
        for j in 0..4 {
            // SAFETY: as the caller promises.
            unsafe {
                let mut w = [(_mm512_setzero_si512(), _mm512_setzero_si512()); P];
                for p in 0..P {
                    w[p] = L::quads(self.entries[p].add(at), j);
                }
                for r in 0..R {
                    let x = self.x.add(r * self.stride + g * GROUP).cast::<i32>();
                    let low = _mm512_set1_epi32(x.add(j).read_unaligned());
                    for p in 0..P {
                        first[r][p] = _mm512_dpbusd_epi32(first[r][p], w[p].0, low);
                    }
                }
                for r in 0..R {
                    let x = self.x.add(r * self.stride + g * GROUP).cast::<i32>();
                    let high = _mm512_set1_epi32(x.add(4 + j).read_unaligned());
                    for p in 0..P {
                        let sum = if AFFINE { &mut first[r][p] } else { &mut second[r][p] };
                        *sum = _mm512_dpbusd_epi32(*sum, w[p].1, high);
                    }
                }
            }
        }
        (first, second)
    }
}

/// Whether half a block's products with scales of six bits have at most 24.
const fn exact<L: Load>() -> bool {
    const MOST: usize = GROUPS / 2 * GROUP * 127 * 63;
    MOST * L::LARGEST < 1 << f32::MANTISSA_DIGITS
}

/// How many pairs of the rows' sums go with a block: of two groups, or of a group's halves.
const fn pairs_per_block(affine: bool) -> usize {
    if affine { GROUPS / 2 } else { GROUPS }
}
