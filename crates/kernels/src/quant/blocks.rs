//! Blocks of a GGUF file taken apart: codes of 32 inputs as bytes, and the scales as they stand in the file.

use super::format::{GROUP, Header, PANEL};
use crate::packed::Packing;

/// The codes of group `index` of `block`.
pub(super) fn codes(packing: Packing, block: &[u8], index: usize) -> [u8; GROUP] {
    match packing {
        Packing::Q4_0 => halves_of(&block[2..18]),
        Packing::Q4_1 => halves_of(&block[4..20]),
        Packing::Q5_0 => with_fifth(halves_of(&block[6..22]), &block[2..6]),
        Packing::Q5_1 => with_fifth(halves_of(&block[8..24]), &block[4..8]),
        Packing::Q8_0 => std::array::from_fn(|k| block[2 + k] ^ 0x80),
        Packing::Q4K => four_bits(&block[16..], index),
        Packing::Q5K => {
            let (fifth, low) = (&block[16..48], four_bits(&block[48..], index));
            std::array::from_fn(|k| low[k] | (fifth[k] >> index & 1) << 4)
        }
        Packing::Q6K => {
            let (half, quarter) = (index / 4, index % 4);
            let low = &block[64 * half + 32 * (quarter % 2)..][..GROUP];
            let high = &block[128 + 32 * half..][..GROUP];
            std::array::from_fn(|k| (low[k] >> (4 * (quarter / 2)) & 15) | (high[k] >> (2 * quarter) & 3) << 4)
        }
        _ => unreachable!("no panels of {packing:?}"),
    }
}

/// Writes the scales of `block` into output `n` of a header's `entry`.
pub(super) fn write_scales(packing: Packing, block: &[u8], header: Header, entry: &mut [u8], n: usize) {
    match header {
        Header::D => half(entry, 0, n, &block[..2]),
        Header::DAndM => {
            half(entry, 0, n, &block[..2]);
            half(entry, 1, n, &block[2..4]);
        }
        Header::SuperAffine => {
            half(entry, 0, n, &block[..2]);
            half(entry, 1, n, &block[2..4]);
            let bytes = &mut entry[4 * PANEL..];
            for index in 0..8 {
                let (scale, min) = six_bits(&block[4..16], index);
                bytes[2 * index * PANEL + n] = scale;
                bytes[(2 * index + 1) * PANEL + n] = min;
            }
        }
        Header::SuperHalves => {
            debug_assert_eq!(packing, Packing::Q6K);
            half(entry, 0, n, &block[208..210]);
            for index in 0..16 {
                entry[2 * PANEL + index * PANEL + n] = block[192 + index];
            }
        }
    }
}

/// Writes output `n` in row `row` of 16 `f16`.
fn half(entry: &mut [u8], row: usize, n: usize, two: &[u8]) {
    entry[2 * (row * PANEL + n)..][..2].copy_from_slice(two);
}

/// Byte `j` holds number `j` low and number `j + 16` high.
fn halves_of(bytes: &[u8]) -> [u8; GROUP] {
    std::array::from_fn(|k| if k < 16 { bytes[k] & 15 } else { bytes[k - 16] >> 4 })
}

fn with_fifth(low: [u8; GROUP], bits: &[u8]) -> [u8; GROUP] {
    std::array::from_fn(|k| low[k] | (bits[k / 8] >> (k % 8) & 1) << 4)
}

/// 32 bytes serve two groups: the even one low, the odd one high.
fn four_bits(bytes: &[u8], index: usize) -> [u8; GROUP] {
    let bytes = &bytes[GROUP * (index / 2)..][..GROUP];
    std::array::from_fn(|k| bytes[k] >> (4 * (index % 2)) & 15)
}

/// (scale, min) of group `index` of a K-quant: six bits each, of the last four groups split between two places.
fn six_bits(scales: &[u8], index: usize) -> (u8, u8) {
    if index < 4 {
        (scales[index] & 63, scales[index + 4] & 63)
    } else {
        let low = scales[index + 4];
        ((low & 15) | (scales[index - 4] >> 6) << 4, (low >> 4) | (scales[index] >> 6) << 4)
    }
}
