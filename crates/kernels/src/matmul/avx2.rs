//! AVX2: the sixteen lanes of an output are two registers.
#![allow(unsafe_code)] // intrinsics that load through pointers, in functions that need AVX2

use std::arch::x86_64::*;
use std::ops::Range;

use super::job::{Job, Numbers};
use super::scalar::LANES;

/// Rows and weight rows of a tile: 12 of 16 registers hold sums.
const ROWS: usize = 3;
const COLUMNS: usize = 2;

/// The outputs `columns` of all rows.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn block(job: &Job, columns: Range<usize>) {
    match job.numbers {
        Numbers::F32 => rows::<F32>(job, columns),
        Numbers::F16 => rows::<F16>(job, columns),
        Numbers::Bf16 => rows::<Bf16>(job, columns),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn rows<L: Load>(job: &Job, columns: Range<usize>) {
    let mut row = 0;
    while row < job.rows {
        let count = (job.rows - row).min(ROWS);
        match count {
            1 => along::<L, 1>(job, row, columns.clone()),
            2 => along::<L, 2>(job, row, columns.clone()),
            _ => along::<L, ROWS>(job, row, columns.clone()),
        }
        row += count;
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn along<L: Load, const R: usize>(job: &Job, row: usize, columns: Range<usize>) {
    let mut column = columns.start;
    while column + COLUMNS <= columns.end {
        tile::<L, R, COLUMNS>(job, row, column);
        column += COLUMNS;
    }
    for column in column..columns.end {
        tile::<L, R, 1>(job, row, column);
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
#[allow(clippy::needless_range_loop)] // registers in arrays, indexed by constants once unrolled
fn tile<L: Load, const R: usize, const C: usize>(job: &Job, row: usize, column: usize) {
    let inputs = job.inputs;
    let whole = inputs - inputs % LANES;
    let x = &job.x[row * inputs..(row + R) * inputs];
    let w = &job.weight[column * inputs * L::BYTES..(column + C) * inputs * L::BYTES];
    let mut sums = [[[_mm256_setzero_ps(); 2]; C]; R];
    // SAFETY: AVX2 is enabled here. `x` has `R` rows and `w` has `C`, each of `inputs` numbers; `k` leaves sixteen of them.
    // Prefetches may point anywhere.
    unsafe {
        for k in (0..whole).step_by(LANES) {
            let mut weights = [[_mm256_setzero_ps(); 2]; C];
            for c in 0..C {
                let at = w.as_ptr().add((c * inputs + k) * L::BYTES);
                weights[c] = L::sixteen(at);
                // The rows after these.
                _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(w.len()).cast());
            }
            for r in 0..R {
                add(&mut sums[r], &weights, x.as_ptr().add(r * inputs + k));
            }
        }
    }
    if whole < inputs {
        // Zeros leave sums as they are: none is -0.
        let mut weights = [[_mm256_setzero_ps(); 2]; C];
        for c in 0..C {
            let mut padded = [0; LANES * 4];
            let rest = &w[(c * inputs + whole) * L::BYTES..(c + 1) * inputs * L::BYTES];
            padded[..rest.len()].copy_from_slice(rest);
            // SAFETY: room for sixteen numbers of up to four bytes.
            weights[c] = unsafe { L::sixteen(padded.as_ptr()) };
        }
        for r in 0..R {
            let mut padded = [0.0; LANES];
            padded[..inputs - whole].copy_from_slice(&x[r * inputs + whole..(r + 1) * inputs]);
            // SAFETY: sixteen numbers.
            unsafe { add(&mut sums[r], &weights, padded.as_ptr()) };
        }
    }
    for r in 0..R {
        for c in 0..C {
            job.out.set(row + r, column + c, tree(sums[r][c]));
        }
    }
}

/// # Safety
/// `x` points at sixteen numbers.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn add<const C: usize>(sums: &mut [[__m256; 2]; C], weights: &[[__m256; 2]; C], x: *const f32) {
    // SAFETY: as the caller promises.
    let x = unsafe { [_mm256_loadu_ps(x), _mm256_loadu_ps(x.add(8))] };
    for (sums, weights) in sums.iter_mut().zip(weights) {
        for h in 0..2 {
            sums[h] = _mm256_fmadd_ps(x[h], weights[h], sums[h]);
        }
    }
}

/// Halves onto each other until one is left.
#[inline]
#[target_feature(enable = "avx2")]
fn tree(lanes: [__m256; 2]) -> f32 {
    let eight = _mm256_add_ps(lanes[0], lanes[1]);
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

/// How numbers are read.
trait Load {
    const BYTES: usize;

    /// # Safety
    /// AVX2 and F16C are there, `at` points at sixteen numbers.
    unsafe fn sixteen(at: *const u8) -> [__m256; 2];
}
struct F32;
struct F16;
struct Bf16;

impl Load for F32 {
    const BYTES: usize = 4;

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn sixteen(at: *const u8) -> [__m256; 2] {
        // SAFETY: as the caller promises.
        unsafe { [_mm256_loadu_ps(at.cast()), _mm256_loadu_ps(at.add(32).cast())] }
    }
}

impl Load for F16 {
    const BYTES: usize = 2;

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn sixteen(at: *const u8) -> [__m256; 2] {
        // SAFETY: as the caller promises.
        let (low, high) = unsafe { (_mm_loadu_si128(at.cast()), _mm_loadu_si128(at.add(16).cast())) };
        [_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)]
    }
}

impl Load for Bf16 {
    const BYTES: usize = 2;

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn sixteen(at: *const u8) -> [__m256; 2] {
        // SAFETY: as the caller promises.
        let (low, high) = unsafe { (_mm_loadu_si128(at.cast()), _mm_loadu_si128(at.add(16).cast())) };
        [widened(low), widened(high)]
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn widened(numbers: __m128i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(numbers)))
}
