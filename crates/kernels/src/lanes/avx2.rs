//! AVX2, FMA and F16C: a value is two registers.
#![allow(unsafe_code)] // intrinsics; callers promise the instructions

use std::arch::x86_64::*;

use super::operations::Lanes;

#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256, __m256);

/// Applies an intrinsic to both halves; all need only the instructions that the trait's callers promise.
macro_rules! op {
    ($name:ident($($arg:ident),*) = $body:expr) => {
        #[inline(always)]
        unsafe fn $name(self, $($arg: Avx2),*) -> Avx2 {
            // SAFETY: as the caller promises.
            unsafe { Avx2($body(self.0, $($arg.0),*), $body(self.1, $($arg.1),*)) }
        }
    };
}

impl Lanes for Avx2 {
    const SUMS: usize = 4;

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: as the caller promises.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> Avx2 {
        // SAFETY: as the caller promises.
        unsafe { Avx2(_mm256_set1_ps(x), _mm256_set1_ps(x)) }
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Avx2 {
        // SAFETY: as the caller promises.
        unsafe { Avx2(_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))) }
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Avx2 {
        // SAFETY: as the caller promises.
        let eight = |at: *const u16| unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) };
        Avx2(eight(at), eight(at.wrapping_add(8)))
    }

    #[inline(always)]
    unsafe fn splat_f16(at: *const u16) -> Avx2 {
        // SAFETY: as the caller promises.
        let eight = unsafe { _mm256_cvtph_ps(_mm_set1_epi16(at.read_unaligned() as i16)) };
        Avx2(eight, eight)
    }

    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> Avx2 {
        // SAFETY: as the caller promises.
        let eight = |at: *const u16| unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        };
        Avx2(eight(at), eight(at.wrapping_add(8)))
    }

    #[inline(always)]
    unsafe fn load_i8(at: *const i8) -> Avx2 {
        // SAFETY: as the caller promises.
        let eight = |at: *const i8| unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast()))) };
        Avx2(eight(at), eight(at.wrapping_add(8)))
    }

    #[inline(always)]
    unsafe fn store_f16(self, at: *mut u16) {
        // SAFETY: as the caller promises.
        unsafe {
            _mm_storeu_si128(at.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0));
            _mm_storeu_si128(at.add(8).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.1));
        }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: as the caller promises.
        unsafe {
            _mm256_storeu_ps(at, self.0);
            _mm256_storeu_ps(at.add(8), self.1);
        }
    }

    op!(add(other) = _mm256_add_ps);
    op!(sub(other) = _mm256_sub_ps);
    op!(mul(other) = _mm256_mul_ps);
    op!(div(other) = _mm256_div_ps);
    op!(fma(factor, term) = _mm256_fmadd_ps);
    op!(max(other) = _mm256_max_ps);
    op!(min(other) = _mm256_min_ps);

    #[inline(always)]
    unsafe fn zero_where_less(self, x: Avx2, limit: Avx2) -> Avx2 {
        // SAFETY: as the caller promises.
        let half = |y, x, limit| unsafe { _mm256_and_ps(y, _mm256_cmp_ps::<_CMP_NLT_UQ>(x, limit)) };
        Avx2(half(self.0, x.0, limit.0), half(self.1, x.1, limit.1))
    }

    #[inline(always)]
    unsafe fn power_of_magic(self) -> Avx2 {
        // SAFETY: as the caller promises.
        let half = |x| unsafe {
            let exponent = _mm256_add_epi32(_mm256_castps_si256(x), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
        };
        Avx2(half(self.0), half(self.1))
    }
}
