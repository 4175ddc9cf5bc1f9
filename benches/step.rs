//! Steps of the embedded model as ratios: what a batch costs against one sequence, a prompt token against a decode token.
//!
//! `cargo bench` prints criterion's figures; compare rows of one run with each other, not runs with runs.

mod common;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use forebay_core::step::StepBatch;
use forebay_model::{LoadOptions, Model, Rows, Source};

use common::{BLOCK_SIZE, batch};

const CONTEXT: usize = 256;
const BLOCKS_EACH: usize = CONTEXT.div_ceil(BLOCK_SIZE) + 1;

/// Every sequence computes `tokens` tokens from position `start`.
fn step(sequences: usize, start: usize, tokens: usize) -> StepBatch {
    batch(sequences, BLOCKS_EACH, start, tokens, |_, position| (5 + position % 300) as u32)
}

fn model(sequences: usize) -> Model {
    let mut model = forebay_model::load(&Source::Builtin, &LoadOptions::default()).expect("the embedded model").model;
    model.allocate_kv(sequences * BLOCKS_EACH, BLOCK_SIZE).expect("memory");
    model
}

fn steps(criterion: &mut Criterion) {
    let mut model = model(32);
    let mut group = criterion.benchmark_group("decode_at_256");
    for sequences in [1, 8, 32] {
        let step = step(sequences, CONTEXT, 1);
        group.throughput(Throughput::Elements(sequences as u64));
        group.bench_function(BenchmarkId::from_parameter(sequences), |b| {
            b.iter(|| model.forward(&step, Rows::Sampled).expect("a step"));
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("prefill");
    for tokens in [32, 128, 256] {
        let step = step(1, 0, tokens);
        group.throughput(Throughput::Elements(tokens as u64));
        group.bench_function(BenchmarkId::from_parameter(tokens), |b| {
            b.iter(|| model.forward(&step, Rows::Sampled).expect("a step"));
        });
    }
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
