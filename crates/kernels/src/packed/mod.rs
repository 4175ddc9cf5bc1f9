//! Weights in the block formats of GGUF, and their exact values as `f32`.
//!
//! A block is a run of consecutive numbers of one row that share scales: 32 numbers in [`blocks32`], 256 in
//! [`blocks256`]; [`halves`] are blocks of one. The layouts and the order of operations are those of ggml's
//! `dequantize_row_*`, so the values are the same to the bit; the tests compare with candle's port of it.
//!
//! Nothing here can fail on hostile bytes: every bit pattern is a number, if sometimes NaN.

mod blocks256;
mod blocks32;
pub(super) mod halves;
mod pack;

pub use pack::{Quantised, repack};

/// How numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq4Nl,
    Mxfp4,
}

impl Packing {
    pub const ALL: [Packing; 15] = [
        Packing::F32,
        Packing::F16,
        Packing::Bf16,
        Packing::Q4_0,
        Packing::Q4_1,
        Packing::Q5_0,
        Packing::Q5_1,
        Packing::Q8_0,
        Packing::Q2K,
        Packing::Q3K,
        Packing::Q4K,
        Packing::Q5K,
        Packing::Q6K,
        Packing::Iq4Nl,
        Packing::Mxfp4,
    ];

    /// Numbers and bytes of one block.
    pub const fn block(self) -> (usize, usize) {
        match self {
            Packing::F32 => (1, 4),
            Packing::F16 | Packing::Bf16 => (1, 2),
            Packing::Q4_0 | Packing::Iq4Nl => (32, 18),
            Packing::Q4_1 => (32, 20),
            Packing::Q5_0 => (32, 22),
            Packing::Q5_1 => (32, 24),
            Packing::Q8_0 => (32, 34),
            Packing::Q2K => (256, 84),
            Packing::Q3K => (256, 110),
            Packing::Q4K => (256, 144),
            Packing::Q5K => (256, 176),
            Packing::Q6K => (256, 210),
            Packing::Mxfp4 => (32, 17),
        }
    }

    /// Bytes of a row of `width` numbers; `None` unless those are whole blocks.
    pub const fn row_bytes(self, width: usize) -> Option<usize> {
        let (numbers, bytes) = self.block();
        if width.is_multiple_of(numbers) { (width / numbers).checked_mul(bytes) } else { None }
    }

    /// As ggml calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Packing::F32 => "F32",
            Packing::F16 => "F16",
            Packing::Bf16 => "BF16",
            Packing::Q4_0 => "Q4_0",
            Packing::Q4_1 => "Q4_1",
            Packing::Q5_0 => "Q5_0",
            Packing::Q5_1 => "Q5_1",
            Packing::Q8_0 => "Q8_0",
            Packing::Q2K => "Q2_K",
            Packing::Q3K => "Q3_K",
            Packing::Q4K => "Q4_K",
            Packing::Q5K => "Q5_K",
            Packing::Q6K => "Q6_K",
            Packing::Iq4Nl => "IQ4_NL",
            Packing::Mxfp4 => "MXFP4",
        }
    }
}

/// Writes the numbers of `bytes` to `out`. Inlined into callers that were compiled for wider registers.
///
/// # Panics
/// When `bytes` is not as many whole blocks as fill `out`.
#[inline(always)]
pub fn unpack(packing: Packing, bytes: &[u8], out: &mut [f32]) {
    match packing {
        Packing::F32 => each_block(bytes, out, |four, out: &mut [f32; 1]| out[0] = f32::from_le_bytes(*four)),
        Packing::F16 => each_block(bytes, out, |two, out: &mut [f32; 1]| out[0] = halves::f16(*two)),
        Packing::Bf16 => each_block(bytes, out, |two, out: &mut [f32; 1]| out[0] = halves::bf16(*two)),
        Packing::Q4_0 => each_block(bytes, out, blocks32::q4_0),
        Packing::Q4_1 => each_block(bytes, out, blocks32::q4_1),
        Packing::Q5_0 => each_block(bytes, out, blocks32::q5_0),
        Packing::Q5_1 => each_block(bytes, out, blocks32::q5_1),
        Packing::Q8_0 => each_block(bytes, out, blocks32::q8_0),
        Packing::Q2K => each_block(bytes, out, blocks256::q2_k),
        Packing::Q3K => each_block(bytes, out, blocks256::q3_k),
        Packing::Q4K => each_block(bytes, out, blocks256::q4_k),
        Packing::Q5K => each_block(bytes, out, blocks256::q5_k),
        Packing::Q6K => each_block(bytes, out, blocks256::q6_k),
        Packing::Iq4Nl => each_block(bytes, out, blocks32::iq4_nl),
        Packing::Mxfp4 => each_block(bytes, out, blocks32::mxfp4),
    }
}

#[inline(always)]
fn each_block<const BYTES: usize, const NUMBERS: usize>(
    bytes: &[u8],
    out: &mut [f32],
    unpack: impl Fn(&[u8; BYTES], &mut [f32; NUMBERS]),
) {
    let (blocks, odd_bytes) = bytes.as_chunks::<BYTES>();
    let (outs, odd_numbers) = out.as_chunks_mut::<NUMBERS>();
    assert!(odd_bytes.is_empty() && odd_numbers.is_empty() && blocks.len() == outs.len(), "blocks that do not fit");
    for (block, out) in blocks.iter().zip(outs) {
        unpack(block, out);
    }
}

#[cfg(test)]
mod tests;
