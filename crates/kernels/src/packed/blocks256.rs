//! Blocks of 256 numbers ("K-quants"): groups of 16 or 32 numbers with small integer scales of their own, which one or
//! two `f16` of the block multiply: `d · scale · q`, or `d · scale · q - dmin · min`.

use super::halves::f16;

/// 16 bytes of (scale, min) in four bits each, 64 bytes of two-bit numbers, `d`, `dmin`; groups of 16.
#[inline(always)]
pub(super) fn q2_k(block: &[u8; 84], out: &mut [f32; 256]) {
    let (scales, quants) = (&block[..16], &block[16..80]);
    let (d, dmin) = (f16([block[80], block[81]]), f16([block[82], block[83]]));
    let (groups, _) = out.as_chunks_mut::<16>();
    for (index, group) in groups.iter_mut().enumerate() {
        let (quants, shift) = two_bits(quants, index);
        let scale = d * f32::from(scales[index] & 15);
        let min = dmin * f32::from(scales[index] >> 4);
        for (out, &q) in group.iter_mut().zip(quants) {
            *out = scale * f32::from((q >> shift) & 3) - min;
        }
    }
}

/// 32 bytes of third bits (set: no 4 to take off), 64 bytes of two-bit numbers, 12 bytes of six-bit scales, `d`;
/// groups of 16.
#[inline(always)]
pub(super) fn q3_k(block: &[u8; 110], out: &mut [f32; 256]) {
    let (third, quants, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let d = f16([block[108], block[109]]);
    let (groups, _) = out.as_chunks_mut::<16>();
    for (index, group) in groups.iter_mut().enumerate() {
        // Four low bits in the first eight bytes, two high ones in the last four.
        let low = if index < 8 { scales[index] & 15 } else { scales[index - 8] >> 4 };
        let high = (scales[8 + index % 4] >> (2 * (index / 4))) & 3;
        let scale = d * (f32::from(low | high << 4) - 32.0);
        let third = &third[16 * (index % 2)..][..16];
        let (quants, shift) = two_bits(quants, index);
        for ((out, &q), &bits) in group.iter_mut().zip(quants).zip(third) {
            let lowered = if bits >> (index / 2) & 1 == 0 { 4 } else { 0 };
            *out = scale * (i32::from((q >> shift) & 3) - lowered) as f32;
        }
    }
}

/// `d`, `dmin`, 12 bytes of six-bit scales and mins, 128 bytes of four-bit numbers; groups of 32.
#[inline(always)]
pub(super) fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let (scales, quants) = (&block[4..16], &block[16..]);
    let (groups, _) = out.as_chunks_mut::<32>();
    for (index, group) in groups.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(block, scales, index);
        for (out, &q) in group.iter_mut().zip(&quants[32 * (index / 2)..][..32]) {
            *out = scale * f32::from(four_bits(q, index)) - min;
        }
    }
}

/// As [`q4_k`] with 32 bytes of fifth bits before the four-bit numbers.
#[inline(always)]
pub(super) fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (scales, fifth, quants) = (&block[4..16], &block[16..48], &block[48..]);
    let (groups, _) = out.as_chunks_mut::<32>();
    for (index, group) in groups.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(block, scales, index);
        for ((out, &q), &bits) in group.iter_mut().zip(&quants[32 * (index / 2)..][..32]).zip(fifth) {
            *out = scale * f32::from(four_bits(q, index) | (bits >> index & 1) << 4) - min;
        }
    }
}

/// 128 bytes of low four bits, 64 bytes of high two bits, 16 signed scales, `d`; groups of 16.
#[inline(always)]
pub(super) fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = f16([block[208], block[209]]);
    let (groups, _) = out.as_chunks_mut::<16>();
    for (index, group) in groups.iter_mut().enumerate() {
        let (half, quarter, at) = (index / 8, index % 8 / 2, 16 * (index % 2));
        let low = &low[64 * half + 32 * (quarter % 2) + at..][..16];
        let high = &high[32 * half + at..][..16];
        let scale = d * f32::from(scales[index] as i8);
        for ((out, &l), &h) in group.iter_mut().zip(low).zip(high) {
            let q = four_bits(l, quarter / 2) | (h >> (2 * quarter) & 3) << 4;
            *out = scale * (i32::from(q) - 32) as f32;
        }
    }
}

/// The 16 bytes that hold group `index` of two-bit numbers, and how far to shift them: 32 bytes serve 128 numbers.
#[inline(always)]
fn two_bits(quants: &[u8], index: usize) -> (&[u8], usize) {
    (&quants[32 * (index / 8) + 16 * (index % 2)..][..16], index % 8 / 2 * 2)
}

/// The low half for even groups, the high one for odd ones.
#[inline(always)]
fn four_bits(q: u8, group: usize) -> u8 {
    if group.is_multiple_of(2) { q & 15 } else { q >> 4 }
}

/// Six bits each: of the first four groups plainly in eight bytes, of the others split between the last four bytes and
/// the spare upper bits of the first eight.
#[inline(always)]
fn scale_and_min(block: &[u8], scales: &[u8], index: usize) -> (f32, f32) {
    let (scale, min) = if index < 4 {
        (scales[index] & 63, scales[index + 4] & 63)
    } else {
        let low = scales[index + 4];
        ((low & 15) | (scales[index - 4] >> 6) << 4, (low >> 4) | (scales[index] >> 6) << 4)
    };
    let (d, dmin) = (f16([block[0], block[1]]), f16([block[2], block[3]]));
    (d * f32::from(scale), dmin * f32::from(min))
}
