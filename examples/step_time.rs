//! How a decode step's time grows with context and batch, as a picture.
//!
//! ```text
//! cargo run --release --example step_time -- [--model model.gguf] [--out docs/step_time.svg]
//! ```
//! Steps of 1, 8 and 32 sequences at growing depths, the best of several. The cache holds zeros: what is read, and how
//! much, is as in earnest.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, anyhow};
use clap::Parser;
use forebay_core::step::{BatchChunk, StepBatch};
use forebay_core::units::{BlockId, SeqId};
use forebay_model::{LoadOptions, Model, Rows, Source};
use plotters::prelude::*;

const BLOCK_SIZE: usize = 32;
const BATCHES: [usize; 3] = [1, 8, 32];
const REPETITIONS: usize = 5;

#[derive(Parser)]
struct Arguments {
    /// A GGUF file; the embedded model without one.
    #[arg(long)]
    model: Option<PathBuf>,
    /// Tokens of context up to which is measured.
    #[arg(long, default_value_t = 1_024)]
    context: usize,
    /// Where the picture goes.
    #[arg(long, default_value = "docs/step_time.svg")]
    out: PathBuf,
}

/// Milliseconds by context, for each batch.
type Curves = Vec<(usize, Vec<(usize, f64)>)>;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let source = arguments.model.clone().map_or(Source::Builtin, Source::Gguf);
    let mut model = forebay_model::load(&source, &LoadOptions::default())?.model;
    let blocks_each = arguments.context.div_ceil(BLOCK_SIZE);
    model.allocate_kv(BATCHES[BATCHES.len() - 1] * blocks_each, BLOCK_SIZE)?;
    let mut curves: Curves = Vec::new();
    for batch in BATCHES {
        let mut curve = Vec::new();
        for context in (1..=8).map(|eighth| arguments.context * eighth / 8) {
            let time = best(&mut model, &decode(batch, context, blocks_each))?;
            println!("{batch:2} sequences at {context:5} tokens: {time:8.3} ms");
            curve.push((context, time));
        }
        curves.push((batch, curve));
    }
    draw(&arguments, &curves)
}

/// Each sequence's last token, with `context - 1` before it.
fn decode(sequences: usize, context: usize, blocks_each: usize) -> StepBatch {
    let mut batch = StepBatch::default();
    let at = context - 1;
    for seq in 0..sequences {
        let first = seq * blocks_each;
        batch.tokens.push((7 + seq) as u32);
        batch.positions.push(at as u32);
        batch.slots.push(((first + at / BLOCK_SIZE) * BLOCK_SIZE + at % BLOCK_SIZE) as u32);
        batch.tables.extend((first..first + blocks_each).map(|block| BlockId(block as u32)));
        let (rows, table) = (seq..seq + 1, seq * blocks_each..(seq + 1) * blocks_each);
        batch.chunks.push(BatchChunk { seq: SeqId(seq as u64), rows, table, sample: true, proposed: 0 });
    }
    batch
}

fn best(model: &mut Model, batch: &StepBatch) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..REPETITIONS {
        let start = Instant::now();
        let logits = model.forward(batch, Rows::Sampled)?;
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
        model.recycle(logits);
    }
    Ok(best)
}

fn draw(arguments: &Arguments, curves: &Curves) -> Result<()> {
    let error = |error: &dyn std::fmt::Display| anyhow!("drawing: {error}");
    let most = curves.iter().flat_map(|(_, curve)| curve).map(|(_, time)| *time).fold(0.0, f64::max);
    let area = SVGBackend::new(&arguments.out, (900, 420)).into_drawing_area();
    area.fill(&WHITE).map_err(|e| error(&e))?;
    let name = arguments
        .model
        .as_ref()
        .and_then(|path| path.file_stem())
        .map_or("storyteller".into(), |stem| stem.to_string_lossy());
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("A decode step of {name}"), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0..arguments.context, 0.0..most * 1.05)
        .map_err(|e| error(&e))?;
    chart
        .configure_mesh()
        .x_desc("tokens of context, each sequence")
        .y_desc("milliseconds")
        .draw()
        .map_err(|e| error(&e))?;
    for ((batch, curve), colour) in curves.iter().zip([BLUE, RED, BLACK]) {
        chart
            .draw_series(LineSeries::new(curve.iter().copied(), colour.stroke_width(2)))
            .map_err(|e| error(&e))?
            .label(format!("{batch} sequence{}", if *batch == 1 { "" } else { "s" }))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
    }
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw().map_err(|e| error(&e))?;
    area.present().map_err(|e| error(&e))
}
