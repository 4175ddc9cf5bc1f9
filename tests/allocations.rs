//! A step takes no memory from the system once the buffers have grown: counted, over all threads.
//!
//! A test binary of its own: the allocator is the process's, and whatever ran beside would be counted, too.

#[path = "it/support/checkpoint.rs"]
#[allow(dead_code)] // as below
mod checkpoint;
#[path = "it/support/gguf_file.rs"]
#[allow(dead_code)] // what else it can write is for the tests of lies
mod gguf_file;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use candle_core::quantized::GgmlDType;
use checkpoint::Checkpoint;
use forebay_core::request::{Limits, Parameters};
use forebay_core::step::{BatchChunk, StepBatch};
use forebay_core::units::{BlockId, SeqId};
use forebay_engine::forward::Forward;
use forebay_model::{LoadOptions, Model, Rows, Source};
use forebay_turn::executor::Executor;
use gguf_file::GgufFile;
use serde_json::json;

const BLOCK_SIZE: usize = 16;
/// Blocks of each sequence.
const BLOCKS: usize = 32;
const BATCHES: [usize; 3] = [1, 8, 32];
/// Steps in a row that must bring no allocation more than is due: they cross several ends of blocks.
const WINDOW: usize = 48;
/// Windows until then. A thread grows its buffers when it first gets a share of the work, and nobody can make the system
/// give it one; each does so once.
const MOST_WINDOWS: usize = 40;

/// Allocations and growths so far, by any thread.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory but the counter.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as our caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        TAKEN.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as our caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as our caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `run` allocates, on whatever thread.
fn taken(run: impl FnOnce()) -> usize {
    let before = TAKEN.load(Ordering::SeqCst);
    run();
    TAKEN.load(Ordering::SeqCst) - before
}

/// A token of each of `sequences`, all at `position`, sequence `s` in blocks `s * BLOCKS..`.
fn decode(sequences: usize, position: usize) -> StepBatch {
    let mut batch = StepBatch::default();
    for seq in 0..sequences {
        let first = seq * BLOCKS;
        batch.tokens.push(((seq + 1) * (position + 3) % 300) as u32);
        batch.positions.push(position as u32);
        batch.slots.push(((first + position / BLOCK_SIZE) * BLOCK_SIZE + position % BLOCK_SIZE) as u32);
        batch.tables.extend((first..first + BLOCKS).map(|block| BlockId(block as u32)));
        let (rows, table) = (seq..seq + 1, first..first + BLOCKS);
        batch.chunks.push(BatchChunk { seq: SeqId(seq as u64), rows, table, sample: true, proposed: 0 });
    }
    batch
}

/// `step` on decode steps of one batch size after another; it allocates `due(batch size)` times in each.
fn check(name: &str, due: impl Fn(usize) -> usize, mut step: impl FnMut(&StepBatch)) {
    let mut settled = |batch: usize| {
        let mut last = 0;
        let calm = (0..MOST_WINDOWS).any(|_| {
            let steps: Vec<StepBatch> = (0..WINDOW).map(|at| decode(batch, 200 + at)).collect();
            last = taken(|| steps.iter().for_each(&mut step));
            last == WINDOW * due(batch)
        });
        assert!(calm, "{name}, {batch} sequences: {last} allocations in {WINDOW} steps, not {} each", due(batch));
    };
    BATCHES.into_iter().for_each(&mut settled);
    // Back to the smaller ones: what the larger left fits them.
    BATCHES.into_iter().rev().for_each(&mut settled);
}

fn load(source: &Source) -> Model {
    let mut model = forebay_model::load(source, &LoadOptions::default()).expect("a model").model;
    model.allocate_kv(BATCHES[BATCHES.len() - 1] * BLOCKS, BLOCK_SIZE).expect("memory for the cache");
    model
}

/// A random Llama whose widths are whole blocks of 256.
fn packed(packing: GgmlDType) -> Model {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
        "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
        "vocab_size": 320, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "eos_token_id": 2, "tie_word_embeddings": true,
    });
    let folder = Checkpoint::from_config(config, 21).write();
    // On Unix the map outlives the folder.
    load(&Source::at(GgufFile::convert(folder.path(), packing).write(folder.path())))
}

/// Greedy, or drawn by all filters.
fn executor(model: Model, raw: &Parameters) -> Forward {
    let mut forward = Forward::new(model);
    let limits = Limits::new(1_024, 320, 64);
    for seq in 0..BATCHES[BATCHES.len() - 1] {
        let checked = raw.clone().check(&limits, 0).expect("in range");
        let requests = checked.into_requests(vec![1; 8], &[], &limits, || SeqId(seq as u64)).expect("fits").requests;
        requests.iter().for_each(|request| forward.admit(request));
    }
    forward
}

/// One test, for two would count each other's allocations.
///
/// What is due beside the forward pass: a step's answer leaves the executor in a list of its own, one allocation. Requests
/// with penalties, biases or logprobs are left out: their counts grow with the text, their logprobs are lists that leave.
#[test]
fn steps_allocate_nothing_once_their_buffers_have_grown() {
    let of_model = |name: &str, mut model: Model| {
        check(
            name,
            |_| 0,
            |step| {
                let logits = model.forward(step, Rows::Sampled).expect("a step");
                model.recycle(logits);
            },
        );
        model
    };
    for packing in [GgmlDType::F32, GgmlDType::BF16, GgmlDType::Q8_0, GgmlDType::Q4K] {
        of_model(&format!("a file in {packing:?}"), packed(packing));
    }
    for golden in ["gemma3", "mixtral"] {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(golden);
        of_model(golden, load(&Source::Folder(folder)));
    }
    let model = of_model("the embedded model", load(&Source::Builtin));
    let greedy = Parameters { max_tokens: Some(500), temperature: Some(0.0), ..Parameters::default() };
    let drawn =
        Parameters { temperature: Some(1.0), top_k: Some(200), top_p: Some(0.9), min_p: Some(0.001), ..greedy.clone() };
    for (name, raw, model) in [("greedy", greedy, model), ("drawn", drawn, load(&Source::Builtin))] {
        let mut forward = executor(model, &raw);
        check(name, |_| 1, |step| assert!(!forward.run(step).expect("a step").outcomes.is_empty()));
    }
}
