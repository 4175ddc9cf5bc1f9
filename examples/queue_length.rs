//! Whether a decode step takes longer when more requests wait, as a picture.
//!
//! ```text
//! cargo run --release --example queue_length -- [--model model.gguf] [--out docs/queue_length.svg]
//! ```
//! The engine's own loop, with eight seats that eight sequences hold from beginning to end, while others are queued behind
//! them. Measured is the mean time from one token of a sequence to its next, as its client meets it: the step, its planning,
//! the queue's housekeeping and the way home.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, anyhow, bail};
use clap::Parser;
use plotters::prelude::*;

mod rig;
use rig::{Setup, token};

const SEATS: usize = 8;
const WAITING: [usize; 5] = [0, 10, 100, 1_000, 10_000];
/// Tokens of each sequence before and while it is measured.
const WARM_UP: usize = 100;
const MEASURED: usize = 400;

#[derive(Parser)]
struct Arguments {
    /// A GGUF file; the embedded model without one.
    #[arg(long)]
    model: Option<PathBuf>,
    /// Each case so many times, in turns; the best counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Where the picture goes.
    #[arg(long, default_value = "docs/queue_length.svg")]
    out: PathBuf,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Runtime::new()?;
    let mut best = [f64::INFINITY; WAITING.len()];
    for _ in 0..arguments.rounds {
        for (best, waiting) in best.iter_mut().zip(WAITING) {
            *best = best.min(runtime.block_on(measure(&arguments, waiting))?);
        }
    }
    for (waiting, time) in WAITING.iter().zip(best) {
        println!("{waiting:6} waiting: {time:7.3} ms from token to token");
    }
    draw(&arguments, &best)
}

/// Milliseconds from token to token.
async fn measure(arguments: &Arguments, waiting: usize) -> Result<f64> {
    let setup = Setup { seats: SEATS, queue: 2 * WAITING[WAITING.len() - 1], overlap: true };
    let engine = rig::start(arguments.model.as_deref(), setup)?;
    let mut seated = Vec::new();
    for id in 0..SEATS {
        let mut events = engine.submit(id, WARM_UP + MEASURED + 300).await?;
        token(&mut events).await?;
        seated.push(events);
    }
    // Nothing runs while the queue fills, so that all cases are measured at the same depths.
    engine.handle.pause().await?;
    let mut queued = Vec::with_capacity(waiting);
    for id in 0..waiting {
        queued.push(engine.submit(SEATS + id, 8).await?);
    }
    engine.handle.resume().await?;
    let mut first = seated.swap_remove(0);
    for _ in 0..WARM_UP {
        token(&mut first).await?;
    }
    let begin = Instant::now();
    for _ in 0..MEASURED {
        token(&mut first).await?;
    }
    let elapsed = begin.elapsed();
    let still = engine.handle.stats().await?.snapshot.queued;
    if still != waiting {
        bail!("{still} of {waiting} were still waiting at the end");
    }
    engine.shutdown().await?;
    Ok(elapsed.as_secs_f64() * 1e3 / MEASURED as f64)
}

fn draw(arguments: &Arguments, times: &[f64]) -> Result<()> {
    let error = |error: &dyn std::fmt::Display| anyhow!("drawing: {error}");
    // Decades, with a place for none.
    let place = |waiting: usize| (waiting.max(1) as f64).log10() + if waiting > 0 { 1.0 } else { 0.0 };
    let most = times.iter().copied().fold(0.0, f64::max);
    let area = SVGBackend::new(&arguments.out, (900, 360)).into_drawing_area();
    area.fill(&WHITE).map_err(|e| error(&e))?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{SEATS} sequences decode while others wait"), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..place(WAITING[WAITING.len() - 1]), 0.0..most * 1.3)
        .map_err(|e| error(&e))?;
    chart
        .configure_mesh()
        .x_labels(WAITING.len() + 1)
        .x_label_formatter(&|x| if *x < 0.5 { "0".into() } else { format!("{:.0}", 10f64.powf(x - 1.0)) })
        .x_desc("requests that wait")
        .y_desc("milliseconds from token to token")
        .draw()
        .map_err(|e| error(&e))?;
    let points: Vec<(f64, f64)> = WAITING.iter().zip(times).map(|(&n, &time)| (place(n), time)).collect();
    let line = LineSeries::new(points, BLUE.filled().stroke_width(2)).point_size(3);
    chart.draw_series(line).map_err(|e| error(&e))?;
    area.present().map_err(|e| error(&e))
}
