//! `forebay simulate`: scenarios × loads × strategies × policies, on every core, in an order that does not show.

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
use forebay_core::scheduler::PolicyKind;
use forebay_sim::{CostModel, Load, Row, Scenario, Setup, Slo};

/// Prints to standard output; progress goes to standard error.
pub fn simulate(args: &SimulateArgs, config: &Config) -> Result<(), Failure> {
    let slo = Slo::parse(args.goodput.iter().map(String::as_str)).map_err(|message| bad("goodput", message))?;
    if !(args.utilisation > 0.0 && args.utilisation.is_finite()) {
        return Err(bad("utilisation", "must be above 0"));
    }
    let cost = args.cost.as_deref().map_or(Ok(CostModel::simulated_worker()), read_cost)?;
    let setup = setup(config, cost);
    let strategies = chosen("strategy", &args.strategies, &StrategyKind::ALL, StrategyKind::name)?;
    let policies = chosen("policy", &args.policies, &PolicyKind::ALL, PolicyKind::name)?;
    let mut jobs = Vec::new();
    for scenario in scenarios(&args.scenarios)? {
        for (scenario, load) in loads(args, &scenario, &setup) {
            for &strategy in &strategies {
                for &policy in &policies {
                    let mut setup = setup.for_lengths(scenario.longest());
                    setup.intake.flush.strategy = strategy;
                    setup.scheduler.policy.kind = policy;
                    jobs.push(Job { scenario: scenario.clone(), load, setup });
                }
            }
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
    }
}

struct Job {
    scenario: Scenario,
    load: Load,
    setup: Setup,
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
        let classes: Vec<String> = self.scenario.classes.iter().map(|class| class.name.clone()).collect();
        let one = |seed: u64| {
            let mut told = 0;
            let mut progress = |ended: usize| {
                bar.inc((ended - told) as u64);
                told = ended;
            };
            forebay_sim::simulate(&self.setup, &classes, &self.scenario.arrivals(seed), seed, &mut progress)
        };
        let mut measured = one(args.seed);
        (1..args.runs).for_each(|n| measured.append(one(args.seed.wrapping_add(n))));
        Row {
            scenario: self.scenario.name.clone(),
            load: self.load,
            strategy: self.setup.intake.flush.strategy.name(),
            policy: self.setup.scheduler.policy.kind.name(),
            summary: measured.summary(slo),
            measured,
        }
    }
}

/// On standard error, where it is a terminal.
fn progress_bar(jobs: &[Job], args: &SimulateArgs) -> ProgressBar {
    let expected = |job: &Job| job.scenario.mean_rps() * job.scenario.seconds() * args.runs as f64;
    let bar = ProgressBar::new(jobs.iter().map(expected).sum::<f64>() as u64);
    let style = ProgressStyle::with_template("{bar:40} {human_pos} of about {human_len} requests, {eta} left");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn scenarios(names: &[String]) -> Result<Vec<Scenario>, Failure> {
    let mut scenarios = Vec::new();
    for name in names {
        if name == "all" {
            scenarios.extend(Scenario::all());
        } else if let Some(scenario) = Scenario::built_in(name) {
            scenarios.push(scenario);
        } else {
            scenarios.push(read_scenario(name)?);
        }
    }
    Ok(scenarios)
}

/// A name that is not built in is a file's.
pub(super) fn read_scenario(path: &str) -> Result<Scenario, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let names = Scenario::names().join(", ");
        bad("scenario", format!("{path} is neither a file ({error}) nor one of all, {names}"))
    })?;
    Scenario::parse(&text).map_err(|error| bad("scenario", format!("{path}: {error}")))
}

fn read_cost(path: &Path) -> Result<CostModel, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| bad("cost", format!("{}: {error}", path.display())))?;
    CostModel::parse(&text).map_err(|message| bad("cost", format!("{}: {message}", path.display())))
}

fn loads(args: &SimulateArgs, scenario: &Scenario, setup: &Setup) -> Vec<(Scenario, Load)> {
    let utilisation = args.utilisation;
    let factor = scenario.factor(utilisation, &setup.cost, &setup.capacity());
    let raw = args.raw.then(|| (scenario.clone(), Load::Raw));
    let scaled = args.scaled.then(|| (scenario.scaled(factor), Load::Scaled { utilisation, factor }));
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
