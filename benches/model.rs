//! A model file's tokens per second: a prefill of 512, decodes of 1, 8 and 32 sequences after a prompt of 128.
//!
//! `FOREBAY_BENCH_MODEL=model.gguf cargo bench --bench model`, the embedded model where the variable is missing. The cases
//! are those of `llama-bench` and `llama-batched-bench`: forward passes only, no scheduling, no drawing:
//! tokens are made up, as there. Each line is a JSON object with the best of the repetitions; machines are shared, so compare
//! only what ran side by side.

mod common;

use std::time::{Duration, Instant};

use forebay_core::step::StepBatch;
use forebay_model::{LoadOptions, Model, Rows, Source};

use common::{BLOCK_SIZE, batch};

/// Tokens a sequence may have here.
const CONTEXT: usize = 512;
const BLOCKS_EACH: usize = CONTEXT / BLOCK_SIZE;
const PREFILL: usize = 512;
const PROMPT: usize = 128;
const GENERATED: usize = 64;

fn main() {
    let repetitions = variable("FOREBAY_BENCH_REPETITIONS").unwrap_or(3);
    let path = std::env::var_os("FOREBAY_BENCH_MODEL");
    let source = path.as_ref().map_or(Source::Builtin, |path| Source::Gguf(path.into()));
    let mut model = forebay_model::load(&source, &LoadOptions::default()).expect("a model").model;
    model.allocate_kv(32 * BLOCKS_EACH, BLOCK_SIZE).expect("memory for the KV cache");
    let name = path.map_or("builtin".into(), |path| path.to_string_lossy().into_owned());
    let name = name.rsplit('/').next().unwrap_or(&name);
    if wanted("prefill") {
        // As `llama-bench` does: the first run finds cold buffers.
        prefill(&mut model);
        report(name, "prefill", 1, best(repetitions, || prefill(&mut model)));
    }
    for sequences in [1, 8, 32] {
        if wanted(&format!("decode{sequences}")) {
            report(name, "decode", sequences, best(repetitions, || decode(&mut model, sequences)));
        }
    }
}

/// `FOREBAY_BENCH_CASES=prefill,decode8` leaves out the rest.
fn wanted(case: &str) -> bool {
    std::env::var("FOREBAY_BENCH_CASES").map_or(true, |cases| cases.split(',').any(|wanted| wanted == case))
}

fn variable(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

fn report(name: &str, case: &str, sequences: usize, tokens_per_second: f64) {
    println!(
        r#"{{"model":"{name}","case":"{case}","sequences":{sequences},"tokens_per_second":{tokens_per_second:.1}}}"#
    );
}

fn best(repetitions: usize, mut run: impl FnMut() -> (usize, Duration)) -> f64 {
    let speed = |(tokens, time): (usize, Duration)| tokens as f64 / time.as_secs_f64();
    (0..repetitions).map(|_| speed(run())).fold(0.0, f64::max)
}

fn prefill(model: &mut Model) -> (usize, Duration) {
    let step = batch(1, BLOCKS_EACH, 0, PREFILL, |_, position| (7 * position % 1000) as u32);
    let start = Instant::now();
    model.forward(&step, Rows::Sampled).expect("a step");
    (PREFILL, start.elapsed())
}

fn decode(model: &mut Model, sequences: usize) -> (usize, Duration) {
    let token = |sequence: usize, position: usize| ((sequence + 1) * (position + 3) % 1000) as u32;
    // One sequence at a time: a step's activations for all prompts together would not be what a server holds.
    for sequence in 0..sequences {
        let mut step = batch(1, BLOCKS_EACH, 0, PROMPT, |_, position| token(sequence, position));
        move_to(&mut step, sequence);
        forward(model, &step);
    }
    let start = Instant::now();
    for at in PROMPT..PROMPT + GENERATED {
        forward(model, &batch(sequences, BLOCKS_EACH, at, 1, token));
    }
    (sequences * GENERATED, start.elapsed())
}

fn forward(model: &mut Model, step: &StepBatch) {
    let logits = model.forward(step, Rows::Sampled).expect("a step");
    model.recycle(logits);
}

/// Gives a step of one sequence the blocks of another.
fn move_to(step: &mut StepBatch, sequence: usize) {
    let first = sequence * BLOCKS_EACH;
    step.slots.iter_mut().for_each(|slot| *slot += (first * BLOCK_SIZE) as u32);
    step.tables.iter_mut().for_each(|block| block.0 += first as u32);
}
