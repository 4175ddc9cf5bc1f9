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

/// What the codes of [`iq4_nl`] stand for.
const NON_LINEAR: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// `d`, 16 bytes: numbers of a table.
#[inline(always)]
pub(super) fn iq4_nl(block: &[u8; 18], out: &mut [f32; 32]) {
    let [d0, d1, quants @ ..] = block;
    let d = f16([*d0, *d1]);
    for (j, &q) in quants.iter().enumerate() {
        out[j] = f32::from(NON_LINEAR[usize::from(q & 15)]) * d;
        out[j + HALF] = f32::from(NON_LINEAR[usize::from(q >> 4)]) * d;
    }
}

/// What the codes of [`mxfp4`] stand for, twice: E2M1 has halves.
const E2M1_TWICE: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// An exponent, 16 bytes: floats of four bits (OCP Microscaling Formats, 2023).
#[inline(always)]
pub(super) fn mxfp4(block: &[u8; 17], out: &mut [f32; 32]) {
    let [exponent, quants @ ..] = block;
    // Half of 2^(exponent - 127); the two smallest are not normal.
    let bits = if *exponent < 2 { 0x0020_0000 << exponent } else { u32::from(exponent - 1) << 23 };
    let d = f32::from_bits(bits);
    for (j, &q) in quants.iter().enumerate() {
        out[j] = f32::from(E2M1_TWICE[usize::from(q & 15)]) * d;
        out[j + HALF] = f32::from(E2M1_TWICE[usize::from(q >> 4)]) * d;
    }
}

/// Numbers `j` and `j + 16` of a block, unsigned.
#[inline(always)]
fn five_bits(q: u8, high: u32, j: usize) -> [i32; 2] {
    let fifth = |bit: usize| ((high >> bit) & 1) << 4;
    [(u32::from(q & 15) | fifth(j)) as i32, (u32::from(q >> 4) | fifth(j + HALF)) as i32]
}
