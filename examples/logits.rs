//! A model's logits for given tokens, as raw numbers: what `tests/parity/divergence.py` compares.
//!
//! ```text
//! cargo run --example logits -- --model model.gguf --tokens tokens.txt --out logits.f32
//! ```
//! Each line of the tokens is a sequence of its own. Out come its rows in order, `[vocab]` each, as little-endian `f32`.
//! Keys and values are cached in `f32`, so that nothing but the weights' own products is rounded.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use forebay_core::step::{BatchChunk, StepBatch};
use forebay_core::units::{BlockId, SeqId};
use forebay_model::{KvDtype, LoadOptions, Rows, Source};

const BLOCK_SIZE: usize = 32;
/// Rows of a step, so that logits of a large vocabulary stay small.
const CHUNK: usize = 64;

#[derive(Parser)]
struct Arguments {
    /// A GGUF file or a folder.
    #[arg(long)]
    model: PathBuf,
    /// Token ids, a sequence per line.
    #[arg(long)]
    tokens: PathBuf,
    /// Where the numbers go.
    #[arg(long)]
    out: PathBuf,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let text = std::fs::read_to_string(&arguments.tokens).context("reading the tokens")?;
    let sequence = |line: &str| line.split_whitespace().map(|token| Ok(token.parse::<u32>()?)).collect();
    let sequences = text.lines().map(sequence).collect::<Result<Vec<Vec<u32>>>>().context("not a token")?;
    let longest = sequences.iter().map(Vec::len).max().unwrap_or(0);
    let options = LoadOptions { kv_dtype: Some(KvDtype::F32), ..LoadOptions::default() };
    let mut model = forebay_model::load(&Source::at(arguments.model), &options)?.model;
    model.allocate_kv(longest.div_ceil(BLOCK_SIZE).max(1), BLOCK_SIZE)?;
    let mut out = BufWriter::new(File::create(&arguments.out).context("creating the output")?);
    for sequence in &sequences {
        for start in (0..sequence.len()).step_by(CHUNK) {
            let logits = model.forward(&chunk(sequence, start), Rows::All)?;
            logits.data.iter().try_for_each(|number| out.write_all(&number.to_le_bytes()))?;
            model.recycle(logits);
        }
    }
    Ok(out.flush()?)
}

/// Up to [`CHUNK`] tokens from `start` on, in the only sequence there is.
fn chunk(sequence: &[u32], start: usize) -> StepBatch {
    let end = sequence.len().min(start + CHUNK);
    let positions: Vec<u32> = (start as u32..end as u32).collect();
    let blocks = end.div_ceil(BLOCK_SIZE);
    StepBatch {
        tokens: sequence[start..end].to_vec(),
        slots: positions.clone(),
        positions,
        tables: (0..blocks as u32).map(BlockId).collect(),
        chunks: vec![BatchChunk { seq: SeqId(1), rows: 0..end - start, table: 0..blocks, sample: false, proposed: 0 }],
        copies: Vec::new(),
    }
}
