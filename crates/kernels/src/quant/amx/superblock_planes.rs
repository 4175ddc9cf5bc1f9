//! Weights times their scales, as two planes of bytes.
#![allow(unsafe_code)] // intrinsics that load through pointers

use std::arch::x86_64::*;

use crate::quant::avx512::load::Load;
use crate::quant::avx512::superblock_header::wide;
use crate::quant::format::PANEL;
use crate::quant::superblock::{BLOCK, GROUPS, OFFSET};

/// Bytes of a block's plane.
const PLANE: usize = PANEL * BLOCK;

/// High and low, each `[4, 16, 64]`: what the tile unit takes for weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(super) struct Planes([[u8; PLANE]; 2]);

/// Group `g` of a block, of which `entry` and `codes` are.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn group<L: Load, const AFFINE: bool>(entry: &[u8], codes: &[u8], g: usize, planes: &mut Planes) {
    assert!(codes.len() == GROUPS * L::BYTES && g < GROUPS, "a group's codes");
    let codes = &codes[g * L::BYTES..][..L::BYTES];
    if AFFINE { affine::<L>(entry, codes, g, planes) } else { halves::<L>(entry, codes, g, planes) }
}

/// Products of unsigned codes and scales of six bits.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn affine<L: Load>(entry: &[u8], codes: &[u8], g: usize, planes: &mut Planes) {
    assert!(entry.len() >= (4 + 2 * GROUPS) * PANEL, "an entry");
    let Planes([high, low]) = planes;
    // SAFETY: `g` is below 8, `j` below 4: within the group, its block's entry, and the planes of 8 times 512 bytes.
    unsafe {
        let scale = wide::<true>(entry.as_ptr().add((4 + 2 * g) * PANEL));
        let scale = _mm512_or_si512(scale, _mm512_slli_epi32::<16>(scale));
        let (coarse, fine) = (_mm512_srli_epi16::<3>(scale), _mm512_and_si512(scale, _mm512_set1_epi16(7)));
        for j in 0..4 {
            let (first, second) = L::quads(codes.as_ptr(), j);
            for (codes, quad) in [(first, j), (second, 4 + j)] {
                let at = (g * 8 + quad) * 64;
                // Two codes at once: the lower one's product stays below 256 and does not reach the upper one.
                _mm512_store_si512(high.as_mut_ptr().add(at).cast(), _mm512_mullo_epi16(codes, coarse));
                _mm512_store_si512(low.as_mut_ptr().add(at).cast(), _mm512_mullo_epi16(codes, fine));
            }
        }
    }
}

/// Products of signed codes and signed scales, in sixteen bits and then cut into bytes.
///
/// Bytes are moved by shuffles, which have a unit of their own: shifts would wait for the one that multiplies.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn halves<L: Load>(entry: &[u8], codes: &[u8], g: usize, planes: &mut Planes) {
    assert!(entry.len() >= (2 + 2 * GROUPS) * PANEL, "an entry");
    const UPPER: __mmask64 = 0xaaaa_aaaa_aaaa_aaaa;
    let Planes([high, low]) = planes;
    let offset = _mm512_set1_epi8(OFFSET as i8);
    // SAFETY: as in `affine`.
    unsafe {
        // Scales in the upper bytes of both halves of a number: of `(a · 256) · (b · 256)` the upper half is `a · b`.
        let scale = |h: usize| {
            let scale = wide::<false>(entry.as_ptr().add((2 + 2 * g + h) * PANEL));
            let upper = _mm512_slli_epi32::<24>(scale);
            _mm512_or_si512(upper, _mm512_srli_epi32::<16>(upper))
        };
        let scales = (scale(0), scale(1));
        for j in 0..4 {
            let (first, second) = L::quads(codes.as_ptr(), j);
            for (codes, scale, quad) in [(first, scales.0, j), (second, scales.1, 4 + j)] {
                let codes = _mm512_sub_epi8(codes, offset);
                let even = _mm512_maskz_mov_epi8(UPPER, _mm512_bslli_epi128::<1>(codes));
                let even = _mm512_mulhi_epi16(even, scale);
                let odd = _mm512_mulhi_epi16(_mm512_maskz_mov_epi8(UPPER, codes), scale);
                let fine = _mm512_mask_blend_epi8(UPPER, even, _mm512_bslli_epi128::<1>(odd));
                let coarse = _mm512_mask_blend_epi8(UPPER, _mm512_bsrli_epi128::<1>(even), odd);
                let at = (g * 8 + quad) * 64;
                _mm512_store_si512(high.as_mut_ptr().add(at).cast(), coarse);
                _mm512_store_si512(low.as_mut_ptr().add(at).cast(), fine);
            }
        }
    }
}
