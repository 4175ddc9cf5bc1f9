//! Scales as `f32` and codes as bytes, eight outputs at a time.
#![allow(unsafe_code)] // intrinsics that load through pointers, in functions that need AVX2

use std::arch::x86_64::*;

use crate::quant::expand::GroupScales;
use crate::quant::format::{Codes, Format, GROUP_CODES, Header, PANEL};

/// Outputs of one register.
pub(super) const LANES: usize = 8;

/// [`crate::quant::expand::scales`], which the compiler leaves scalar.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn scales(format: Format, header: &[u8], out: &mut [GroupScales]) {
    match format.header {
        Header::D => {
            for (entry, out) in header.as_chunks::<{ Header::D.bytes() }>().0.iter().zip(out) {
                for h in 0..2 {
                    store(&mut out.scale, h, halves(entry, 0, h));
                }
            }
        }
        Header::DAndM => {
            for (entry, out) in header.as_chunks::<{ Header::DAndM.bytes() }>().0.iter().zip(out) {
                for h in 0..2 {
                    store(&mut out.scale, h, halves(entry, 0, h));
                    store(&mut out.second, h, halves(entry, 1, h));
                }
            }
        }
        Header::SuperAffine | Header::SuperHalves => unreachable!("see `superblock`"),
    }
}

/// Half `h` of row `row` of 16 `f16`.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn halves(entry: &[u8], row: usize, h: usize) -> __m256 {
    let bytes: &[u8; 2 * LANES] = entry[2 * PANEL * row + 2 * LANES * h..].first_chunk().expect("eight halves");
    // SAFETY: 16 bytes, as the type says.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(out: &mut [f32; PANEL], h: usize, value: __m256) {
    let out: &mut [f32; LANES] = out[LANES * h..].first_chunk_mut().expect("eight numbers");
    // SAFETY: room for eight numbers, as the type says.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), value) }
}

/// How codes are read.
pub(super) trait Load {
    /// Bytes of one group.
    const BYTES: usize;
    /// Values of `j` whose products may be added in 16 bits.
    const STEPS: usize;
    /// Codes too large for `vpmaddubsw`, which adds two products in 16 bits; they are signed.
    const LARGE: bool = false;

    /// Codes of inputs `4·j..` and `16 + 4·j..`, four of each of the outputs `8·h..8·h + 8`, as bytes.
    ///
    /// # Safety
    /// AVX2 is there, `group` points at `BYTES` readable bytes, `j` is below 4 and `h` below 2.
    unsafe fn quads(group: *const u8, j: usize, h: usize) -> (__m256i, __m256i);
}
pub(super) struct Four;
pub(super) struct Five;
pub(super) struct Six;
pub(super) struct Eight;

impl Load for Four {
    const BYTES: usize = Codes::Four.bytes();
    const STEPS: usize = 4; // 8 · 2 · 15 · 127 = 30,480

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn quads(group: *const u8, j: usize, h: usize) -> (__m256i, __m256i) {
        let low = _mm256_set1_epi8(15);
        // SAFETY: bytes 64·j + 32·h to 32 further on are within the 256 that the caller promises.
        let both = unsafe { _mm256_loadu_si256(group.add(64 * j + 32 * h).cast()) };
        (_mm256_and_si256(both, low), _mm256_and_si256(_mm256_srli_epi16::<4>(both), low))
    }
}

impl Load for Five {
    const BYTES: usize = Codes::Five.bytes();
    const STEPS: usize = 2; // 4 · 2 · 31 · 127 = 31,496

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn quads(group: *const u8, j: usize, h: usize) -> (__m256i, __m256i) {
        // SAFETY: the fifth bits are bytes 256 to 320 of those that the caller promises.
        let (low, high, fifth) = unsafe {
            let (low, high) = Four::quads(group, j, h);
            (low, high, _mm256_loadu_si256(group.add(GROUP_CODES / 2 + 32 * h).cast()))
        };
        // Bit j of each byte belongs to `low`, bit j + 4 to `high`; both go to bit 4. Shifts of 16 bits carry bits over
        // from the neighbouring byte, none of which the mask keeps.
        let below = _mm256_sll_epi16(fifth, _mm_cvtsi32_si128(4 - j as i32));
        let above = _mm256_srl_epi16(fifth, _mm_cvtsi32_si128(j as i32));
        (or_masked(low, below, 16), or_masked(high, above, 16))
    }
}

impl Load for Six {
    const BYTES: usize = Codes::Six.bytes();
    const STEPS: usize = 2; // 2 · 2 · 63 · 127 = 32,004: each half has sums of its own

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn quads(group: *const u8, j: usize, h: usize) -> (__m256i, __m256i) {
        // SAFETY: the high bits are bytes 256 to 384 of those that the caller promises.
        let (low, high, below, above) = unsafe {
            let (low, high) = Four::quads(group, j, h);
            let bits = group.add(GROUP_CODES / 2 + 32 * h);
            (low, high, _mm256_loadu_si256(bits.cast()), _mm256_loadu_si256(bits.add(64).cast()))
        };
        // Bits 2·j and 2·j + 1 go to bits 4 and 5.
        let shift = |bits| match j {
            0 => _mm256_slli_epi16::<4>(bits),
            1 => _mm256_slli_epi16::<2>(bits),
            2 => bits,
            _ => _mm256_srli_epi16::<2>(bits),
        };
        (or_masked(low, shift(below), 48), or_masked(high, shift(above), 48))
    }
}

impl Load for Eight {
    const BYTES: usize = Codes::Eight.bytes();
    const STEPS: usize = 1; // 2 · 128 · 127 = 32,512: none
    const LARGE: bool = true;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn quads(group: *const u8, j: usize, h: usize) -> (__m256i, __m256i) {
        // SAFETY: within the 512 bytes that the caller promises.
        unsafe {
            let group = group.add(64 * j + 32 * h);
            (_mm256_loadu_si256(group.cast()), _mm256_loadu_si256(group.add(GROUP_CODES / 2).cast()))
        }
    }
}

/// `a | (b & mask)`, the mask for each byte.
#[inline]
#[target_feature(enable = "avx2")]
fn or_masked(a: __m256i, b: __m256i, mask: i8) -> __m256i {
    _mm256_or_si256(a, _mm256_and_si256(b, _mm256_set1_epi8(mask)))
}
