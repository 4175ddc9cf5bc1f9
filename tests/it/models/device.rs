//! What is asked of a GPU, asked of the backend that drives it, on the CPU: draws beside the logits, 16-bit numbers, and
//! memory that runs out.

use forebay_core::request::{FinishReason, Parameters, RawShaping, Request, RequestError};
use forebay_core::step::{StepBatch, StepOutput};
use forebay_core::units::{SeqId, TokenId};
use forebay_engine::forward::Forward;
use forebay_model::{DeviceChoice, Dtype, KvDtype, LoadError, LoadFormat, LoadOptions, Rows, Source, load};
use forebay_turn::executor::{ExecuteError, Executor};

use crate::models::goldens;
use crate::support::paged::{Cache, Sequence, forward};
use crate::support::rig::{self, Completion, Setup, asking, collect, submit};

fn reference() -> Setup {
    Setup { device: DeviceChoice::Reference, prefix_caching: false, ..Setup::default() }
}

/// All ways to draw; `told` also asks for logprobs.
fn requests(told: bool) -> Vec<Request> {
    let plain = |raw| Parameters { logprobs: told.then_some(1), logprobs_param: "logprobs", ..raw };
    let warm = |raw| Parameters { temperature: Some(0.9), seed: Some(7), ..plain(raw) };
    let shaped =
        |raw| Parameters { shaping: RawShaping { presence_penalty: Some(0.5), ..RawShaping::default() }, ..warm(raw) };
    vec![
        asking(&[5, 9, 17, 33], 12, plain),
        asking(&[6, 9, 17], 12, warm),
        asking(&[7, 9, 17], 12, |raw| Parameters { top_k: Some(5), top_p: Some(0.8), ..warm(raw) }),
        asking(&[8, 9, 17, 1, 2, 3, 4, 5, 6, 7], 12, |raw| Parameters { min_p: Some(0.1), ..warm(raw) }),
        // What devices do not draw themselves.
        asking(&[9, 9, 17], 12, |raw| Parameters { typical_p: Some(0.7), ..warm(raw) }),
        asking(&[10, 9, 17], 12, shaped),
    ]
}

/// With logprobs a row of logits is read and drawn from here, without them it is the device's.
#[tokio::test]
async fn tokens_are_the_same_drawn_on_the_device_and_from_its_logits() {
    let rig = rig::golden(reference(), |forward| forward);
    let mut both = Vec::new();
    for told in [true, false] {
        let running = submit(&rig.handle, requests(told)).await.expect("accepted");
        let mut completions = Vec::new();
        for events in running {
            completions.push(collect(events).await);
        }
        assert!(completions.iter().all(|completion| completion.tokens.len() == 12), "{completions:?}");
        both.push(completions);
    }
    assert_eq!(both[0], both[1]);
    rig.join().await;
}

#[test]
fn rows_that_are_drawn_from_do_not_leave_the_device() {
    let folder = goldens::folder("llama");
    let options = LoadOptions { device: DeviceChoice::Reference, ..LoadOptions::default() };
    let mut model = load(&Source::Folder(folder), &options).unwrap().model;
    model.allocate_kv(8, 16).unwrap();
    assert!(model.draws());
    let batch = StepBatch {
        tokens: vec![1, 2, 3],
        positions: vec![0, 1, 2],
        slots: vec![0, 1, 2],
        tables: vec![forebay_core::units::BlockId(0)],
        chunks: vec![forebay_core::step::BatchChunk {
            seq: SeqId(1),
            rows: 0..3,
            table: 0..1,
            sample: true,
            proposed: 0,
        }],
        copies: vec![],
    };
    let asked = || forebay_model::Asked { rows: Rows::All, states: &[], adapters: &[] };
    let all = model.compute(&batch, asked()).unwrap().logits;
    let greedy = forebay_model::Draw::new(forebay_core::request::SamplingParams::GREEDY, 3);
    assert!(greedy.is_some());
    let (computed, drawn) = model.draw(&batch, asked(), &[greedy, None, greedy]).unwrap();
    assert_eq!(*computed.logits.data, *all.row(1));
    let best = |row| Some(goldens::argmax(all.row(row)));
    assert_eq!(drawn, [best(0), best(2)]);
    assert!(model.draw(&batch, asked(), &[greedy]).is_err(), "a draw for each row, or none");
    let typical =
        forebay_core::request::SamplingParams { typical_p: 0.5, ..forebay_core::request::SamplingParams::GREEDY };
    assert_eq!(forebay_model::Draw::new(typical, 3), None);
}

/// A device that has no memory left whenever a step holds its token.
struct Full {
    inner: Forward,
    token: TokenId,
}

impl Executor for Full {
    fn admit(&mut self, request: &Request) {
        self.inner.admit(request);
    }

    fn run(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecuteError> {
        if batch.tokens.contains(&self.token) {
            fail::cfg("model::device_allocation", "1*return").expect("a failpoint");
        }
        self.inner.run(batch)
    }

    fn forget(&mut self, seq: SeqId) {
        self.inner.forget(seq);
    }
}

/// Never in the continuations below.
const HUGE: TokenId = 319;

#[tokio::test]
async fn memory_that_runs_out_costs_the_request_that_took_it_and_nobody_else() {
    let rig = rig::golden(reference(), |inner| Full { inner, token: HUGE });
    let prompts: Vec<Vec<TokenId>> = (0..3).map(|i| (10 + i..20 + i).collect()).collect();
    let mut alone = Vec::new();
    for prompt in &prompts {
        alone.push(rig.complete(prompt, 8).await);
    }
    assert!(alone.iter().all(|c| c.end == Ok(FinishReason::Length) && !c.tokens.contains(&HUGE)), "{alone:?}");
    rig.handle.pause().await.expect("loop");
    let mut running = Vec::new();
    for prompt in &prompts {
        running.push(rig.submit(prompt, 8).await);
    }
    let huge = rig.submit(&[5, HUGE, 6], 8).await;
    rig.handle.resume().await.expect("loop");
    assert_eq!(collect(huge).await, Completion { tokens: vec![], end: Err(RequestError::OutOfMemory) });
    for (alone, running) in alone.iter().zip(running) {
        assert_eq!(*alone, collect(running).await);
    }
    assert_eq!(rig.complete(&prompts[0], 8).await, alone[0]);
    let after = rig.join().await.snapshot();
    assert_eq!((after.blocks_used, after.running), (0, 0));
}

/// Sixteen bits lose little: greedy tokens may differ where two are close, logits by a few parts in a hundred.
#[test]
fn sixteen_bit_numbers_stay_near_the_goldens() {
    for architecture in ["llama", "gemma2", "qwen3"] {
        let golden = goldens::golden(architecture);
        let largest = golden.logits.iter().map(|x| x.abs()).fold(0.0, f32::max);
        for (dtype, allowed) in [(Dtype::F16, 0.01), (Dtype::Bf16, 0.08)] {
            let device = DeviceChoice::Reference;
            let options = LoadOptions { device, dtype: Some(dtype), ..LoadOptions::default() };
            let mut model = load(&Source::Folder(goldens::folder(architecture)), &options).unwrap().model;
            model.allocate_kv(Cache::BLOCKS, Cache::BLOCK_SIZE).unwrap();
            let (mut cache, mut sequence) = (Cache::shuffled(3), Sequence::new(1));
            let (logits, _) = forward(&mut model, &mut cache, &mut [(&mut sequence, &golden.prompt)], Rows::All);
            let worst = logits.data.iter().zip(&golden.logits).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            println!("{architecture} in {}: {worst:e} of {largest}", dtype.name());
            assert!(worst < allowed * largest, "{architecture} in {}: {worst:e} of {largest}", dtype.name());
            assert!(worst > 1e-6, "{architecture} in {} cannot be exact", dtype.name());
        }
    }
}

#[test]
fn a_cache_of_fewer_bits_beside_exact_activations() {
    let golden = goldens::golden("llama");
    let largest = golden.logits.iter().map(|x| x.abs()).fold(0.0, f32::max);
    for (kv_dtype, allowed) in [(KvDtype::F16, 5e-3), (KvDtype::Bf16, 4e-2)] {
        let options =
            LoadOptions { device: DeviceChoice::Reference, kv_dtype: Some(kv_dtype), ..LoadOptions::default() };
        let mut loaded = load(&Source::Folder(goldens::folder("llama")), &options).unwrap();
        loaded.model.allocate_kv(Cache::BLOCKS, Cache::BLOCK_SIZE).unwrap();
        let (logits, _) = goldens::run(&mut loaded, &golden, 7, 2);
        let worst = logits.iter().zip(&golden.logits).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < allowed * largest && worst > 1e-6, "{}: {worst:e} of {largest}", kv_dtype.name());
    }
}

#[test]
fn what_a_device_cannot_do_is_said_before_anything_is_loaded() {
    let source = Source::Folder(goldens::folder("llama"));
    let error = |options: LoadOptions| load(&source, &options).err().map(|error| error.to_string());
    let reference = LoadOptions { device: DeviceChoice::Reference, ..LoadOptions::default() };
    let q8 = error(LoadOptions { kv_dtype: Some(KvDtype::Q8_0), ..reference.clone() }).unwrap();
    assert!(q8.contains("q8_0 is for the CPU"), "{q8}");
    let half = error(LoadOptions { device: DeviceChoice::Cpu, dtype: Some(Dtype::F16), ..LoadOptions::default() });
    assert!(half.as_ref().is_some_and(|text| text.contains("model.dtype f16 is for devices")), "{half:?}");
    if !cfg!(feature = "cuda") {
        let cuda = load(&source, &LoadOptions { device: DeviceChoice::Cuda(0), ..LoadOptions::default() });
        assert!(matches!(cuda.err(), Some(LoadError::Feature { feature: "cuda", .. })));
    }
}

/// A device with less memory than the weights take says so at once, and what would fit.
#[test]
fn weights_that_do_not_fit_are_refused_with_what_would() {
    let options = LoadOptions { device: DeviceChoice::Reference, format: LoadFormat::Dummy, ..LoadOptions::default() };
    let source = Source::Folder(goldens::folder("llama"));
    fail::cfg("model::device_memory", "return(100000/200000)").expect("a failpoint");
    let error = load(&source, &options).err().map(|error| error.to_string()).unwrap_or_default();
    fail::cfg("model::device_memory", "return(1000000000/2000000000)").expect("a failpoint");
    let fits = load(&source, &options);
    fail::remove("model::device_memory");
    assert!(error.contains("do not fit") && error.contains("model.quantize"), "{error}");
    assert_eq!(fits.err().map(|error| error.to_string()), None);
}
