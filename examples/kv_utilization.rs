//! What paging saves: blocks in use per step against static reservation, as a picture, and two tables.
//!
//! ```text
//! cargo run --example kv_utilization -- [--seed N] [--out docs/kv_utilization.svg]
//! ```
//! Drives the real scheduler and block pool with a random workload of 16 requests. There is no model: which token is drawn
//! changes nothing about blocks, so every step "draws" the same one.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use forebay_core::kv::BlockPool;
use forebay_core::request::{Event, Limits, Parameters, Priority, Request};
use forebay_core::scheduler::policy::PolicyConfig;
use forebay_core::scheduler::{Config, Preemption, Scheduler, Speculative, StepPlan};
use forebay_core::step::{Outcome, Sampled, StepOutput};
use forebay_core::units::{Micros, SeqId};
use plotters::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const BLOCK_SIZE: usize = 16;
const REQUESTS: usize = 16;
const MAX_MODEL_LEN: usize = 256;
/// Holds everything that the workload ever needs at once.
const ROOMY_BLOCKS: usize = 256;
/// Holds about one and a half of the longest sequences.
const TIGHT_BLOCKS: usize = 24;

#[derive(Parser)]
struct Arguments {
    /// Of the workload.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Where the picture goes.
    #[arg(long, default_value = "docs/kv_utilization.svg")]
    out: PathBuf,
}

#[derive(Clone, Copy)]
struct Job {
    prompt: usize,
    output: usize,
    /// In steps.
    arrival: usize,
    priority: Priority,
}

/// What one run of the workload did.
#[derive(Default)]
struct Run {
    /// Per step: blocks in use, and what reserving the longest sequence for each running one would take.
    used: Vec<usize>,
    reserved: Vec<usize>,
    /// Per request: the step after which it was complete.
    finish: Vec<usize>,
    preemptions: u64,
    tokens: usize,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let jobs = workload(arguments.seed);
    let roomy = drive(&jobs, config(REQUESTS, Preemption::MostRecent), ROOMY_BLOCKS)?;
    draw(&roomy, &arguments.out)?;
    println!("Picture: {}", arguments.out.display());
    println!("Peak: {} blocks paged, {} reserved\n", peak(&roomy.used), peak(&roomy.reserved));

    println!("Preemption policy ({TIGHT_BLOCKS} blocks of {BLOCK_SIZE} tokens, {REQUESTS} requests, batch up to 16)");
    println!("{:<16} {:>10} {:>11} {:>11}", "policy", "iterations", "preemptions", "mean finish");
    let policies = [
        ("longest", Preemption::Longest),
        ("most recent", Preemption::MostRecent),
        ("lowest priority", Preemption::LowestPriority),
    ];
    for (name, policy) in policies {
        let run = drive(&jobs, config(REQUESTS, policy), TIGHT_BLOCKS)?;
        println!("{name:<16} {:>10} {:>11} {:>11.1}", run.used.len(), run.preemptions, mean(&run.finish));
    }

    println!("\nMax batch ({ROOMY_BLOCKS} blocks): step in which each request finished");
    println!("{:<6} {:>12} {:>6}  finish of requests 0 to 15", "batch", "tokens/step", "mean");
    for max_batch in [2, 4, 8, 16] {
        let run = drive(&jobs, config(max_batch, Preemption::MostRecent), ROOMY_BLOCKS)?;
        let throughput = run.tokens as f64 / run.used.len() as f64;
        let finish: String = run.finish.iter().map(|step| format!("{step:>5}")).collect();
        println!("{max_batch:<6} {throughput:>12.2} {:>6.1} {finish}", mean(&run.finish));
    }
    Ok(())
}

fn workload(seed: u64) -> Vec<Job> {
    let mut rng = StdRng::seed_from_u64(seed);
    let job = |_| Job {
        prompt: rng.random_range(8..120),
        output: rng.random_range(10..120),
        arrival: rng.random_range(0..80),
        priority: [Priority::High, Priority::Normal, Priority::Low][rng.random_range(0..3)],
    };
    (0..REQUESTS).map(job).collect()
}

fn config(max_num_seqs: usize, preemption: Preemption) -> Config {
    Config {
        // Its table compares reservation with paging; sharing would be a third thing.
        prefix_caching: false,
        speculative: Speculative::Off,
        whole_prompts: false,
        max_num_seqs,
        max_num_batched_tokens: 64,
        max_model_len: MAX_MODEL_LEN,
        preemption,
        policy: PolicyConfig::default(),
        max_stall: None,
        slo: forebay_core::slo::Slo::default(),
    }
}

/// Runs all jobs to their ends.
fn drive(jobs: &[Job], config: Config, num_blocks: usize) -> Result<Run> {
    let mut pool = BlockPool::new(num_blocks, BLOCK_SIZE);
    let mut scheduler = Scheduler::new(config);
    let mut run = Run { finish: vec![0; jobs.len()], ..Run::default() };
    let mut left = jobs.len();
    for step in 0.. {
        for (seq, job) in jobs.iter().enumerate().filter(|(_, job)| job.arrival == step) {
            scheduler.submit(request(seq as u64, job)?);
        }
        if let Some(plan) = scheduler.plan(&mut pool, Micros(step as u64)) {
            run.tokens += plan.prefill_tokens() + plan.decode_tokens();
            let output = drawn(&plan);
            run.used.push(pool.used());
            run.reserved.push(scheduler.running() * MAX_MODEL_LEN.div_ceil(BLOCK_SIZE));
            for (seq, event) in scheduler.commit(plan, &output, &mut pool) {
                if !matches!(event, Event::Token(_)) {
                    run.finish[seq.0 as usize] = step;
                    left -= 1;
                }
            }
        }
        if left == 0 {
            break;
        }
    }
    run.preemptions = scheduler.preemptions_total();
    Ok(run)
}

/// A token for everyone who reached the end of what is known.
fn drawn(plan: &StepPlan) -> StepOutput {
    let token = |seq| (seq, Outcome::Token(Sampled { token: 5, logprobs: None }));
    let outcomes = plan.chunks.iter().filter(|chunk| chunk.sample).map(|chunk| token(chunk.seq)).collect();
    StepOutput { outcomes, ..StepOutput::default() }
}

fn request(seq: u64, job: &Job) -> Result<Request> {
    let raw = Parameters { max_tokens: Some(job.output as i64), priority: job.priority, ..Parameters::default() };
    let limits = Limits::new(MAX_MODEL_LEN as u32, 64, 8);
    let built = raw.check(&limits, 0)?.into_requests(vec![5; job.prompt], &[], &limits, || SeqId(seq))?;
    built.requests.into_iter().next().context("one request")
}

fn peak(values: &[usize]) -> usize {
    values.iter().copied().max().unwrap_or(0)
}

fn mean(values: &[usize]) -> f64 {
    values.iter().sum::<usize>() as f64 / values.len() as f64
}

const PAGED: RGBColor = RGBColor(31, 119, 180);
const RESERVED: RGBColor = RGBColor(214, 90, 49);

fn draw(run: &Run, out: &Path) -> Result<()> {
    if let Some(folder) = out.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    plot(run, out).map_err(|error| anyhow!("drawing {}: {error}", out.display()))
}

fn plot(run: &Run, out: &Path) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (steps, top) = (run.used.len(), peak(&run.reserved) + 10);
    let root = SVGBackend::new(out, (860, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("KV blocks in use: paged against static reservation", ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(42)
        .y_label_area_size(56)
        .build_cartesian_2d(0..steps, 0..top)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_desc("step")
        .y_desc(format!("blocks of {BLOCK_SIZE} tokens"))
        .label_style(("sans-serif", 13))
        .axis_desc_style(("sans-serif", 15))
        .draw()?;
    let points = |values: &[usize]| values.iter().copied().enumerate().collect::<Vec<_>>();
    chart
        .draw_series(LineSeries::new(points(&run.reserved), RESERVED.stroke_width(2)))?
        .label("reserved: the longest sequence for each running one")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 22, y)], RESERVED.stroke_width(2)));
    chart
        .draw_series(AreaSeries::new(points(&run.used), 0, PAGED.mix(0.35)).border_style(PAGED.stroke_width(2)))?
        .label("paged: in use")
        .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 22, y + 5)], PAGED.mix(0.5).filled()));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 14))
        .draw()?;
    root.present()?;
    Ok(())
}
