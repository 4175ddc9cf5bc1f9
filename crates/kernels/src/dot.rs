//! The one order in which attention and norms add products.
//!
//! A float sum depends on its order, so "batched equals solo" needs a single order for every dot product: [`LANES`]
//! partial sums, lane `j` taking the terms `k ≡ j (mod LANES)` from left to right, each product rounded before it is added,
//! then a fixed tree over the lanes. Sixteen lanes fill one AVX-512 register, two AVX ones or four NEON ones, so every
//! instruction set can keep this order at full width. The compiler leaves a loop over the lanes scalar, hence intrinsics.
#![allow(unsafe_code)] // calls into code compiled for instructions that `Isa` has found

use crate::isa::Isa;

/// Partial sums per output.
pub const LANES: usize = 16;

/// One dot product in the order of this module.
///
/// # Panics
/// When the rows have different lengths.
#[inline]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    dot_on(Isa::current(), a, b)
}

/// `isa` is one that this machine has.
fn dot_on(isa: Isa, a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "rows of different lengths");
    let ((whole_a, rest_a), (whole_b, rest_b)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = match isa {
        // SAFETY: callers pass what `Isa` has found on this processor.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Amx => unsafe { x86::lanes_avx512(whole_a, whole_b) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::AvxVnni => unsafe { x86::lanes_avx2(whole_a, whole_b) },
        _ => lanes(whole_a, whole_b),
    };
    for (lane, (a, b)) in lanes.iter_mut().zip(rest_a.iter().zip(rest_b)) {
        *lane += a * b;
    }
    sum_lanes(lanes)
}

/// The definition of the lanes.
fn lanes(a: &[[f32; LANES]], b: &[[f32; LANES]]) -> [f32; LANES] {
    let mut lanes = [0.0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for j in 0..LANES {
            lanes[j] += a[j] * b[j];
        }
    }
    lanes
}

/// The fixed tree: halves onto each other until one is left.
#[inline(always)]
pub(super) fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for j in 0..half {
            lanes[j] += lanes[j + half];
        }
        half /= 2;
    }
    lanes[0]
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::LANES;

    #[target_feature(enable = "avx512f")]
    pub(super) fn lanes_avx512(a: &[[f32; LANES]], b: &[[f32; LANES]]) -> [f32; LANES] {
        let mut sums = _mm512_setzero_ps();
        for (a, b) in a.iter().zip(b) {
            // SAFETY: sixteen numbers each, as the types say.
            let (a, b) = unsafe { (_mm512_loadu_ps(a.as_ptr()), _mm512_loadu_ps(b.as_ptr())) };
            sums = _mm512_add_ps(sums, _mm512_mul_ps(a, b));
        }
        let mut lanes = [0.0; LANES];
        // SAFETY: room for sixteen numbers.
        unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), sums) };
        lanes
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn lanes_avx2(a: &[[f32; LANES]], b: &[[f32; LANES]]) -> [f32; LANES] {
        let mut sums = [_mm256_setzero_ps(); 2];
        for (a, b) in a.iter().zip(b) {
            for (h, sum) in sums.iter_mut().enumerate() {
                // SAFETY: eight of sixteen numbers each, as the types say.
                let (a, b) = unsafe { (_mm256_loadu_ps(a[8 * h..].as_ptr()), _mm256_loadu_ps(b[8 * h..].as_ptr())) };
                *sum = _mm256_add_ps(*sum, _mm256_mul_ps(a, b));
            }
        }
        let mut lanes = [0.0; LANES];
        // SAFETY: room for two times eight numbers.
        unsafe {
            _mm256_storeu_ps(lanes.as_mut_ptr(), sums[0]);
            _mm256_storeu_ps(lanes[8..].as_mut_ptr(), sums[1]);
        }
        lanes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of the module's first paragraph, written as naively as it reads.
    fn by_definition(a: &[f32], b: &[f32]) -> f32 {
        let mut lanes = [0.0f32; LANES];
        for k in 0..a.len() {
            lanes[k % LANES] += a[k] * b[k];
        }
        for half in [8, 4, 2, 1] {
            for j in 0..half {
                lanes[j] += lanes[j + half];
            }
        }
        lanes[0]
    }

    #[test]
    fn every_path_keeps_the_defined_order() {
        for len in [0, 1, 15, 16, 17, 63, 64, 128, 200] {
            let row = |seed: usize| -> Vec<f32> {
                (0..len).map(|i| ((i * 7919 + seed * 104_729) % 1009) as f32 / 1009.0 - 0.4).collect()
            };
            let (a, b) = (row(1), row(2));
            let expected = by_definition(&a, &b);
            assert_eq!(dot(&a, &b).to_bits(), expected.to_bits());
            for isa in Isa::available() {
                assert_eq!(dot_on(isa, &a, &b).to_bits(), expected.to_bits(), "{isa:?}, length {len}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "rows of different lengths")]
    fn rows_of_different_lengths_are_refused() {
        dot(&[1.0; 16], &[1.0; 17]);
    }
}
