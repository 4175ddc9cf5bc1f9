//! `y[T, N] = x[T, K] · w[N, K]ᵀ`, the layout in which checkpoints store linear layers.
//!
//! ```text
//! outputs are cut into blocks of weight rows (rayon) ─→ each block against all token rows ─→ tiles of 4×2 or 1×4
//! ```
//! A block of weight rows stays in the cache while the token rows pass by, so weights are read from memory once however
//! many sequences share the step. The sums are those of [`super::dot`].

mod isa;

use std::ops::Range;

use super::packed::Packing;
use super::parallel::for_each_chunk;
use isa::Isa;

/// Weight bytes per block: about half of a small second-level cache.
const BLOCK_BYTES: usize = 256 << 10;

/// `x` is `[T, inputs]`, `weight` `[N, inputs]`; returns `[T, N]`.
///
/// # Panics
/// When a length is not a multiple of `inputs`.
pub fn matmul(x: &[f32], weight: &[f32], inputs: usize) -> Vec<f32> {
    assert!(inputs > 0 && x.len().is_multiple_of(inputs) && weight.len().is_multiple_of(inputs), "ragged matrices");
    let isa = Isa::detect();
    by_blocks(x, inputs, weight.len() / inputs, |columns, out| {
        isa.block(x, &weight[columns.start * inputs..columns.end * inputs], inputs, out);
    })
}

/// [`matmul`] with weights in blocks: each block of weight rows is unpacked to `f32` beside the outputs it serves, so the
/// result is that of the unpacked weights to the bit, however many rows `x` has. The activations are not rounded, unlike
/// in ggml and candle, whose quantised products round them to 8 bits and differ with the number of rows.
///
/// The price: all weights are unpacked once per call. From 8 rows on that drowned in the noise of a busy two-core machine;
/// a single row took 1 to 2.2 times as long as with plain `f32` weights from memory, up to 4.7 times (Q2_K) from the cache.
///
/// # Panics
/// When a length is not a multiple of `inputs`, or `inputs` not of the packing's block.
pub fn matmul_packed(x: &[f32], packing: Packing, weight: &[u8], inputs: usize) -> Vec<f32> {
    let row_bytes = packing.row_bytes(inputs).unwrap_or(0);
    assert!(
        row_bytes > 0 && x.len().is_multiple_of(inputs) && weight.len().is_multiple_of(row_bytes),
        "ragged matrices"
    );
    let isa = Isa::detect();
    by_blocks(x, inputs, weight.len() / row_bytes, |columns, out| {
        let mut unpacked = vec![0.0; columns.len() * inputs];
        isa.unpack(packing, &weight[columns.start * row_bytes..columns.end * row_bytes], &mut unpacked);
        isa.block(x, &unpacked, inputs, out);
    })
}

/// Calls `compute` with ranges of weight rows (columns of the result) and where their outputs go, `[columns, rows]`.
fn by_blocks<F>(x: &[f32], inputs: usize, outputs: usize, compute: F) -> Vec<f32>
where
    F: Fn(Range<usize>, &mut [f32]) + Sync + Send,
{
    let rows = x.len() / inputs;
    if rows == 0 || outputs == 0 {
        return Vec::new();
    }
    // Computed as [N, T], so that each block of weight rows owns one contiguous piece of the output.
    let mut transposed = vec![0.0; rows * outputs];
    let block = block_rows(outputs, inputs);
    for_each_chunk(&mut transposed, block * rows, x.len() * outputs, |index, out| {
        let start = index * block;
        compute(start..start + out.len() / rows, out);
    });
    if rows == 1 { transposed } else { transpose(&transposed, rows) }
}

/// Weight rows per block: at most what fits [`BLOCK_BYTES`], few enough that every thread gets several; a multiple of 4,
/// the widest tile. How outputs are cut leaves no trace in them.
fn block_rows(outputs: usize, inputs: usize) -> usize {
    let fitting = BLOCK_BYTES / (inputs * size_of::<f32>());
    let shared = outputs.div_ceil(4 * rayon::current_num_threads());
    fitting.min(shared).max(4).next_multiple_of(4)
}

/// `[N, rows]` to `[rows, N]`.
fn transpose(from: &[f32], rows: usize) -> Vec<f32> {
    let columns = from.len() / rows;
    let mut to = vec![0.0; from.len()];
    for (row, out) in to.chunks_exact_mut(columns).enumerate() {
        for (value, source) in out.iter_mut().zip(from[row..].iter().step_by(rows)) {
            *value = *source;
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use super::super::dot::dot;
    use super::super::packed;
    use super::*;

    fn numbers(count: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        (0..count).map(|_| next()).collect()
    }

    const SHAPES: [(usize, usize, usize); 7] =
        [(1, 1, 1), (1, 64, 320), (3, 17, 5), (4, 16, 9), (9, 112, 64), (33, 256, 130), (2, 1000, 257)];

    #[test]
    fn agrees_with_double_precision() {
        for (rows, inputs, outputs) in SHAPES {
            let (x, w) = (numbers(rows * inputs, 1), numbers(outputs * inputs, 2));
            let y = matmul(&x, &w, inputs);
            for t in 0..rows {
                for n in 0..outputs {
                    let exact: f64 = (0..inputs).map(|k| x[t * inputs + k] as f64 * w[n * inputs + k] as f64).sum();
                    assert!((y[t * outputs + n] as f64 - exact).abs() < 1e-4, "{rows}x{inputs}x{outputs} at {t},{n}");
                }
            }
        }
    }

    #[test]
    fn every_output_is_the_plain_dot_product_bit_for_bit() {
        for (rows, inputs, outputs) in SHAPES {
            let (x, w) = (numbers(rows * inputs, 3), numbers(outputs * inputs, 4));
            let expected: Vec<u32> =
                x.chunks(inputs).flat_map(|x| w.chunks(inputs).map(move |w| dot(x, w).to_bits())).collect();
            for isa in Isa::available() {
                let mut transposed = vec![0.0; rows * outputs];
                isa.block(&x, &w, inputs, &mut transposed);
                let y: Vec<u32> = transpose(&transposed, rows).iter().map(|y| y.to_bits()).collect();
                assert_eq!(y, expected, "{isa:?} {rows}x{inputs}x{outputs}");
            }
        }
    }

    #[test]
    fn packed_weights_give_the_bits_of_their_numbers() {
        let (inputs, outputs) = (512, 130);
        for packing in Packing::ALL {
            // Bytes of small integers: scales stay finite, and as f32 patterns too.
            let bytes = packing.row_bytes(inputs).unwrap() * outputs;
            let weight: Vec<u8> = numbers(bytes, 7).iter().map(|x| ((x + 0.5) * 60.0) as u8).collect();
            let mut plain = vec![0.0; outputs * inputs];
            packed::unpack(packing, &weight, &mut plain);
            assert!(plain.iter().all(|x| x.is_finite()) && plain.iter().any(|&x| x != 0.0), "{packing:?}");
            for isa in Isa::available() {
                let mut unpacked = vec![0.0; outputs * inputs];
                isa.unpack(packing, &weight, &mut unpacked);
                assert!(unpacked == plain, "{packing:?} on {isa:?}");
            }
            for rows in [1, 2, 5, 32] {
                let x = numbers(rows * inputs, 8);
                let expected = matmul(&x, &plain, inputs);
                let got = matmul_packed(&x, packing, &weight, inputs);
                let same = got.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same && got.len() == expected.len(), "{packing:?}, {rows} rows");
            }
        }
    }

    #[test]
    fn batched_equals_solo_for_any_number_of_threads() {
        let (inputs, outputs) = (256, 300);
        let (x, w) = (numbers(21 * inputs, 5), numbers(outputs * inputs, 6));
        let solo: Vec<f32> = x.chunks(inputs).flat_map(|row| matmul(row, &w, inputs)).collect();
        for threads in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let batched = pool.install(|| matmul(&x, &w, inputs));
            assert!(solo.iter().zip(&batched).all(|(a, b)| a.to_bits() == b.to_bits()), "{threads} threads");
        }
    }
}
