//! On a GPU, `make gpu-check`: goldens, the draws of a whole engine, and memory that runs out. Compiled with the feature
//! `cuda`; the kernels one by one are in `crates/model/src/candle/gpu_tests.rs`.

use forebay_core::request::Parameters;
use forebay_model::{
    DeviceChoice, DeviceError, Dtype, KvDtype, LoadError, LoadOptions, LoadedModel, Quantised, Source, load,
};

use crate::models::goldens::{self, ARCHITECTURES};
use crate::support::paged::Cache;
use crate::support::rig::{self, Setup, asking, collect, submit};
use crate::support::server::{Server, post, stream};

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

/// The golden Llama in f32.
fn golden_llama(quantise: Option<Quantised>, cuda_graphs: bool) -> LoadedModel {
    let (dtype, kv_dtype) = (Some(Dtype::F32), Some(KvDtype::F32));
    let options = LoadOptions { device: GPU, dtype, kv_dtype, quantise, cuda_graphs, ..LoadOptions::default() };
    let mut loaded = load(&Source::Folder(goldens::folder("llama")), &options).expect("a GPU");
    loaded.model.allocate_kv(Cache::BLOCKS, BLOCK_SIZE).expect("memory");
    loaded
}

/// Token by token is one decode after another, which is what is recorded; chunks between them are not, and make whatever
/// grows with a batch grow.
#[test]
fn recordings_give_what_steps_give() {
    for quantise in [None, Some(Quantised::Q8_0)] {
        let golden = goldens::golden("llama");
        let [mut plain, mut recorded] = [false, true].map(|graphs| golden_llama(quantise, graphs));
        for chunk in [1, 3, 1, 8, 1] {
            let [(expected, tokens), (logits, greedy)] =
                [&mut plain, &mut recorded].map(|loaded| goldens::run_in(loaded, &golden, (chunk, 0), BLOCK_SIZE));
            assert_eq!(greedy, tokens, "{quantise:?}, chunks of {chunk}");
            let worst = logits.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst <= 1e-5, "{quantise:?}, chunks of {chunk}: {worst:e}");
        }
    }
}

/// Products round activations to eight bits there, so this is near the golden, no more.
#[test]
fn quantised_weights_stay_near_the_golden() {
    for quantise in [Quantised::Q8_0, Quantised::Q4K] {
        let golden = goldens::golden("llama");
        let (logits, _) = goldens::run_in(&mut golden_llama(Some(quantise), false), &golden, (8, 0), BLOCK_SIZE);
        let size = golden.logits.iter().map(|x| x * x).sum::<f32>();
        let off = logits.iter().zip(&golden.logits).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
        println!("{quantise:?}: {:e} of the logits' size", (off / size).sqrt());
        assert!((off / size).sqrt() < 0.2, "{quantise:?}: {off} of {size}");
    }
}

/// What a server tells, in one piece and as it comes.
async fn told(args: &[&str], graphs: &str) -> (String, String) {
    let same = [("FOREBAY__KV_CACHE__DTYPE", "f32"), ("FOREBAY__MODEL__CUDA_GRAPHS", graphs)];
    let server = Server::start_in(args, &same);
    let body = serde_json::json!({
        "model": "default",
        "messages": [{"role": "user", "content": "Once upon a time there was a lighthouse"}],
        "temperature": 0,
        "max_tokens": 40,
    });
    let (status, answer) = post(server.at("/v1/chat/completions"), body.clone()).await;
    assert_eq!(status, 200, "{answer}");
    let whole = answer["choices"][0]["message"]["content"].as_str().expect("a text").to_owned();
    let frames = stream(server.at("/v1/chat/completions"), body).await;
    (whole, frames.iter().filter_map(|frame| frame["choices"][0]["delta"]["content"].as_str()).collect())
}

#[tokio::test]
async fn a_server_tells_what_it_tells_on_the_cpu() {
    let (expected, _) = told(&["--device", "cpu"], "false").await;
    for graphs in ["false", "true"] {
        let (whole, streamed) = told(&["--device", "cuda", "--dtype", "f32"], graphs).await;
        assert_eq!(whole, expected, "graphs: {graphs}");
        assert_eq!(streamed, expected, "graphs: {graphs}");
    }
}

/// With logprobs rows are read and drawn from on the CPU.
#[tokio::test]
async fn drawn_on_the_device_and_from_its_logits() {
    let rig = rig::storyteller(Setup { device: GPU, ..Setup::default() });
    let mut both = Vec::new();
    for told in [true, false] {
        let warm = |raw| Parameters {
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
