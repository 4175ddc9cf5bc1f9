//! Each kernel against its definition, on a GPU: `make gpu-check`. Odd shapes, every pair of types.

use candle_core::{DType, Device, Tensor};

use super::backend::Candle;
use super::device;
use super::kv::{Kv, cached};
use crate::pass::backend::{AttentionShape, Backend};
use crate::pass::rope::Angles;
use crate::types::batch::Step;
use crate::types::forward::Draw;
use crate::types::options::{DeviceChoice, Dtype};
use crate::types::spec::decoder::Activation;
use forebay_core::request::SamplingParams;
use forebay_kernels::attention::Chunk;

const TYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

fn both(dtype: Dtype, group: usize) -> [Candle; 2] {
    let gpu = device::open(DeviceChoice::Cuda(0)).expect("a GPU").expect("a device");
    [Device::Cpu, gpu].map(|device| Candle::new(device, dtype, group))
}

/// Seeded, between -1 and 1.
fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn tensor(candle: &Candle, rows: usize, width: usize, seed: u64) -> Tensor {
    let numbers = Tensor::from_vec(noise(rows * width, seed), (rows, width), &Device::Cpu).unwrap();
    numbers.to_dtype(candle.on.dtype).unwrap().to_device(&candle.on.device).unwrap()
}

fn numbers(x: &Tensor) -> Vec<f32> {
    x.flatten_all().unwrap().to_dtype(DType::F32).unwrap().to_vec1().unwrap()
}

/// Of numbers near one.
fn allowed(dtypes: &[Dtype]) -> f32 {
    let one = |dtype: &Dtype| match dtype {
        Dtype::F32 => 2e-5,
        Dtype::F16 => 4e-3,
        Dtype::Bf16 => 3e-2,
    };
    dtypes.iter().map(one).fold(0.0, f32::max)
}

fn check(what: &str, [cpu, gpu]: [&Tensor; 2], allowed: f32) {
    let (expected, got) = (numbers(cpu), numbers(gpu));
    let worst = expected.iter().zip(&got).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(expected.len() == got.len() && got.iter().all(|x| x.is_finite()), "{what}");
    assert!(worst <= allowed, "{what}: {worst:e} of {allowed:e}");
}

/// Chunks `(context, rows)` over blocks in a scattered order.
fn step(chunks: &[(usize, usize)], block_size: usize) -> Step {
    let mut step = Step { block_size, ..Step::default() };
    let total: usize = chunks.iter().map(|(context, _)| context.div_ceil(block_size)).sum();
    let mut free: Vec<u32> = (0..total as u32).collect();
    free.sort_by_key(|block| u64::from(*block).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for &(context, rows) in chunks {
        let (start, table) = (step.tokens.len(), step.tables.len());
        step.tables.extend(free.drain(..context.div_ceil(block_size)));
        for position in context - rows..context {
            let slot = step.tables[table + position / block_size] as usize * block_size + position % block_size;
            step.tokens.push(1);
            step.positions.push(position as u32);
            step.slots.push(slot as u32);
        }
        let (rows, table) = (start..step.tokens.len(), table..step.tables.len());
        step.chunks.push(Chunk { position: context - rows.len(), rows, table });
    }
    step
}

fn attended(candle: &Candle, step: &Step, kv_dtype: DType, shape: &AttentionShape) -> Tensor {
    let AttentionShape { heads, kv_heads, head_dim, .. } = *shape;
    let rows = step.tokens.len();
    let slots = (step.tables.len()) * step.block_size;
    let cache = |seed| {
        let numbers =
            Tensor::from_vec(noise(slots * kv_heads * head_dim, seed), (slots, kv_heads * head_dim), &Device::Cpu);
        numbers.unwrap().to_dtype(kv_dtype).unwrap().to_device(&candle.on.device).unwrap()
    };
    let mut kv = Kv { keys: cache(1), values: cache(2) };
    let plan = candle.plan(step, &[]).unwrap();
    let [k, v] = [3, 4].map(|seed| tensor(candle, rows, kv_heads * head_dim, seed));
    candle.store(&mut kv, &plan, &k, &v).unwrap();
    candle.attention(&tensor(candle, rows, heads * head_dim, 5), &kv, &plan, shape).unwrap()
}

#[test]
fn attention_and_store_agree_with_their_definition() {
    let mixes: [&[(usize, usize)]; 4] =
        [&[(1, 1), (300, 1), (17, 1)], &[(33, 33), (70, 5)], &[(1, 1), (129, 64), (700, 1), (31, 30)], &[(600, 3)]];
    for (head_dim, heads, kv_heads) in [(64, 4, 4), (128, 8, 1), (80, 6, 2), (16, 21, 3), (256, 4, 2), (40, 24, 3)] {
        for (at, mix) in mixes.iter().enumerate() {
            let block_size = [16, 32, 64, 32][at];
            let shape = AttentionShape {
                heads,
                kv_heads,
                head_dim,
                scale: (head_dim as f32).powf(-0.5),
                cap: (at == 1).then_some(20.0),
                window: (at == 2).then_some(100),
                causal: at != 3,
            };
            for dtype in TYPES {
                for kv_dtype in TYPES {
                    let [cpu, gpu] = both(dtype, heads / kv_heads);
                    let kept = cached(kv_dtype.cached()).unwrap();
                    let step = step(mix, block_size);
                    let [expected, got] = [&cpu, &gpu].map(|on| attended(on, &step, kept, &shape));
                    let what = format!("{} over {}, {shape:?}, {mix:?}", dtype.name(), kv_dtype.name());
                    check(&what, [&expected, &got], allowed(&[dtype, kv_dtype]));
                }
            }
        }
    }
}

#[test]
fn small_ops_agree_with_their_definitions() {
    for dtype in TYPES {
        let [cpu, gpu] = both(dtype, 1);
        let allowed = 4.0 * allowed(&[dtype]);
        for (rows, width) in [(1, 8), (3, 64), (5, 1_000), (2, 4_096), (129, 128)] {
            let normed = [&cpu, &gpu].map(|on| {
                let weight = tensor(on, 1, width, 9).flatten_all().unwrap();
                on.rms_norm(&tensor(on, rows, width, 8), &weight, 1e-6).unwrap()
            });
            check("norm", [&normed[0], &normed[1]], allowed);
            for activation in [Activation::Silu, Activation::Gelu, Activation::GeluTanh] {
                let gated = [&cpu, &gpu]
                    .map(|on| on.gate(tensor(on, rows, width, 10), &tensor(on, rows, width, 11), activation).unwrap());
                check("gate", [&gated[0], &gated[1]], allowed);
            }
        }
        for (heads, head_dim, dims) in [(1, 64, 64), (5, 80, 20), (32, 128, 128)] {
            let step = step(&[(3, 3), (70, 1)], 32);
            let angles = Angles { cos: noise(4 * dims / 2, 12), sin: noise(4 * dims / 2, 13), dims };
            let turned = [&cpu, &gpu].map(|on| {
                let plan = on.plan(&step, std::slice::from_ref(&angles)).unwrap();
                on.rope(tensor(on, 4, heads * head_dim, 14), &plan, head_dim, 0).unwrap()
            });
            check("rope", [&turned[0], &turned[1]], allowed);
        }
    }
}

#[test]
fn tokens_are_drawn_as_on_the_cpu() {
    let [cpu, gpu] = both(Dtype::F32, 1);
    let (rows, vocab) = (64, 32_003);
    let plain = SamplingParams { temperature: 0.8, seed: 3, ..SamplingParams::GREEDY };
    let all = [
        SamplingParams::GREEDY,
        plain,
        SamplingParams { top_k: 40, ..plain },
        SamplingParams { top_p: 0.9, ..plain },
        SamplingParams { min_p: 0.05, ..plain },
        SamplingParams { top_k: 100, top_p: 0.8, min_p: 0.01, ..plain },
    ];
    let mut differing = 0;
    for (at, params) in all.into_iter().enumerate() {
        let draws: Vec<(usize, Draw)> =
            (0..rows).map(|row| (row, Draw::new(params, row as u32 * 7).expect("plain"))).collect();
        let drawn = [&cpu, &gpu].map(|on| {
            let logits = (tensor(on, rows, vocab, 20 + at as u64) * 8.0).unwrap();
            on.sample(&logits, vocab, &draws).unwrap()
        });
        assert!(at > 0 || drawn[0] == drawn[1], "greedy");
        differing += drawn[0].iter().zip(&drawn[1]).filter(|(a, b)| a != b).count();
    }
    // A uniform number within a rounding of a boundary may fall on its other side.
    assert!(differing <= 2, "{differing} of {}", rows * all.len());
    let mut bad = noise(3 * vocab, 30);
    bad[vocab + 5] = f32::NAN;
    bad[2 * vocab..].fill(f32::NEG_INFINITY);
    let draws: Vec<(usize, Draw)> = (0..3).map(|row| (row, Draw::new(plain, 1).expect("plain"))).collect();
    let logits = Tensor::from_vec(bad, (3, vocab), &gpu.on.device).unwrap();
    let drawn = gpu.sample(&logits, vocab, &draws).unwrap();
    assert!(drawn[0].is_some() && drawn[1].is_none() && drawn[2].is_none(), "{drawn:?}");
}
