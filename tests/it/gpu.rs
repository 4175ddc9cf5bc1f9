//! On a GPU, `make gpu-check`: goldens, the draws of a whole engine, and memory that runs out. Compiled with the feature
//! `cuda`; the kernels one by one are in `src/model/candle/gpu_tests.rs`.

use forebay::model::{DeviceChoice, DeviceError, Dtype, KvDtype, LoadError, LoadOptions, Source, load};
use forebay::request::RawRequest;

use crate::goldens::{self, ARCHITECTURES};
use crate::paged::Cache;
use crate::rig::{self, Setup, asking, collect, submit};

const GPU: DeviceChoice = DeviceChoice::Cuda(0);
const TOLERANCE: f32 = 2e-3;
/// What the kernels take, unlike [`Cache::BLOCK_SIZE`].
const BLOCK_SIZE: usize = 16;

#[test]
fn goldens_in_f32() {
    for architecture in ARCHITECTURES {
        for (chunk, strangers) in [(64, 0), (7, 3), (1, 0)] {
            let golden = goldens::golden(architecture);
            let (dtype, kv_dtype) = (Some(Dtype::F32), Some(KvDtype::F32));
            let options = LoadOptions { device: GPU, dtype, kv_dtype, ..LoadOptions::default() };
            let mut loaded = load(&Source::Folder(goldens::folder(architecture)), &options).expect("a GPU");
            loaded.model.allocate_kv(Cache::BLOCKS, BLOCK_SIZE).expect("memory");
            let (logits, greedy) = goldens::run_in(&mut loaded, &golden, (chunk, strangers), BLOCK_SIZE);
            let worst = logits.iter().zip(&golden.logits).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            println!("{architecture}, chunks of {chunk}: max |Δlogit| = {worst:e}");
            assert!(worst <= TOLERANCE, "{architecture}: {worst:e}");
            assert_eq!(greedy, golden.greedy, "{architecture}");
        }
    }
}

/// With logprobs rows are read and drawn from on the CPU.
#[tokio::test]
async fn drawn_on_the_device_and_from_its_logits() {
    let rig = rig::storyteller(Setup { device: GPU, ..Setup::default() });
    let mut both = Vec::new();
    for told in [true, false] {
        let warm = |raw| RawRequest {
            temperature: Some(0.8),
            top_k: Some(50),
            seed: Some(5),
            logprobs: told.then_some(0),
            logprobs_param: "logprobs",
            ..raw
        };
        let requests = (0..16).map(|i| asking(&[5 + i, 9, 17, 33], 32, warm)).collect();
        let mut completions = Vec::new();
        for events in submit(&rig.handle, requests).await.expect("accepted") {
            completions.push(collect(events).await);
        }
        both.push(completions);
    }
    assert_eq!(both[0], both[1]);
}

#[test]
fn a_cache_larger_than_the_memory_is_refused_and_the_device_lives() {
    let options = LoadOptions { device: GPU, ..LoadOptions::default() };
    let mut loaded = load(&Source::Folder(goldens::folder("llama")), &options).expect("a GPU");
    let room = loaded.model.device_memory().expect("an answer").expect("memory of its own");
    let blocks = 2 * room.total / (loaded.model.kv_bytes_per_token() * 32);
    let error = loaded.model.allocate_kv(blocks, 32).expect_err("twice what there is");
    assert!(matches!(error, DeviceError::OutOfMemory(_)), "{error}");
    assert!(error.to_string().contains("kv_cache.memory"), "{error}");
    loaded.model.allocate_kv(Cache::BLOCKS, BLOCK_SIZE).expect("a small one fits");
    let golden = goldens::golden("llama");
    goldens::run_in(&mut loaded, &golden, (64, 0), BLOCK_SIZE);
}

#[test]
fn an_ordinal_that_does_not_exist_is_named() {
    let options = LoadOptions { device: DeviceChoice::Cuda(999), ..LoadOptions::default() };
    let error = load(&Source::Folder(goldens::folder("llama")), &options).err();
    assert!(matches!(error, Some(LoadError::NoSuchGpu { ordinal: 999, .. })), "{error:?}");
}
