//! How long the model does not compute between two steps, with and without `engine.overlap`, as a table.
//!
//! ```text
//! cargo run --release --example engine_gap -- [--model model.gguf]
//! ```
//! The engine's own loop with 1, 8 and 32 running sequences, each read by a task of its own as by a client's connection, and
//! with nobody or a thousand requests waiting behind them. With and without in turns; of each figure the median of the rounds.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Parser;
use forebay_core::units::Micros;

mod rig;
use rig::{CONTEXT, Engine, Setup, token};

const RUNNING: [usize; 3] = [1, 8, 32];
const WAITING: [usize; 2] = [0, 1_000];
/// Tokens of each sequence before it is measured.
const WARM_UP: usize = 50;

#[derive(Parser)]
struct Arguments {
    /// A GGUF file; the embedded model without one.
    #[arg(long)]
    model: Option<PathBuf>,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Steps per round and case.
    #[arg(long, default_value_t = 300)]
    steps: usize,
}

/// Of one round.
#[derive(Clone, Copy)]
struct Measured {
    p50: Micros,
    p99: Micros,
    step: Micros,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Runtime::new()?;
    println!("| running | waiting | step p50, µs | gap p50 / p99 without overlap, µs | with overlap |");
    println!("|---|---|---|---|---|");
    for running in RUNNING {
        for waiting in WAITING {
            let mut cases = [Vec::new(), Vec::new()];
            for _ in 0..arguments.rounds {
                for (rounds, overlap) in cases.iter_mut().zip([false, true]) {
                    let setup = Setup { seats: running, queue: waiting + running, overlap };
                    rounds.push(runtime.block_on(measure(&arguments, setup, waiting))?);
                }
            }
            let [without, with] = cases.map(typical);
            let step = with.step.0;
            let gap = |m: Measured| format!("{} / {}", m.p50.0, m.p99.0);
            println!("| {running} | {waiting} | {step} | {} | {} |", gap(without), gap(with));
        }
    }
    Ok(())
}

/// Of each figure the median of the rounds.
fn typical(rounds: Vec<Measured>) -> Measured {
    let median = |figure: fn(&Measured) -> Micros| {
        let mut figures: Vec<Micros> = rounds.iter().map(figure).collect();
        figures.sort_unstable();
        figures[figures.len() / 2]
    };
    Measured { p50: median(|m| m.p50), p99: median(|m| m.p99), step: median(|m| m.step) }
}

async fn measure(arguments: &Arguments, setup: Setup, waiting: usize) -> Result<Measured> {
    let engine = rig::start(arguments.model.as_deref(), setup)?;
    // With tokens to spare: the loop runs ahead of who reads.
    let length = (WARM_UP + arguments.steps + 500).min(CONTEXT - 40);
    let mut clients = Vec::new();
    let mut watched = None;
    // All together: one that came later would wait for its group while the others run ahead.
    let mut streams = Vec::with_capacity(setup.seats);
    for id in 0..setup.seats {
        streams.push(engine.submit(id, length).await?);
    }
    for (id, mut events) in streams.into_iter().enumerate() {
        token(&mut events).await?;
        match id {
            0 => watched = Some(events),
            _ => clients.push(tokio::spawn(async move { while token(&mut events).await.is_ok() {} })),
        }
    }
    // Nothing runs while the queue fills, so that all cases are measured at the same depths.
    engine.handle.pause().await?;
    let mut queued = Vec::with_capacity(waiting);
    for id in 0..waiting {
        queued.push(engine.submit(setup.seats + id, 8).await?);
    }
    engine.handle.resume().await?;
    let mut watched = watched.context("a sequence")?;
    for _ in 0..WARM_UP {
        token(&mut watched).await?;
    }
    engine.handle.reset_stats().await?;
    for _ in 0..arguments.steps {
        token(&mut watched).await?;
    }
    let stats = engine.handle.stats().await?;
    if stats.snapshot.queued != waiting || stats.snapshot.running != setup.seats {
        bail!("{} ran and {} waited at the end", stats.snapshot.running, stats.snapshot.queued);
    }
    end(engine, clients).await?;
    let window = stats.window;
    let figure = |figure: Option<Micros>| figure.context("a measured step");
    Ok(Measured { p50: figure(window.gap_p50)?, p99: figure(window.gap_p99)?, step: figure(window.step_p50)? })
}

async fn end(engine: Engine, clients: Vec<tokio::task::JoinHandle<()>>) -> Result<()> {
    engine.shutdown().await?;
    for client in clients {
        client.await?;
    }
    Ok(())
}
