//! Paged attention against a naive one over contiguous keys and values in double precision.

use super::*;

const BLOCK: usize = 4;
const BLOCKS: usize = 16;

fn shape(window: Option<usize>) -> Shape {
    Shape { heads: 4, kv_heads: 2, head_dim: 20, block_size: BLOCK, scale: 0.3, window }
}

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 * 2.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A cache full of NaN, except where `table` puts the rows of `contiguous` (`[len, kv_heads, head_dim]`).
fn paged(contiguous: &[f32], table: &[u32], shape: &Shape) -> Vec<f32> {
    let width = shape.kv_heads * shape.head_dim;
    let mut cache = vec![f32::NAN; BLOCKS * BLOCK * width];
    for (position, row) in contiguous.chunks(width).enumerate() {
        let slot = table[position / BLOCK] as usize * BLOCK + position % BLOCK;
        cache[slot * width..][..width].copy_from_slice(row);
    }
    cache
}

fn naive(q: &[f32], keys: &[f32], values: &[f32], position: usize, shape: &Shape) -> Vec<f64> {
    let (dim, group) = (shape.head_dim, shape.heads / shape.kv_heads);
    let start = shape.window.map_or(0, |w| (position + 1).saturating_sub(w));
    let mut out = Vec::new();
    for head in 0..shape.heads {
        let at = |position: usize, i: usize| (position * shape.kv_heads + head / group) * dim + i;
        let weight = |p: usize| {
            let score: f64 = (0..dim).map(|i| q[head * dim + i] as f64 * keys[at(p, i)] as f64).sum();
            (score * shape.scale as f64).exp()
        };
        let total: f64 = (start..=position).map(weight).sum();
        for i in 0..dim {
            out.push((start..=position).map(|p| weight(p) * values[at(p, i)] as f64).sum::<f64>() / total);
        }
    }
    out
}

#[test]
fn agrees_with_the_naive_one_with_and_without_a_window() {
    for window in [None, Some(1), Some(5), Some(100)] {
        let shape = shape(window);
        let (len, width) = (23, shape.kv_heads * shape.head_dim);
        let (keys, values) = (numbers(len * width, 1), numbers(len * width, 2));
        let q = numbers(len * shape.heads * shape.head_dim, 3);
        let table = [7u32, 2, 11, 0, 15, 4];
        let queries: Vec<Query> = (0..len).map(|position| Query { position, table: &table }).collect();
        let out = attention(&q, &paged(&keys, &table, &shape), &paged(&values, &table, &shape), &queries, &shape);
        let row = shape.heads * shape.head_dim;
        for position in 0..len {
            let exact = naive(&q[position * row..][..row], &keys, &values, position, &shape);
            for (got, exact) in out[position * row..][..row].iter().zip(exact) {
                assert!((*got as f64 - exact).abs() < 1e-5, "window {window:?} position {position}");
            }
        }
    }
}

#[test]
fn neighbours_blocks_and_threads_leave_no_trace() {
    let shape = shape(None);
    let (len, width, row) = (60, shape.kv_heads * shape.head_dim, shape.heads * shape.head_dim);
    let (keys, values, q) = (numbers(len * width, 4), numbers(len * width, 5), numbers(len * row, 6));
    let run = |table: &[u32], positions: std::ops::Range<usize>| {
        let queries: Vec<Query> = positions.clone().map(|position| Query { position, table }).collect();
        let (keys, values) = (paged(&keys, table, &shape), paged(&values, table, &shape));
        attention(&q[positions.start * row..positions.end * row], &keys, &values, &queries, &shape)
    };
    let straight: Vec<u32> = (0..15).collect();
    let shuffled: Vec<u32> = (0..15).map(|i| (i * 7 + 3) % 16).collect();
    let whole = run(&straight, 0..len);
    assert!(whole.iter().all(|v| v.is_finite()));
    let alone: Vec<f32> = (0..len).flat_map(|position| run(&shuffled, position..position + 1)).collect();
    assert_eq!(whole, alone);
    for threads in [1, 2, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert_eq!(pool.install(|| run(&shuffled, 0..len)), whole, "{threads} threads");
    }
}
