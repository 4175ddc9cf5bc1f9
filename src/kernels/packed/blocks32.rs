//! Blocks of 32 numbers: `d · q`, or `d · q + m`. Of the four and five bit formats, byte `j` holds number `j` in its low
//! half and number `j + 16` in its high half; the fifth bits lie apart, one `u32` for the block.

use super::halves::f16;

const HALF: usize = 16;

/// `d`, 16 bytes: numbers from -8 to 7.
#[inline(always)]
pub(super) fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let [d0, d1, quants @ ..] = block;
    let d = f16([*d0, *d1]);
    for (j, &q) in quants.iter().enumerate() {
        out[j] = (i32::from(q & 15) - 8) as f32 * d;
        out[j + HALF] = (i32::from(q >> 4) - 8) as f32 * d;
    }
}

/// `d`, `m`, 16 bytes: numbers from 0 to 15.
#[inline(always)]
pub(super) fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let [d0, d1, m0, m1, quants @ ..] = block;
    let (d, m) = (f16([*d0, *d1]), f16([*m0, *m1]));
    for (j, &q) in quants.iter().enumerate() {
        out[j] = f32::from(q & 15) * d + m;
        out[j + HALF] = f32::from(q >> 4) * d + m;
    }
}

/// `d`, fifth bits, 16 bytes: numbers from -16 to 15.
#[inline(always)]
pub(super) fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let [d0, d1, h0, h1, h2, h3, quants @ ..] = block;
    let (d, high) = (f16([*d0, *d1]), u32::from_le_bytes([*h0, *h1, *h2, *h3]));
    for (j, &q) in quants.iter().enumerate() {
        let [low, upper] = five_bits(q, high, j);
        out[j] = (low - 16) as f32 * d;
        out[j + HALF] = (upper - 16) as f32 * d;
    }
}

/// `d`, `m`, fifth bits, 16 bytes: numbers from 0 to 31.
#[inline(always)]
pub(super) fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let [d0, d1, m0, m1, h0, h1, h2, h3, quants @ ..] = block;
    let (d, m) = (f16([*d0, *d1]), f16([*m0, *m1]));
    let high = u32::from_le_bytes([*h0, *h1, *h2, *h3]);
    for (j, &q) in quants.iter().enumerate() {
        let [low, upper] = five_bits(q, high, j);
        out[j] = low as f32 * d + m;
        out[j + HALF] = upper as f32 * d + m;
    }
}

/// `d`, 32 signed bytes.
#[inline(always)]
pub(super) fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let [d0, d1, quants @ ..] = block;
    let d = f16([*d0, *d1]);
    for (out, &q) in out.iter_mut().zip(quants) {
        *out = f32::from(q as i8) * d;
    }
}

/// Numbers `j` and `j + 16` of a block, unsigned.
#[inline(always)]
fn five_bits(q: u8, high: u32, j: usize) -> [i32; 2] {
    let fifth = |bit: usize| ((high >> bit) & 1) << 4;
    [(u32::from(q & 15) | fifth(j)) as i32, (u32::from(q >> 4) | fifth(j + HALF)) as i32]
}
