//! `forebay simulate`: workloads × loads × strategies × policies and other servers' schedulers, on every core, in an order that does
//! not show.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use super::engine;
use super::failure::{Failure, bad};
use crate::config::{Config, SimulateArgs};
use forebay_core::intake::StrategyKind;
use forebay_core::scheduler::{PolicyKind, Preemption};
use forebay_core::units::Micros;
use forebay_core::workers::balance::Balancer;
use forebay_sim::{CostModel, Load, Outage, Peer, Row, Scenario, Setup, Slo, Trace, Workers, Workload};

/// More engines than anybody balances.
const MOST_WORKERS: usize = 1_024;

/// Prints to standard output; progress goes to standard error.
pub fn simulate(args: &SimulateArgs, config: &Config) -> Result<(), Failure> {
    let slo = objectives(&args.goodput, &config.scheduler.slo)?;
    if !(args.utilisation > 0.0 && args.utilisation.is_finite()) {
        return Err(bad("utilisation", "must be above 0"));
    }
    let cost = args.cost.as_deref().map_or(Ok(CostModel::simulated_worker()), read_cost)?;
    let setup = Setup { workers: workers(args, config)?, num_blocks: args.kv_blocks, ..setup(config, cost) };
    let variants = variants(args, &setup)?;
    let mut jobs = Vec::new();
    for workload in workloads(args)? {
        for (workload, load) in loads(args, &workload, &setup) {
            let job = |setup: &Setup, peer| Job {
                setup: setup.for_lengths(workload.longest()),
                workload: workload.clone(),
                load,
                peer,
            };
            jobs.extend(variants.iter().map(|setup| job(setup, None)));
            let peers = args.peers.then_some(Peer::ALL).into_iter().flatten();
            jobs.extend(peers.map(|peer| job(&setup, Some(peer))));
        }
    }
    let rows = run(&jobs, args, &slo);
    if let Some(path) = &args.html {
        let page = forebay_sim::html::runs("forebay simulate", &about(&setup, args), &rows);
        std::fs::write(path, page).with_context(|| format!("writing {}", path.display()))?;
    }
    let text = match args.json {
        true => format!("{:#}\n", forebay_sim::json::rows(&rows, args.seed, args.runs, &slo)),
        false => format!("{}\n{}", about(&setup, args), forebay_sim::report::table(&rows)),
    };
    io::stdout().write_all(text.as_bytes()).context("standard output")?;
    Ok(())
}

/// The engine that `config` would make, computing as `cost` says.
fn setup(config: &Config, cost: CostModel) -> Setup {
    Setup {
        intake: config.intake,
        // Long enough for any scenario; see `Setup::for_lengths`.
        scheduler: engine::scheduler_config(
            config,
            config.model.options.context.unwrap_or(1) as usize,
            config.scheduler.max_num_batched_tokens,
        ),
        block_size: config.kv_cache.block_size,
        num_blocks: None,
        cost,
        timeout: None,
        workers: Workers::default(),
    }
}

/// The engines that share the load, and when some are gone.
fn workers(args: &SimulateArgs, config: &Config) -> Result<Workers, Failure> {
    if !(1..=MOST_WORKERS).contains(&args.workers) {
        return Err(bad("workers", format!("must be from 1 to {MOST_WORKERS}")));
    }
    if args.peers && args.workers > 1 {
        return Err(bad("peers", "are single engines: leave out --workers"));
    }
    let outage = |text: &String| {
        let outage = Outage::parse(text).filter(|outage| outage.worker < args.workers);
        outage.ok_or_else(|| {
            bad("outage", format!("{text} is not WORKER:FROM-TO with one of the {} workers", args.workers))
        })
    };
    Ok(Workers {
        count: args.workers,
        balancer: config.workers.balancer,
        breaker: config.workers.breaker,
        check_interval: Micros::from_secs_f64(config.workers.check_interval.as_secs_f64()),
        outages: args.outages.iter().map(outage).collect::<Result<_, _>>()?,
    })
}

/// An engine for each choice of strategy, policy, balancer and preemption.
fn variants(args: &SimulateArgs, setup: &Setup) -> Result<Vec<Setup>, Failure> {
    let strategies = chosen("strategy", &args.strategies, &StrategyKind::ALL, StrategyKind::name)?;
    let policies = chosen("policy", &args.policies, &PolicyKind::ALL, PolicyKind::name)?;
    // What is not named is what is configured.
    let balancers = match args.balancers.as_slice() {
        [] => vec![setup.workers.balancer],
        names => chosen("balancer", names, &Balancer::ALL, Balancer::name)?,
    };
    let preemptions = match args.preemptions.as_slice() {
        [] => vec![setup.scheduler.preemption],
        names => chosen("preemption", names, &Preemption::ALL, Preemption::name)?,
    };
    let mut variants = Vec::new();
    for strategy in strategies {
        for &policy in &policies {
            for &balancer in &balancers {
                for &preemption in &preemptions {
                    let mut setup = setup.clone();
                    setup.intake.flush.strategy = strategy;
                    setup.scheduler.policy.kind = policy;
                    setup.scheduler.preemption = preemption;
                    setup.workers.balancer = balancer;
                    variants.push(setup);
                }
            }
        }
    }
    Ok(variants)
}

struct Job {
    workload: Workload,
    load: Load,
    setup: Setup,
    /// Whose scheduler runs instead of ours.
    peer: Option<Peer>,
}

/// Every job's row, in the order of the jobs.
fn run(jobs: &[Job], args: &SimulateArgs, slo: &Slo) -> Vec<Row> {
    let bar = progress_bar(jobs, args);
    let next = AtomicUsize::new(0);
    // Guards the list of results, which threads touch once per job.
    let rows = Mutex::new(Vec::new());
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let row = job.run(args, slo, &bar);
            let at = jobs.iter().position(|other| std::ptr::eq(other, job));
            rows.lock().expect("no job panics while it holds the list").push((at, row));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    bar.finish_and_clear();
    let mut rows = rows.into_inner().expect("every thread has ended well");
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

impl Job {
    fn run(&self, args: &SimulateArgs, slo: &Slo, bar: &ProgressBar) -> Row {
        let seeds = args.seed..args.seed.saturating_add(args.runs);
        let (strategy, policy, measured) = match self.peer {
            None => {
                let mut told = 0;
                let mut progress = |ended: usize| {
                    // Each run counts from zero.
                    bar.inc(if ended < told { ended } else { ended - told } as u64);
                    told = ended;
                };
                let measured = forebay_sim::simulate_all(&self.setup, &self.workload, seeds, &mut progress);
                let strategy = self.setup.intake.flush.strategy.name();
                (strategy, self.setup.scheduler.policy.kind.name().to_owned(), measured)
            }
            Some(peer) => {
                let (tokens, measured) = peer.tuned(&self.setup, &self.workload, seeds);
                bar.inc(measured.records.len() as u64);
                (peer.name(), format!("{tokens} tokens a step"), measured)
            }
        };
        Row {
            scenario: self.workload.name().to_owned(),
            load: self.load,
            strategy: strategy.to_owned(),
            policy,
            workers: self.setup.workers.count,
            balancer: self.setup.workers.balancer.name(),
            preemption: self.setup.scheduler.preemption.name(),
            summary: measured.summary(slo),
            measured,
        }
    }
}

/// On standard error, where it is a terminal.
fn progress_bar(jobs: &[Job], args: &SimulateArgs) -> ProgressBar {
    let expected = |job: &Job| job.workload.requests() * args.runs as f64;
    let bar = ProgressBar::new(jobs.iter().map(expected).sum::<f64>() as u64);
    let style = ProgressStyle::with_template("{bar:40} {human_pos} of about {human_len} requests, {eta} left");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn workloads(args: &SimulateArgs) -> Result<Vec<Workload>, Failure> {
    let mut workloads = Vec::new();
    for name in &args.scenarios {
        if name == "all" {
            workloads.extend(Scenario::all().into_iter().map(Workload::from));
        } else {
            workloads.push(read_workload(name, args.trace_lengths)?);
        }
    }
    let mixed = |workload: Workload| if args.mixed { workload.mixed() } else { workload };
    Ok(workloads.into_iter().map(mixed).collect())
}

/// A scenario or trace, built in or of a file; `lengths` is the factor on those of a trace.
pub(super) fn read_workload(name: &str, lengths: f64) -> Result<Workload, Failure> {
    let shortened = |trace: Trace| trace.with_lengths(lengths).map_err(|message| bad("trace-lengths", message));
    if let Some(scenario) = Scenario::built_in(name) {
        return Ok(scenario.into());
    }
    if let Some(trace) = Trace::built_in(name) {
        return Ok(shortened(trace)?.into());
    }
    let text = std::fs::read_to_string(name).map_err(|error| {
        let names = [Scenario::names(), Trace::names()].concat().join(", ");
        bad("scenario", format!("{name} is neither a file ({error}) nor one of all, {names}"))
    })?;
    let wrong = |message: String| bad("scenario", format!("{name}: {message}"));
    match Trace::is_one(&text) {
        true => Ok(shortened(Trace::parse(name, &text).map_err(wrong)?)?.into()),
        false => Ok(Scenario::parse(&text).map_err(|error| wrong(error.to_string()))?.into()),
    }
}

/// What `--goodput` asks for.
pub(super) fn objectives(parts: &[String], promises: &forebay_core::slo::Slo) -> Result<Slo, Failure> {
    Slo::parse(parts.iter().map(String::as_str), promises).map_err(|message| bad("goodput", message))
}

fn read_cost(path: &Path) -> Result<CostModel, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| bad("cost", format!("{}: {error}", path.display())))?;
    CostModel::parse(&text).map_err(|message| bad("cost", format!("{}: {message}", path.display())))
}

fn loads(args: &SimulateArgs, workload: &Workload, setup: &Setup) -> Vec<(Workload, Load)> {
    let utilisation = args.utilisation;
    let factor = workload.factor(utilisation, &setup.cost, &setup.capacity()) * setup.workers.count as f64;
    let raw = args.raw.then(|| (workload.clone(), Load::Raw));
    let scaled = args.scaled.then(|| (workload.scaled(factor), Load::Scaled { utilisation, factor }));
    raw.into_iter().chain(scaled).collect()
}

/// The kinds that were named, or all of them.
fn chosen<T: Copy>(
    flag: &'static str,
    names: &[String],
    all: &[T],
    name_of: fn(T) -> &'static str,
) -> Result<Vec<T>, Failure> {
    if names.iter().any(|name| name == "all") {
        return Ok(all.to_vec());
    }
    let find = |name: &String| {
        let valid: Vec<&str> = all.iter().map(|kind| name_of(*kind)).collect();
        let found = all.iter().copied().find(|kind| name_of(*kind) == name);
        found.ok_or_else(|| bad(flag, format!("{name} is unknown; valid are all, {}", valid.join(", "))))
    };
    names.iter().map(find).collect()
}

fn about(setup: &Setup, args: &SimulateArgs) -> String {
    let cost = setup.cost.named().into_iter().filter(|(_, value)| *value != 0.0);
    let cost: Vec<String> = cost.map(|(name, value)| format!("{name} {value:.4}")).collect();
    let runs = match args.runs {
        1 => format!("seed {}", args.seed),
        runs => format!("{runs} runs from seed {}", args.seed),
    };
    format!(
        "{runs}; {} seats, {} tokens per step, max_stall {} ms; cost: {}. Times in ms.",
        setup.scheduler.max_num_seqs,
        setup.scheduler.max_num_batched_tokens,
        setup.scheduler.max_stall.unwrap_or_default().as_millis(),
        cost.join(", ")
    )
}
