//! Scales as `f32` and codes as bytes, read from a panel.
#![allow(unsafe_code)] // intrinsics that load through pointers, in functions that need AVX-512

use std::arch::x86_64::*;

use crate::quant::expand::{GroupCodes, GroupScales};
use crate::quant::format::{Codes, Format, GROUP_CODES, Header, PANEL, SIGN};

/// How far ahead weights are asked for.
pub(crate) const AHEAD: usize = 4096;

/// [`crate::quant::expand::scales`], which the compiler leaves scalar.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(crate) fn scales(format: Format, header: &[u8], out: &mut [GroupScales]) {
    match format.header {
        Header::D => {
            for (entry, out) in header.as_chunks::<{ Header::D.bytes() }>().0.iter().zip(out) {
                store(&mut out.scale, halves(entry, 0));
            }
        }
        Header::DAndM => {
            for (entry, out) in header.as_chunks::<{ Header::DAndM.bytes() }>().0.iter().zip(out) {
                store(&mut out.scale, halves(entry, 0));
                store(&mut out.second, halves(entry, 1));
            }
        }
        Header::SuperAffine | Header::SuperHalves => unreachable!("see `superblock`"),
    }
}

/// Row `row` of 16 `f16`.
#[inline]
#[target_feature(enable = "avx512f")]
fn halves(entry: &[u8], row: usize) -> __m512 {
    let bytes: &[u8; 2 * PANEL] = entry[2 * PANEL * row..].first_chunk().expect("16 halves");
    // SAFETY: 32 bytes, as the type says.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(out: &mut [f32; PANEL], value: __m512) {
    // SAFETY: room for 16 numbers, as the type says.
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), value) }
}

/// All groups of a panel, a byte for each code less `offset`.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(crate) fn codes(codes: Codes, offset: u8, groups: &[u8], out: &mut [GroupCodes]) {
    match codes {
        Codes::Four => widen::<Four>(offset, groups, out),
        Codes::Five => widen::<Five>(offset, groups, out),
        Codes::Six => widen::<Six>(offset, groups, out),
        Codes::Eight => widen::<Signed>(offset, groups, out),
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn widen<L: Load>(offset: u8, groups: &[u8], out: &mut [GroupCodes]) {
    let offset = _mm512_set1_epi8(offset as i8);
    for (group, out) in groups.chunks_exact(L::BYTES).zip(out) {
        for line in 0..L::BYTES / 64 {
            _mm_prefetch::<_MM_HINT_T0>(group.as_ptr().wrapping_add(AHEAD + 64 * line).cast());
        }
        for j in 0..4 {
            // SAFETY: a group is `L::BYTES` long; `j` is below 4, so both stores are within the 512 bytes of `out`.
            unsafe {
                let (low, high) = L::quads(group.as_ptr(), j);
                let (low, high) = (_mm512_sub_epi8(low, offset), _mm512_sub_epi8(high, offset));
                _mm512_storeu_si512(out.0.as_mut_ptr().add(64 * j).cast(), low);
                _mm512_storeu_si512(out.0.as_mut_ptr().add(GROUP_CODES / 2 + 64 * j).cast(), high);
            }
        }
    }
}

/// How codes are read.
pub(crate) trait Load {
    /// Bytes of one group.
    const BYTES: usize;
    /// No code is larger.
    const LARGEST: usize;
    /// Whether they were unpacked just before, and are in the caches.
    const UNPACKED: bool = false;

    /// Codes of inputs `4·j..` and `16 + 4·j..`, four of each of the 16 outputs, as bytes.
    ///
    /// # Safety
    /// AVX-512 F and BW are there, `group` points at `BYTES` readable bytes, `j` is below 4.
    unsafe fn quads(group: *const u8, j: usize) -> (__m512i, __m512i);
}
pub(crate) struct Four;
pub(crate) struct Five;
pub(crate) struct Six;
/// Bytes that were unpacked.
pub(crate) struct Wide;
/// Eight bits as they lie in a panel.
pub(crate) struct Signed;

impl Load for Four {
    const BYTES: usize = Codes::Four.bytes();
    const LARGEST: usize = 15;

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
    const LARGEST: usize = 31;

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
    const LARGEST: usize = 63;

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

impl Load for Wide {
    const BYTES: usize = Codes::Eight.bytes();
    const LARGEST: usize = 255;
    const UNPACKED: bool = true;

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

impl Load for Signed {
    const BYTES: usize = Codes::Eight.bytes();
    const LARGEST: usize = 255;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn quads(group: *const u8, j: usize) -> (__m512i, __m512i) {
        let sign = _mm512_set1_epi8(SIGN as i8);
        // SAFETY: as the caller promises.
        let (low, high) = unsafe { Wide::quads(group, j) };
        (_mm512_xor_si512(low, sign), _mm512_xor_si512(high, sign))
    }
}

/// `a | (b & mask)`, the mask for each byte.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn or_masked(a: __m512i, b: __m512i, mask: i8) -> __m512i {
    _mm512_ternarylogic_epi32::<0b1111_1000>(a, b, _mm512_set1_epi8(mask))
}
