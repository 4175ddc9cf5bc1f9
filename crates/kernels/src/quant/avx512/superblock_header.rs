//! What the header of a block of 256 becomes in registers: scales, mins and the two `f16` that multiply them.
#![allow(unsafe_code)] // intrinsics that load through pointers, in functions that need AVX-512

use std::arch::x86_64::*;

use crate::quant::format::PANEL;

/// What pair `p` of the rows' sums is multiplied with: two groups' mins, or the scales of a group's halves.
///
/// # Safety
/// `entry` points at a header's entry.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) unsafe fn pair<const AFFINE: bool>(entry: *const u8, p: usize) -> __m512i {
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
pub(crate) unsafe fn wide<const AFFINE: bool>(bytes: *const u8) -> __m512i {
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
pub(crate) unsafe fn half(bytes: *const u8) -> __m512 {
    // SAFETY: as the caller promises.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(bytes.cast()) })
}
