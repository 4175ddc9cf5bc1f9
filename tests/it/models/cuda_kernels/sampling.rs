//! Draws, beside those of `forebay-core`'s `sampling` from the same logits.

use forebay_core::request::SamplingParams;
use forebay_core::sampling::{sample, uniform};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::device::{Argument, Device};
use super::kind::{KINDS, Kind};

/// One row of a launch.
struct Draw {
    /// Of the logits.
    row: usize,
    params: SamplingParams,
    position: u32,
}

/// Draws on the device; `logits` is `[rows, vocab]`.
fn drawn(device: &mut Device, kind: Kind, logits: &[f32], vocab: usize, draws: &[Draw]) -> Vec<u32> {
    device.clear();
    let floats = |of: fn(&SamplingParams) -> f32| draws.iter().map(|draw| of(&draw.params)).collect::<Vec<f32>>();
    let numbers = |random: &Draw| uniform(random.params.seed, random.position).to_le_bytes();
    let logits = device.numbers(kind, logits);
    let rows = device.indices(&draws.iter().map(|draw| draw.row as u32).collect::<Vec<_>>());
    let temperature = device.numbers(Kind::F32, &floats(|params| params.temperature));
    let min_p = device.numbers(Kind::F32, &floats(|params| params.min_p));
    let top_k = device.indices(&draws.iter().map(|draw| draw.params.top_k).collect::<Vec<_>>());
    let top_p = device.numbers(Kind::F32, &floats(|params| params.top_p));
    let uniforms = device.array(&draws.iter().flat_map(numbers).collect::<Vec<u8>>());
    let tokens = device.indices(&vec![0xdead; draws.len()]);
    let arrays = [logits, rows, temperature, min_p, top_k, top_p, uniforms, tokens].map(Argument::Array);
    let arguments = [&arrays[..], &[Argument::U32(vocab as u32)]].concat();
    device.launch(&format!("sample_{}", kind.name()), [draws.len(), 1, 1], 1024, &arguments);
    device.read(tokens).chunks(4).map(|four| u32::from_le_bytes(four.try_into().unwrap())).collect()
}

/// The bell that logits of a vocabulary are, and a few tokens that stand out.
fn logits(kind: Kind, vocab: usize, seed: u64) -> Vec<f32> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut bell = || (0..12).map(|_| random.random_range(-0.5f32..0.5)).sum::<f32>() * 2.5;
    let mut row: Vec<f32> = (0..vocab).map(|_| bell()).collect();
    for token in 0..vocab.min(5) {
        row[token * 7919 % vocab] += 7.0;
    }
    row.into_iter().map(|logit| kind.rounded(logit)).collect()
}

const ALL: SamplingParams = SamplingParams { temperature: 1.0, ..SamplingParams::GREEDY };

#[test]
fn draws_are_those_of_src_sampling() {
    let Some(mut device) = Device::start() else { return };
    let settings = [
        SamplingParams::GREEDY,
        ALL,
        SamplingParams { temperature: 0.01, ..ALL },
        SamplingParams { temperature: 1.7, top_k: 40, ..ALL },
        SamplingParams { top_p: 0.9, ..ALL },
        SamplingParams { top_p: 0.0, ..ALL },
        SamplingParams { min_p: 0.05, temperature: 2.0, ..ALL },
        SamplingParams { top_k: 1, ..ALL },
        SamplingParams { top_k: 100_000, top_p: 0.999, temperature: 1.3, ..ALL },
        SamplingParams { top_k: 300, top_p: 0.7, min_p: 0.001, temperature: 2.0, ..ALL },
    ];
    for kind in KINDS {
        // 16-bit logits have many ties.
        for vocab in [1, 33, 1000, 3001] {
            let rows: Vec<Vec<f32>> = (0..2).map(|row| logits(kind, vocab, row * 31 + vocab as u64)).collect();
            let each = |(index, params): (usize, &SamplingParams)| Draw {
                row: index % 2,
                params: SamplingParams { seed: index as u64, ..*params },
                position: vocab as u32 + index as u32,
            };
            let draws: Vec<Draw> = settings.iter().cycle().take(20).enumerate().map(each).collect();
            device.seed = vocab as u64;
            let found = drawn(&mut device, kind, &rows.concat(), vocab, &draws);
            for (draw, token) in draws.iter().zip(found) {
                let expected = sample(&rows[draw.row], &draw.params, draw.position, None).expect("a token").token;
                assert_eq!(token, expected, "{kind:?} of {vocab}: {:?}", draw.params);
            }
        }
    }
}

/// The order of threads changes nothing: sums are exact.
#[test]
fn draws_do_not_depend_on_the_order_of_threads() {
    let Some(mut device) = Device::start() else { return };
    let row = logits(Kind::Bf16, 2100, 3);
    let draw = |seed: u64| {
        let params = SamplingParams { top_k: 500, top_p: 0.95, temperature: 1.5, seed, ..ALL };
        Draw { row: 0, params, position: 0 }
    };
    let draws: Vec<Draw> = (0..6).map(draw).collect();
    let mut found = Vec::new();
    for seed in 1..4 {
        device.seed = seed;
        found.push(drawn(&mut device, Kind::Bf16, &row, 2100, &draws));
    }
    assert!(found.windows(2).all(|two| two[0] == two[1]), "{found:?}");
}

#[test]
fn ties_forbidden_tokens_and_numbers_that_are_none() {
    let Some(mut device) = Device::start() else { return };
    let (no, vocab) = (f32::NEG_INFINITY, 40);
    let with = |changes: &[(usize, f32)]| {
        let mut row = vec![no; vocab];
        changes.iter().for_each(|&(token, logit)| row[token] = logit);
        row
    };
    let rows = [
        with(&[(9, 1.0), (3, 1.0), (39, 1.0)]),
        with(&[(5, -0.0), (8, 0.0)]),
        with(&[(17, -3e38)]),
        with(&[]),
        with(&[(2, 1.0), (30, f32::NAN)]),
        with(&[(2, 1.0), (30, f32::INFINITY)]),
    ];
    let params =
        [SamplingParams::GREEDY, ALL, SamplingParams { top_k: 2, ..ALL }, SamplingParams { top_p: 0.6, ..ALL }];
    let draw = |(row, params): (usize, &SamplingParams)| Draw { row, params: *params, position: 5 };
    let draws: Vec<Draw> = (0..rows.len()).flat_map(|row| params.iter().map(move |one| draw((row, one)))).collect();
    let found = drawn(&mut device, Kind::F32, &rows.concat(), vocab, &draws);
    for (draw, token) in draws.iter().zip(found) {
        let expected =
            sample(&rows[draw.row], &draw.params, draw.position, None).map_or(u32::MAX, |sampled| sampled.token);
        assert_eq!(token, expected, "row {}, {:?}", draw.row, draw.params);
    }
}
