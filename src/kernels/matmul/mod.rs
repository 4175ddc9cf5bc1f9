//! `y[T, N] = x[T, K] · w[N, K]ᵀ`, the layout in which checkpoints store linear layers.
//!
//! ```text
//! outputs are cut into blocks of weight rows (rayon) ─→ each block against all token rows ─→ tiles of 4×2 or 1×4
//! ```
//! A block of weight rows stays in the cache while the token rows pass by, so weights are read from memory once however
//! many sequences share the step. The sums are those of [`super::dot`].

mod isa;

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
    let (rows, outputs) = (x.len() / inputs, weight.len() / inputs);
    if rows == 0 || outputs == 0 {
        return Vec::new();
    }
    let isa = Isa::detect();
    // Computed as [N, T], so that each block of weight rows owns one contiguous piece of the output.
    let mut transposed = vec![0.0; rows * outputs];
    let block = block_rows(outputs, inputs);
    for_each_chunk(&mut transposed, block * rows, x.len() * outputs, |index, out| {
        let start = index * block * inputs;
        let columns = out.len() / rows;
        isa.block(x, &weight[start..start + columns * inputs], inputs, out);
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
