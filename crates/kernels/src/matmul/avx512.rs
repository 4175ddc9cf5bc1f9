//! AVX-512: the sixteen lanes of an output are one register.
#![allow(unsafe_code)] // intrinsics that load through pointers, in functions that need AVX-512

use std::arch::x86_64::*;
use std::ops::Range;

use super::job::{Job, Numbers};
use super::scalar::LANES;

/// Rows and weight rows of a tile: 24 sums in registers.
const ROWS: usize = 8;
const COLUMNS: usize = 3;
/// Weight rows beside a single row, which is bound by memory: as many streams.
const SINGLE: usize = 4;
/// Inputs of a piece, a multiple of the lanes: of eight rows 32 KiB.
const PIECE: usize = 1024;
/// Columns whose sums are kept from one piece to the next.
const WIDEST: usize = 24;

/// The outputs `columns` of all rows.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl")]
pub(super) fn block(job: &Job, columns: Range<usize>) {
    match job.numbers {
        Numbers::F32 => rows::<F32>(job, columns),
        Numbers::F16 => rows::<F16>(job, columns),
        Numbers::Bf16 => rows::<Bf16>(job, columns),
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl")]
fn rows<L: Load>(job: &Job, columns: Range<usize>) {
    let mut row = 0;
    while row < job.rows {
        let count = (job.rows - row).min(ROWS);
        match count {
            1 => along::<L, 1, SINGLE>(job, row, columns.clone()),
            2 => along::<L, 2, COLUMNS>(job, row, columns.clone()),
            3 => along::<L, 3, COLUMNS>(job, row, columns.clone()),
            4 => along::<L, 4, COLUMNS>(job, row, columns.clone()),
            5 => along::<L, 5, COLUMNS>(job, row, columns.clone()),
            6 => along::<L, 6, COLUMNS>(job, row, columns.clone()),
            7 => along::<L, 7, COLUMNS>(job, row, columns.clone()),
            _ => along::<L, ROWS, COLUMNS>(job, row, columns.clone()),
        }
        row += count;
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl")]
fn along<L: Load, const R: usize, const C: usize>(job: &Job, row: usize, columns: Range<usize>) {
    if job.inputs > PIECE && R > 1 {
        return in_pieces::<L, R>(job, row, columns);
    }
    let mut column = columns.start;
    while column + C <= columns.end {
        let mut sums = [[_mm512_setzero_ps(); R]; C];
        tile::<L, R, C>(job, row, column, 0..job.inputs, &mut sums);
        write(job, row, column, &sums);
        column += C;
    }
    for column in column..columns.end {
        let mut sums = [[_mm512_setzero_ps(); R]];
        tile::<L, R, 1>(job, row, column, 0..job.inputs, &mut sums);
        write(job, row, column, &sums);
    }
}

/// The inputs piece by piece, so that the rows' pieces stay in the first cache while all columns pass by.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl")]
fn in_pieces<L: Load, const R: usize>(job: &Job, row: usize, columns: Range<usize>) {
    for columns in columns.clone().step_by(WIDEST).map(|start| start..columns.end.min(start + WIDEST)) {
        let mut sums = [[_mm512_setzero_ps(); R]; WIDEST];
        for start in (0..job.inputs).step_by(PIECE) {
            let piece = start..job.inputs.min(start + PIECE);
            let (whole, rest) = sums[..columns.len()].as_chunks_mut::<COLUMNS>();
            for (index, sums) in whole.iter_mut().enumerate() {
                tile::<L, R, COLUMNS>(job, row, columns.start + index * COLUMNS, piece.clone(), sums);
            }
            for (column, sums) in (columns.end - rest.len()..).zip(rest) {
                tile::<L, R, 1>(job, row, column, piece.clone(), std::array::from_mut(sums));
            }
        }
        write(job, row, columns.start, &sums[..columns.len()]);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl")]
fn write<const R: usize>(job: &Job, row: usize, column: usize, sums: &[[__m512; R]]) {
    for (column, sums) in (column..).zip(sums) {
        for (r, sum) in sums.iter().enumerate() {
            job.out.set(row + r, column, tree(*sum));
        }
    }
}

/// Adds the products of a piece of the inputs.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl")]
#[allow(clippy::needless_range_loop)] // registers in arrays, indexed by constants once unrolled
fn tile<L: Load, const R: usize, const C: usize>(
    job: &Job,
    row: usize,
    column: usize,
    piece: Range<usize>,
    out: &mut [[__m512; R]; C],
) {
    let inputs = job.inputs;
    let x = &job.x[row * inputs..(row + R) * inputs];
    let w = &job.weight[column * inputs * L::BYTES..(column + C) * inputs * L::BYTES];
    assert!(piece.start <= piece.end && piece.end <= inputs, "a piece of the inputs");
    let mut sums = *out;
    // SAFETY: AVX-512 is enabled here. `x` has `R` rows and `w` has `C`, each of `inputs` numbers; `k` stays below, and the
    // mask leaves those that are there. Prefetches may point anywhere.
    unsafe {
        let whole = piece.start + piece.len() / LANES * LANES;
        for k in (piece.start..whole).step_by(LANES) {
            let mut weights = [_mm512_setzero_ps(); C];
            for c in 0..C {
                let at = w.as_ptr().add((c * inputs + k) * L::BYTES);
                weights[c] = L::sixteen(at);
                // The rows after these.
                _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(w.len()).cast());
            }
            for r in 0..R {
                let x = _mm512_loadu_ps(x.as_ptr().add(r * inputs + k));
                for c in 0..C {
                    sums[c][r] = _mm512_fmadd_ps(x, weights[c], sums[c][r]);
                }
            }
        }
        if whole < piece.end {
            let mask = (1 << (piece.end - whole)) - 1;
            for c in 0..C {
                let weights = L::some(w.as_ptr().add((c * inputs + whole) * L::BYTES), mask);
                for r in 0..R {
                    let x = _mm512_maskz_loadu_ps(mask, x.as_ptr().add(r * inputs + whole));
                    sums[c][r] = _mm512_fmadd_ps(x, weights, sums[c][r]);
                }
            }
        }
    }
    *out = sums;
}

/// Halves onto each other until one is left.
#[inline]
#[target_feature(enable = "avx512f")]
fn tree(lanes: __m512) -> f32 {
    let upper = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(lanes)));
    let eight = _mm256_add_ps(_mm512_castps512_ps256(lanes), upper);
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

/// How numbers are read.
trait Load {
    const BYTES: usize;

    /// # Safety
    /// AVX-512 F, BW and VL are there, `at` points at sixteen numbers.
    unsafe fn sixteen(at: *const u8) -> __m512;

    /// The numbers of the mask; zeros elsewhere.
    ///
    /// # Safety
    /// As above, for the numbers of the mask.
    unsafe fn some(at: *const u8, mask: u16) -> __m512;
}
struct F32;
struct F16;
struct Bf16;

impl Load for F32 {
    const BYTES: usize = 4;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn sixteen(at: *const u8) -> __m512 {
        // SAFETY: as the caller promises.
        unsafe { _mm512_loadu_ps(at.cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn some(at: *const u8, mask: u16) -> __m512 {
        // SAFETY: as the caller promises.
        unsafe { _mm512_maskz_loadu_ps(mask, at.cast()) }
    }
}

impl Load for F16 {
    const BYTES: usize = 2;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn sixteen(at: *const u8) -> __m512 {
        // SAFETY: as the caller promises.
        _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(at.cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn some(at: *const u8, mask: u16) -> __m512 {
        // SAFETY: as the caller promises.
        _mm512_cvtph_ps(unsafe { _mm256_maskz_loadu_epi16(mask, at.cast()) })
    }
}

impl Load for Bf16 {
    const BYTES: usize = 2;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn sixteen(at: *const u8) -> __m512 {
        // SAFETY: as the caller promises.
        widened(unsafe { _mm256_loadu_si256(at.cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn some(at: *const u8, mask: u16) -> __m512 {
        // SAFETY: as the caller promises.
        widened(unsafe { _mm256_maskz_loadu_epi16(mask, at.cast()) })
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn widened(numbers: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(numbers)))
}
