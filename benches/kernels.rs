//! Products with block-quantised weights at the shapes of a 0.6B model, integer panels beside unpacking to `f32`.
//!
//! Criterion prints operations (two per weight and row) and bytes of weights per second. Weights are cycled through, so
//! that one row streams them from memory as a model's step does. Compare lines of one run with each other.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use forebay_kernels::isa::Isa;
use forebay_kernels::matmul::matmul_packed_into;
use forebay_kernels::packed::Packing;
use forebay_kernels::quant::{self, Panels, QuantisedRows};

const PACKINGS: [Packing; 5] = [Packing::Q4_0, Packing::Q8_0, Packing::Q4K, Packing::Q5K, Packing::Q6K];
/// Inputs and outputs: attention, both directions of the MLP, the head.
const SHAPES: [(usize, usize); 4] = [(1024, 2048), (1024, 3072), (3072, 1024), (1024, 151_936)];
const ROWS: [usize; 4] = [1, 8, 32, 512];
/// More weights than any second-level cache holds.
const STREAMED_BYTES: usize = 64 << 20;
/// Products of more multiplications than this would take seconds on the path for comparison.
const MOST: usize = 1 << 33;

/// Arbitrary bytes; scales stay finite, as exponents of all ones are avoided.
fn weights(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8 & 0x3f
    };
    (0..bytes).map(|_| next()).collect()
}

fn products(criterion: &mut Criterion) {
    println!("instructions: {}", Isa::current().name());
    for packing in PACKINGS {
        for (inputs, outputs) in SHAPES {
            let Some(row_bytes) = packing.row_bytes(inputs) else { continue };
            let bytes = weights(row_bytes * outputs);
            let copies = STREAMED_BYTES.div_ceil(bytes.len());
            let panels: Vec<Panels> =
                (0..copies).map(|_| Panels::repack(packing, &bytes, inputs, |_| {}).expect("memory")).collect();
            let mut group = criterion.benchmark_group(format!("{}/{inputs}x{outputs}", packing.name()));
            for rows in ROWS.into_iter().filter(|rows| rows * inputs * outputs <= MOST) {
                let x: Vec<f32> = (0..rows * inputs).map(|i| (i * 7919 % 1009) as f32 / 1009.0 - 0.5).collect();
                let elements = 2 * (rows * inputs * outputs) as u64;
                group.throughput(Throughput::ElementsAndBytes { elements, bytes: bytes.len() as u64 });
                let mut turn = panels.iter().cycle();
                let (mut rounded, mut y) = (QuantisedRows::default(), vec![0.0; rows * outputs]);
                group.bench_function(BenchmarkId::new("panels", rows), |b| {
                    b.iter(|| {
                        rounded.round(black_box(&x), inputs, panels[0].rounding_group());
                        quant::matmul_into(&rounded, turn.next().expect("a cycle"), &mut y);
                    });
                });
                group.bench_function(BenchmarkId::new("unpacked", rows), |b| {
                    b.iter(|| matmul_packed_into(black_box(&x), packing, &bytes, inputs, &mut y));
                });
            }
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(std::time::Duration::from_millis(100))
        .measurement_time(std::time::Duration::from_millis(500));
    targets = products
}
criterion_main!(benches);
