//! Blocks become numbers.

use super::packing::Packing;
use super::{blocks32, blocks256, halves};

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
