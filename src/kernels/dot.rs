//! The one order in which products are added.
//!
//! A float sum depends on its order, so "batched equals solo" needs a single order for every dot product: [`LANES`]
//! partial sums, lane `j` taking the terms `k ≡ j (mod LANES)` from left to right, then a fixed tree over the lanes.
//! Sixteen lanes fill one AVX-512 register, two AVX ones or four NEON ones, so every instruction set can keep this order
//! at full width.

/// Partial sums per output.
pub const LANES: usize = 16;

/// Dot products of `R` rows of `x` with `C` rows of `w`, all of one length; `[R][C]`.
///
/// Each is summed in the order of this module, whatever `R` and `C`: a tile only shares loads between outputs. Inlined
/// into callers that were compiled for wider registers, hence written as loops over arrays that vectorise.
#[allow(clippy::needless_range_loop)] // zipped iterators over three nested arrays neither read nor vectorise as well
#[inline(always)]
pub(super) fn tile<const R: usize, const C: usize>(x: [&[f32]; R], w: [&[f32]; C]) -> [[f32; C]; R] {
    let x = x.map(|row| row.as_chunks::<LANES>());
    let w = w.map(|row| row.as_chunks::<LANES>());
    let whole = w[0].0.len();
    let tail = w[0].1.len();
    // Lengths are checked once here, so that the loop below is free of checks.
    assert!(x.iter().chain(&w).all(|row| row.0.len() == whole && row.1.len() == tail), "rows of different lengths");

    let mut lanes = [[[0.0f32; LANES]; C]; R];
    for i in 0..whole {
        for r in 0..R {
            for c in 0..C {
                for j in 0..LANES {
                    lanes[r][c][j] += x[r].0[i][j] * w[c].0[i][j];
                }
            }
        }
    }
    let mut out = [[0.0; C]; R];
    for r in 0..R {
        for c in 0..C {
            for j in 0..tail {
                lanes[r][c][j] += x[r].1[j] * w[c].1[j];
            }
            out[r][c] = sum_lanes(lanes[r][c]);
        }
    }
    out
}

/// One dot product in the order of this module.
#[inline(always)]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    tile([a], [b])[0][0]
}

/// The fixed tree: halves onto each other until one is left.
#[inline(always)]
fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for j in 0..half {
            lanes[j] += lanes[j + half];
        }
        half /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of the module's first paragraph, written as naively as it reads.
    fn by_definition(a: &[f32], b: &[f32]) -> f32 {
        let mut lanes = [0.0f32; LANES];
        for k in 0..a.len() {
            lanes[k % LANES] += a[k] * b[k];
        }
        for half in [8, 4, 2, 1] {
            for j in 0..half {
                lanes[j] += lanes[j + half];
            }
        }
        lanes[0]
    }

    #[test]
    fn every_tile_keeps_the_defined_order() {
        for len in [0, 1, 15, 16, 17, 63, 64, 200] {
            let row = |seed: usize| -> Vec<f32> {
                (0..len).map(|i| ((i * 7919 + seed * 104_729) % 1009) as f32 / 1009.0 - 0.4).collect()
            };
            let (x, w): (Vec<_>, Vec<_>) = ((0..3).map(row).collect(), (10..12).map(row).collect());
            let tiled = tile([&x[0], &x[1], &x[2]], [&w[0], &w[1]]);
            for r in 0..3 {
                for c in 0..2 {
                    let expected = by_definition(&x[r], &w[c]);
                    assert_eq!(tiled[r][c].to_bits(), expected.to_bits(), "length {len}, tile {r},{c}");
                    assert_eq!(dot(&x[r], &w[c]).to_bits(), expected.to_bits());
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "rows of different lengths")]
    fn rows_of_different_lengths_are_refused() {
        dot(&[1.0; 16], &[1.0; 17]);
    }
}
