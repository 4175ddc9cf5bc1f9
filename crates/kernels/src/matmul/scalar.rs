//! The definition: what every other path must give to the bit.

use super::job::Numbers;
use crate::packed::halves;

/// Partial sums per output.
pub(super) const LANES: usize = 16;

/// Lane `j` takes the terms `k ≡ j (mod 16)` from left to right, each product fused with its addition; then the halves of
/// the lanes are added onto each other until one is left.
pub(super) fn dot(x: &[f32], numbers: Numbers, weight: &[u8]) -> f32 {
    match numbers {
        Numbers::F32 => lanes(x, weight, f32::from_le_bytes),
        Numbers::F16 => lanes(x, weight, halves::f16),
        Numbers::Bf16 => lanes(x, weight, halves::bf16),
    }
}

fn lanes<const BYTES: usize>(x: &[f32], weight: &[u8], number: impl Fn([u8; BYTES]) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let weights = weight.as_chunks::<BYTES>().0;
    for (x, w) in x.chunks(LANES).zip(weights.chunks(LANES)) {
        for (lane, (x, w)) in lanes.iter_mut().zip(x.iter().zip(w)) {
            *lane = x.mul_add(number(*w), *lane);
        }
    }
    let mut half = LANES / 2;
    while half > 0 {
        for j in 0..half {
            lanes[j] += lanes[j + half];
        }
        half /= 2;
    }
    lanes[0]
}
