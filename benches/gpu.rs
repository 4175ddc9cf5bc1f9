//! `make gpu-bench`: a GPU at the shape of Llama-3.1-8B, with made-up BF16 weights, beside what its memory and its
//! arithmetic allow and beside PyTorch in the same run. Writes its table to docs/gpu.md.
//!
//! A decode step draws its tokens on the device, as serving does; only they are read back.

mod common;

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use forebay_core::request::SamplingParams;
use forebay_core::step::StepBatch;
use forebay_model::{Asked, DeviceChoice, Draw, LoadFormat, LoadOptions, Model, Rows, Source};

use common::{BLOCK_SIZE, batch};

/// meta-llama/Llama-3.1-8B's.
const CONFIG: &str = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "hidden_act": "silu", "eos_token_id": 128001,
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3"}}"#;
/// Weights that a step multiplies with: all but the embedding, of which it reads its tokens' rows.
const MULTIPLIED: f64 = 7.504e9;
const KV_BYTES_PER_TOKEN: f64 = 2.0 * 32.0 * 8.0 * 128.0 * 2.0;
/// Of an H200, in BF16: FLOP/s and bytes per second.
const ARITHMETIC: f64 = 790e12;
const MEMORY: f64 = 4.3e12;

const PROMPT: usize = 512;
const STEPS: usize = 64;
const BLOCKS_EACH: usize = (PROMPT + STEPS).div_ceil(BLOCK_SIZE) + 1;
const PREFILL: usize = 2_048;
const BATCHES: [usize; 3] = [1, 64, 256];
const BEGIN: &str = "<!-- make gpu-bench: begin -->\n";
const END: &str = "<!-- make gpu-bench: end -->";

/// One line of the table.
struct Line {
    case: String,
    tokens_per_second: f64,
    /// What memory and arithmetic allow.
    roofline: f64,
    /// Bytes per second.
    bandwidth: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = match forebay_model::device_name(DeviceChoice::Cuda(0)) {
        Ok(_) => Device::new_cuda(0)?,
        Err(error) => {
            eprintln!("gpu-bench: {error}");
            std::process::exit(1);
        }
    };
    let copied = copy_bandwidth(&device)?;
    println!("copies: {:.2} TB/s", copied / 1e12);
    let mut model = load()?;
    let mut lines = Vec::new();
    for sequences in BATCHES {
        lines.push(decode(&mut model, sequences)?);
    }
    lines.push(prefill(&mut model)?);
    // Its memory is PyTorch's now.
    drop(model);
    let torch = torch();
    write(&table(&lines, copied, &torch))
}

/// Bytes read and written per second by the device's own copy.
fn copy_bandwidth(device: &Device) -> Result<f64, Box<dyn Error>> {
    const BYTES: usize = 2 << 30;
    const COPIES: usize = 20;
    let source = Tensor::zeros(BYTES, DType::U8, device)?;
    source.copy()?;
    device.synchronize()?;
    let began = Instant::now();
    for _ in 0..COPIES {
        source.copy()?;
    }
    device.synchronize()?;
    Ok((2 * BYTES * COPIES) as f64 / began.elapsed().as_secs_f64())
}

fn load() -> Result<Model, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("config.json"), CONFIG)?;
    std::fs::write(folder.path().join("tokenizer.json"), "{}")?;
    let options = LoadOptions { device: DeviceChoice::Cuda(0), format: LoadFormat::Dummy, ..LoadOptions::default() };
    let mut model = forebay_model::load(&Source::Folder(folder.path().into()), &options)?.model;
    let blocks = BATCHES[BATCHES.len() - 1] * BLOCKS_EACH;
    model.allocate_kv(blocks.max(PREFILL.div_ceil(BLOCK_SIZE)), BLOCK_SIZE)?;
    Ok(model)
}

/// One step that ends with drawn tokens.
fn step(model: &mut Model, batch: &StepBatch) -> Result<(), Box<dyn Error>> {
    let draws: Vec<Option<Draw>> = batch.chunks.iter().map(|_| Draw::new(SamplingParams::GREEDY, 0)).collect();
    let asked = Asked { rows: Rows::Sampled, states: &[], adapters: &[] };
    let (_, drawn) = model.draw(batch, asked, &draws)?;
    assert!(drawn.iter().all(Option::is_some), "finite logits");
    Ok(())
}

fn token(seq: usize, position: usize) -> u32 {
    (seq * 7_919 + position * 104_729) as u32 % 128_000
}

fn decode(model: &mut Model, sequences: usize) -> Result<Line, Box<dyn Error>> {
    // Prompts in turns, so that no step is larger than a server's.
    for start in (0..PROMPT).step_by(8) {
        step(model, &batch(sequences, BLOCKS_EACH, start, 8, token))?;
    }
    const WARM: usize = 8;
    let mut began = Instant::now();
    for at in 0..STEPS {
        if at == WARM {
            began = Instant::now();
        }
        step(model, &batch(sequences, BLOCKS_EACH, PROMPT + at, 1, token))?;
    }
    let seconds = began.elapsed().as_secs_f64() / (STEPS - WARM) as f64;
    let cached = (PROMPT + STEPS / 2) as f64 * sequences as f64 * KV_BYTES_PER_TOKEN;
    let (bytes, operations) = (2.0 * MULTIPLIED + cached, 2.0 * MULTIPLIED * sequences as f64);
    Ok(line(format!("decode, {sequences} sequences"), sequences as f64, seconds, bytes, operations))
}

fn prefill(model: &mut Model) -> Result<Line, Box<dyn Error>> {
    const TIMES: usize = 8;
    let whole = batch(1, PREFILL.div_ceil(BLOCK_SIZE), 0, PREFILL, token);
    step(model, &whole)?;
    let began = Instant::now();
    for _ in 0..TIMES {
        step(model, &whole)?;
    }
    let seconds = began.elapsed().as_secs_f64() / TIMES as f64;
    let operations = 2.0 * MULTIPLIED * PREFILL as f64;
    Ok(line(format!("prefill, {PREFILL} tokens"), PREFILL as f64, seconds, 2.0 * MULTIPLIED, operations))
}

fn line(case: String, tokens: f64, seconds: f64, bytes: f64, operations: f64) -> Line {
    let least = (bytes / MEMORY).max(operations / ARITHMETIC);
    println!("{case}: {:.0} tokens/s", tokens / seconds);
    Line { case, tokens_per_second: tokens / seconds, roofline: tokens / least, bandwidth: bytes / seconds }
}

/// Tokens per second of each case, in our order; or why there are none.
fn torch() -> Result<Vec<f64>, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/gpu_torch.py");
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let output = Command::new(python).arg(script).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.trim().lines().last().unwrap_or("no reason given").to_owned());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = said.lines().filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    if figures.len() == BATCHES.len() + 1 { Ok(figures) } else { Err(format!("answered {said:?}")) }
}

fn table(lines: &[Line], copied: f64, torch: &Result<Vec<f64>, String>) -> String {
    let mut out = format!("Measured copy bandwidth: {:.2} TB/s.\n\n", copied / 1e12);
    out += "| case | tokens/s | of the copy bandwidth | roofline (790 TFLOP/s, 4.3 TB/s) | of it | PyTorch |\n";
    out += "|---|---|---|---|---|---|\n";
    for (at, line) in lines.iter().enumerate() {
        let Line { case, tokens_per_second, roofline, bandwidth } = line;
        let theirs = torch.as_ref().map_or("—".into(), |figures| format!("{:.0}", figures[at]));
        let (of_copies, of_roofline) = (100.0 * bandwidth / copied, 100.0 * tokens_per_second / roofline);
        let _ = writeln!(
            out,
            "| {case} | {tokens_per_second:.0} | {of_copies:.0} % | {roofline:.0} | {of_roofline:.0} % | {theirs} |"
        );
    }
    if let Err(reason) = torch {
        let _ = writeln!(out, "\nPyTorch was not measured: {reason}.");
    }
    out
}

fn write(table: &str) -> Result<(), Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/gpu.md");
    let text = std::fs::read_to_string(&path)?;
    let (before, rest) = text.split_once(BEGIN).ok_or("docs/gpu.md has no place for the table")?;
    let (_, after) = rest.split_once(END).ok_or("docs/gpu.md has no end of the table")?;
    std::fs::write(&path, format!("{before}{BEGIN}\n{table}\n{END}{after}"))?;
    println!("{table}");
    Ok(())
}
