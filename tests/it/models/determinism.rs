//! The answers never depend on the batch: raw bits of logits, over models, batch sizes, chunks, threads and cache formats.
//!
//! `prefix.rs` and `engine.rs` show the same for cache hits, preemption and the loop around it.

use candle_core::quantized::GgmlDType;
use forebay_model::{DeviceChoice, KvDtype, LoadOptions, Model, Rows, Source, load};
use tempfile::TempDir;

use crate::models::gguf;
use crate::support::gguf_file::GgufFile;
use crate::support::paged::{Cache, Sequence, forward};

const PROMPT: usize = 70;
const BLOCKS: usize = 1_024;

/// How a prompt meets the model.
#[derive(Clone, Copy, Debug)]
struct Batching {
    chunk: usize,
    /// Other sequences in each step: one prefills by threes, the rest decode.
    strangers: usize,
    threads: usize,
    /// Where its blocks lie.
    seed: u64,
}

const ALONE: Batching = Batching { chunk: PROMPT, strangers: 0, threads: 1, seed: 1 };

fn matrix() -> Vec<Batching> {
    let mut all = Vec::new();
    for (index, &chunk) in [1, 2, 5, 16, 33, 64, PROMPT].iter().enumerate() {
        for (other, &strangers) in [0, 1, 3, 7, 15, 31].iter().enumerate() {
            all.push(Batching { chunk, strangers, threads: 1 + (index + other) % 4, seed: (index * 7 + other) as u64 });
        }
    }
    all
}

/// The bits of all logits of the prompt.
fn bits(model: &mut Model, batching: Batching) -> Vec<u32> {
    let Batching { chunk, strangers, threads, seed } = batching;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    let prompt: Vec<u32> = (0..PROMPT as u32).map(|i| (i * i * 7 + i * 13) % 300).collect();
    let mut cache = Cache::of(seed, BLOCKS);
    let mut main = Sequence::new(0);
    let mut others: Vec<Sequence> = (1..=strangers as u64).map(Sequence::new).collect();
    let mut all = Vec::new();
    for (at, tokens) in prompt.chunks(chunk).enumerate() {
        let said: Vec<Vec<u32>> = (0..strangers)
            .map(|i| (0..if i == 0 { 3 } else { 1 }).map(|j| ((at * 31 + i * 77 + j * 13) % 300) as u32).collect())
            .collect();
        let mut parts: Vec<(&mut Sequence, &[u32])> =
            others.iter_mut().zip(&said).map(|(other, tokens)| (other, &tokens[..])).collect();
        let place = parts.len() * at / 7 % (parts.len() + 1);
        parts.insert(place, (&mut main, tokens));
        let (logits, rows) = pool.install(|| forward(model, &mut cache, &mut parts, Rows::All));
        all.extend(rows[place].clone().flat_map(|row| logits.row(row)).map(|logit| logit.to_bits()));
    }
    all
}

fn check(name: &str, source: &Source, kv_dtype: KvDtype) {
    let options = LoadOptions { device: DeviceChoice::Cpu, kv_dtype: Some(kv_dtype), ..LoadOptions::default() };
    let mut model = load(source, &options).expect("a model").model;
    model.allocate_kv(BLOCKS, Cache::BLOCK_SIZE).expect("memory");
    let alone = bits(&mut model, ALONE);
    assert!(alone.iter().all(|&bits| f32::from_bits(bits).is_finite()), "{name}");
    for batching in matrix() {
        assert!(bits(&mut model, batching) == alone, "{name}, {}: {batching:?}", kv_dtype.name());
    }
}

fn quantised(packing: GgmlDType) -> (TempDir, Source) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = GgufFile::convert(gguf::wide().path(), packing).write(folder.path());
    (folder, Source::Gguf(file))
}

#[test]
fn the_embedded_model() {
    for kv_dtype in KvDtype::ALL {
        check("storyteller", &Source::Builtin, kv_dtype);
    }
}

#[test]
fn a_q4_k_model() {
    let (_folder, source) = quantised(GgmlDType::Q4K);
    check("Q4_K", &source, KvDtype::F16);
    check("Q4_K", &source, KvDtype::Q8_0);
}

#[test]
fn a_q8_0_model() {
    let (_folder, source) = quantised(GgmlDType::Q8_0);
    check("Q8_0", &source, KvDtype::F16);
}

#[test]
fn a_bf16_model() {
    let (_folder, source) = quantised(GgmlDType::BF16);
    check("BF16", &source, KvDtype::Bf16);
}
