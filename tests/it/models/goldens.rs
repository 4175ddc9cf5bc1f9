//! Each architecture against the answers of the reference implementation (`tests/goldens/`), on both backends and under
//! every batching: in one prefill, in chunks of 7, token by token, with strangers in every forward, preempted and resumed.

use std::path::{Path, PathBuf};

use crate::support::paged::{Cache, Sequence, forward, forward_in};
use forebay_model::{DeviceChoice, KvDtype, LoadOptions, LoadedModel, Rows, Source, load};
use safetensors::SafeTensors;

pub const ARCHITECTURES: [&str; 13] = [
    "llama",
    "llama3-rope",
    "mistral-window",
    "qwen2",
    "qwen3",
    "olmo2",
    "gemma2",
    "gemma3",
    "phi3",
    "granite",
    "smollm3",
    "mixtral",
    "qwen3-moe",
];
const BACKENDS: [DeviceChoice; 2] = [DeviceChoice::Cpu, DeviceChoice::Reference];
pub const TOLERANCE: f32 = 2e-4;

pub struct Golden {
    pub prompt: Vec<u32>,
    /// `[prompt, vocab]`
    pub logits: Vec<f32>,
    pub greedy: Vec<u32>,
}

pub fn folder(architecture: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(architecture)
}

pub fn golden(architecture: &str) -> Golden {
    let bytes = std::fs::read(folder(architecture).join("golden.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let eights = |name| file.tensor(name).unwrap().data().as_chunks::<8>().0.to_vec();
    let tokens = |name| eights(name).into_iter().map(|eight| i64::from_le_bytes(eight) as u32).collect();
    let logits = file.tensor("logits").unwrap().data().as_chunks::<4>().0.to_vec();
    Golden {
        prompt: tokens("prompt"),
        logits: logits.into_iter().map(f32::from_le_bytes).collect(),
        greedy: tokens("greedy"),
    }
}

fn open(architecture: &str, device: DeviceChoice) -> LoadedModel {
    let options = LoadOptions { device, kv_dtype: Some(KvDtype::F32), ..LoadOptions::default() };
    let mut loaded = load(&Source::Folder(folder(architecture)), &options).unwrap();
    loaded.model.allocate_kv(Cache::BLOCKS, Cache::BLOCK_SIZE).unwrap();
    loaded
}

pub fn argmax(logits: &[f32]) -> u32 {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32
}

/// The logits of all prompt positions, then 32 greedy tokens, with the prompt cut into `cuts` and `strangers` beside it.
pub fn run(loaded: &mut LoadedModel, golden: &Golden, chunk: usize, strangers: usize) -> (Vec<f32>, Vec<u32>) {
    run_in(loaded, golden, (chunk, strangers), Cache::BLOCK_SIZE)
}

/// The same over blocks of `size` tokens.
pub fn run_in(
    loaded: &mut LoadedModel,
    golden: &Golden,
    (chunk, strangers): (usize, usize),
    size: usize,
) -> (Vec<f32>, Vec<u32>) {
    let mut cache = Cache::shuffled(11);
    let mut main = Sequence::new(0);
    let mut others: Vec<Sequence> = (1..=strangers as u64).map(Sequence::new).collect();
    let mut logits = Vec::new();
    let mut mixed = 0;
    let mut step = |main: &mut Sequence, tokens: &[u32], at: usize| {
        // Strangers stand before and after: one prefills in threes, the others decode, at depths of their own.
        let stranger_tokens: Vec<Vec<u32>> = (0..strangers)
            .map(|i| (0..if i == 0 { 3 } else { 1 }).map(|j| ((at * 31 + i * 77 + j * 13) % 320) as u32).collect())
            .collect();
        let mut parts: Vec<(&mut Sequence, &[u32])> =
            others.iter_mut().zip(&stranger_tokens).map(|(other, tokens)| (other, &tokens[..])).collect();
        let place = parts.len() / 2;
        parts.insert(place, (main, tokens));
        let several = parts.len() > 1;
        let lengths: Vec<usize> = parts.iter().map(|(_, tokens)| tokens.len()).collect();
        mixed += usize::from(several && lengths.iter().any(|&l| l > 1) && lengths.contains(&1));
        let (out, rows) = forward_in(&mut loaded.model, &mut cache, &mut parts, Rows::All, size);
        rows[place].clone().flat_map(|row| out.row(row).to_vec()).collect::<Vec<f32>>()
    };
    for (at, tokens) in golden.prompt.chunks(chunk).enumerate() {
        logits.extend(step(&mut main, tokens, at));
    }
    let vocab = logits.len() / golden.prompt.len();
    let mut greedy = vec![argmax(&logits[logits.len() - vocab..])];
    while greedy.len() < golden.greedy.len() {
        let row = step(&mut main, &[greedy[greedy.len() - 1]], 100 + greedy.len());
        greedy.push(argmax(&row));
    }
    assert_eq!(mixed > 0, strangers > 0, "several sequences, prefill and decode tokens in one forward");
    (logits, greedy)
}

/// `batching` is (chunk length, strangers).
fn check(batching: (usize, usize)) {
    for architecture in ARCHITECTURES {
        for device in BACKENDS {
            let golden = golden(architecture);
            let (logits, greedy) = run(&mut open(architecture, device), &golden, batching.0, batching.1);
            let worst = logits.iter().zip(&golden.logits).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert_eq!(logits.len(), golden.logits.len());
            assert!(worst <= TOLERANCE, "{architecture} on {device:?}: max |Δlogit| = {worst:e}");
            assert_eq!(greedy, golden.greedy, "{architecture} on {device:?}");
        }
    }
}

#[test]
fn in_one_prefill() {
    check((48, 0));
}

#[test]
fn in_chunks_of_seven() {
    check((7, 0));
}

#[test]
fn token_by_token() {
    check((1, 0));
}

#[test]
fn with_three_strangers_in_every_forward() {
    check((7, 3));
}

/// What preemption does to a sequence: its blocks are taken away at any point, and everything so far is computed again, in
/// other blocks and other chunks, before it goes on.
#[test]
fn preempted_and_resumed() {
    for architecture in ARCHITECTURES {
        for device in BACKENDS {
            let golden = golden(architecture);
            let mut loaded = open(architecture, device);
            let mut cache = Cache::shuffled(3);
            let mut tokens = golden.prompt.clone();
            // Preempted in its prefill, and after some tokens; each time what was computed is lost.
            for (first, new) in [(20, 0), (31, 9), (48, 14), (5, 9)] {
                let mut sequence = Sequence::new(0);
                let chunks = [&tokens[..first], &tokens[first..]];
                let kept = if new == 0 { &chunks[..1] } else { &chunks[..] };
                let mut last = Default::default();
                for chunk in kept.iter().filter(|chunk| !chunk.is_empty()) {
                    last = forward(&mut loaded.model, &mut cache, &mut [(&mut sequence, chunk)], Rows::Sampled).0.data;
                }
                for _ in 0..new {
                    let token = argmax(&last);
                    tokens.push(token);
                    last =
                        forward(&mut loaded.model, &mut cache, &mut [(&mut sequence, &[token])], Rows::Sampled).0.data;
                }
                cache.free(sequence);
            }
            assert_eq!(tokens[golden.prompt.len()..], golden.greedy, "{architecture} on {device:?}");
        }
    }
}

#[test]
fn on_the_cpu_all_batchings_and_thread_counts_agree_bit_for_bit() {
    for architecture in ARCHITECTURES {
        let golden = golden(architecture);
        let mut loaded = open(architecture, DeviceChoice::Cpu);
        let mut bits = |chunk, strangers| -> Vec<u32> {
            run(&mut loaded, &golden, chunk, strangers).0.iter().map(|logit| logit.to_bits()).collect()
        };
        let solo = bits(48, 0);
        for (chunk, strangers) in [(7, 0), (1, 0), (5, 3), (48, 2)] {
            assert!(bits(chunk, strangers) == solo, "{architecture}, chunks of {chunk}, {strangers} strangers");
        }
        for threads in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert!(pool.install(|| bits(9, 1)) == solo, "{architecture}, {threads} threads");
        }
    }
}
