//! AVX-512: a value is one register.
#![allow(unsafe_code)] // intrinsics; callers promise the instructions

use std::arch::x86_64::*;

use super::operations::Lanes;

#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

/// Wraps intrinsics, all of which need only the instructions that the trait's callers promise.
macro_rules! op {
    ($name:ident($($arg:ident),*) = $body:expr) => {
        #[inline(always)]
        unsafe fn $name(self, $($arg: Avx512),*) -> Avx512 {
            // SAFETY: as the caller promises.
            Avx512(unsafe { $body(self.0, $($arg.0),*) })
        }
    };
}

impl Lanes for Avx512 {
    const SUMS: usize = 16;

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: as the caller promises.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> Avx512 {
        // SAFETY: as the caller promises.
        Avx512(unsafe { _mm512_set1_ps(x) })
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Avx512 {
        // SAFETY: as the caller promises.
        Avx512(unsafe { _mm512_loadu_ps(at) })
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Avx512 {
        // SAFETY: as the caller promises.
        Avx512(unsafe { _mm512_cvt_roundph_ps::<_MM_FROUND_CUR_DIRECTION>(_mm256_loadu_si256(at.cast())) })
    }

    #[inline(always)]
    unsafe fn splat_f16(at: *const u16) -> Avx512 {
        // SAFETY: as the caller promises.
        Avx512(unsafe { _mm512_cvtph_ps(_mm256_set1_epi16(at.read_unaligned() as i16)) })
    }

    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> Avx512 {
        // SAFETY: as the caller promises.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
            Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
        }
    }

    #[inline(always)]
    unsafe fn load_i8(at: *const i8) -> Avx512 {
        // SAFETY: as the caller promises.
        Avx512(unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast()))) })
    }

    #[inline(always)]
    unsafe fn store_f16(self, at: *mut u16) {
        // SAFETY: as the caller promises.
        unsafe { _mm256_storeu_si256(at.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0)) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: as the caller promises.
        unsafe { _mm512_storeu_ps(at, self.0) }
    }

    op!(add(other) = _mm512_add_ps);
    op!(sub(other) = _mm512_sub_ps);
    op!(mul(other) = _mm512_mul_ps);
    op!(div(other) = _mm512_div_ps);
    op!(fma(factor, term) = _mm512_fmadd_ps);
    op!(max(other) = _mm512_max_ps);
    op!(min(other) = _mm512_min_ps);

    #[inline(always)]
    unsafe fn zero_where_less(self, x: Avx512, limit: Avx512) -> Avx512 {
        // SAFETY: as the caller promises.
        unsafe {
            let kept = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x.0, limit.0);
            Avx512(_mm512_maskz_mov_ps(kept, self.0))
        }
    }

    #[inline(always)]
    unsafe fn power_of_magic(self) -> Avx512 {
        // SAFETY: as the caller promises.
        unsafe {
            let exponent = _mm512_add_epi32(_mm512_castps_si512(self.0), _mm512_set1_epi32(127));
            Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent)))
        }
    }
}
