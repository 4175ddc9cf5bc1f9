//! Stores, decode and prefill over odd shapes.

use super::device::Device;
use super::kind::{KINDS, Kind};
use super::paged::{Chunk, Shape, SingleRows, run};

const PLAIN: Shape = Shape {
    kv_heads: 2,
    group: 2,
    head_dim: 64,
    block_size: 16,
    split_len: 64,
    cap: 0.0,
    window: 0,
    causal: true,
    activations: Kind::F32,
    caches: Kind::F32,
};

/// How far an attention's result may lie from the exact one. Values are within ±1, so their means are.
///
/// On 16-bit caches queries and weights are rounded to the cache's type: a score of a few units is off by some of its
/// precision, and each weight by one of it.
fn tolerance(shape: &Shape) -> f64 {
    let products = if shape.caches == Kind::F32 { 3e-6 } else { 3.0 * shape.caches.precision() };
    products + shape.activations.precision()
}

/// Chunks of `(context, rows)`.
fn chunks(shape: &Shape, sizes: &[(usize, usize)]) -> Vec<Chunk> {
    sizes
        .iter()
        .enumerate()
        .map(|(index, &(context, rows))| Chunk::random(shape, context, rows, index as u64 + 1))
        .collect()
}

fn check(device: &mut Device, shape: Shape, sizes: &[(usize, usize)]) {
    let chunks = chunks(&shape, sizes);
    let mut ways = vec![run(device, &shape, &chunks, SingleRows::Prefilled)];
    // A decoded row is the last of its context, so there is nothing that causality hides.
    ways.push(run(device, &shape, &chunks, SingleRows::Decoded));
    for (way, found) in ways.iter().enumerate() {
        for (index, chunk) in chunks.iter().enumerate() {
            let expected = chunk.expected(&shape);
            let off = expected.iter().zip(&found[index]).map(|(e, &f)| (e - f64::from(f)).abs());
            // NaN is no maximum of `f64::max`.
            let worst = off.fold(0.0, |worst: f64, off| if off > worst || off.is_nan() { off } else { worst });
            let limit = tolerance(&shape);
            assert!(worst <= limit, "{shape:?} {:?}, way {way}: {worst} > {limit}", sizes[index]);
        }
    }
}

/// Every kernel, on a mixed batch.
#[test]
fn every_pair_of_types_and_every_dimension_agrees_with_the_definition() {
    let Some(mut device) = Device::start() else { return };
    for activations in KINDS {
        for caches in KINDS {
            for head_dim in [40, 80, 136] {
                let shape = Shape { activations, caches, head_dim, ..PLAIN };
                check(&mut device, shape, &[(37, 21), (131, 1), (0, 0), (1, 1)]);
            }
        }
    }
}

#[test]
fn odd_shapes_agree_with_the_definition() {
    let Some(mut device) = Device::start() else { return };
    for caches in [Kind::F32, Kind::Bf16] {
        let plain = Shape { activations: caches, caches, ..PLAIN };
        for head_dim in [16, 64, 96, 128, 256] {
            check(&mut device, Shape { head_dim, kv_heads: 1, ..plain }, &[(50, 3), (70, 1)]);
        }
        for group in [1, 3, 7, 8, 17, 65] {
            check(&mut device, Shape { group, head_dim: 16, ..plain }, &[(23, 1), (30, 11)]);
        }
        for block_size in [32, 48, 64] {
            check(&mut device, Shape { block_size, head_dim: 24, ..plain }, &[(150, 1), (97, 40), (64, 64), (65, 1)]);
        }
        for window in [1, 5, 16, 63, 100] {
            check(
                &mut device,
                Shape { window, cap: 3.0, head_dim: 32, ..plain },
                &[(200, 70), (193, 1), (17, 17), (3, 1)],
            );
        }
        check(&mut device, Shape { causal: false, ..plain }, &[(33, 33), (80, 20), (9, 1)]);
        check(
            &mut device,
            Shape { split_len: 128, head_dim: 128, ..plain },
            &[(290, 1), (257, 1), (128, 1), (129, 70)],
        );
    }
}

/// Contexts of every length around the borders of slices, tiles and splits.
#[test]
fn contexts_of_every_length_agree_with_the_definition() {
    let Some(mut device) = Device::start() else { return };
    for caches in [Kind::F16, Kind::F32] {
        let shape = Shape { kv_heads: 1, group: 1, head_dim: 16, caches, ..PLAIN };
        let lengths = (1..=18).chain([31, 32, 33, 47, 48, 49, 63, 64, 65, 127, 128, 129, 130, 191, 192, 193]);
        check(&mut device, shape, &lengths.map(|context| (context, 1)).collect::<Vec<_>>());
        let starts: Vec<_> = [0, 1, 15, 16, 17, 63, 64, 65].into_iter().map(|old| (old + 67, 67)).collect();
        check(&mut device, shape, &starts);
    }
}

/// Not a bit of a chunk's result depends on its neighbours, its place in the batch or the order of threads.
#[test]
fn results_depend_on_their_own_sequence_only() {
    let Some(mut device) = Device::start() else { return };
    for caches in KINDS {
        for (head_dim, window) in [(64, 0), (80, 40), (256, 0)] {
            let shape = Shape { activations: caches, caches, head_dim, window, group: 3, kv_heads: 1, ..PLAIN };
            let sizes = [(150, 1), (60, 9), (3, 1), (129, 1), (44, 44)];
            let all = chunks(&shape, &sizes);
            device.seed = 1;
            let together = run(&mut device, &shape, &all, SingleRows::Decoded);
            for seed in 2..5 {
                device.seed = seed;
                assert!(
                    bits(&run(&mut device, &shape, &all, SingleRows::Decoded)) == bits(&together),
                    "{shape:?} {seed}"
                );
            }
            let mut turned =
                run(&mut device, &shape, &all.iter().rev().cloned().collect::<Vec<_>>(), SingleRows::Decoded);
            turned.reverse();
            assert!(bits(&turned) == bits(&together), "{shape:?}: in another order");
            for (chunk, found) in all.iter().zip(&together) {
                let alone = run(&mut device, &shape, std::slice::from_ref(chunk), SingleRows::Decoded);
                assert!(bits(&alone)[0] == bits(std::slice::from_ref(found))[0], "{shape:?}: {} alone", chunk.context);
            }
            rows_do_not_depend_on_the_chunk(&mut device, &shape, &all[4], &together[4]);
        }
    }
}

/// A chunk that is cut in two gives what it gave whole.
fn rows_do_not_depend_on_the_chunk(device: &mut Device, shape: &Shape, whole: &Chunk, found: &[f32]) {
    let (cut, cached) = (13, shape.kv_heads * shape.head_dim);
    let width = shape.heads() * shape.head_dim;
    let part = |from: usize, to: usize| Chunk {
        context: to,
        rows: to - from,
        q: whole.q[from * width..to * width].to_vec(),
        keys: whole.keys[..to * cached].to_vec(),
        values: whole.values[..to * cached].to_vec(),
    };
    let halves = [part(0, cut), part(cut, whole.rows)];
    let parts = run(device, shape, &halves, SingleRows::Decoded).concat();
    assert!(bits(&[parts]) == bits(&[found.to_vec()]), "{shape:?}: cut at {cut}");
}

fn bits(all: &[Vec<f32>]) -> Vec<Vec<u32>> {
    all.iter().map(|numbers| numbers.iter().map(|number| number.to_bits()).collect()).collect()
}
