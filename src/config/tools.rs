//! The commands beside `serve`: what `forebay simulate` and its neighbours were asked for.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command as Clap, value_parser};

/// What `forebay simulate` was asked for. Names are as they were written; `app` knows what they mean.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulateArgs {
    pub scenarios: Vec<String>,
    pub strategies: Vec<String>,
    pub policies: Vec<String>,
    pub seed: u64,
    /// Runs per row, of seeds from `seed` on, counted as one.
    pub runs: u64,
    pub raw: bool,
    pub scaled: bool,
    /// The share of the engine's capacity that scaled rates take.
    pub utilisation: f64,
    /// A file of `forebay calibrate`; `None` is the simulated worker.
    pub cost: Option<PathBuf>,
    pub goodput: Vec<String>,
    pub json: bool,
    pub html: Option<PathBuf>,
}

pub(super) fn simulate() -> Clap {
    Clap::new("simulate")
        .about("Predict latencies and throughput of strategies and policies under a load, in virtual time")
        .args([
            list("scenario", "all", "all, the name of a built-in scenario, or a YAML file; several with commas"),
            list("strategy", "all", "all, or names of strategies with commas"),
            list("policy", "fair", "all, or names of policies with commas"),
            number("seed", "0", "The same seed, the same report, bit for bit").value_parser(value_parser!(u64)),
            number("runs", "1", "Runs per row, with seeds from --seed on, counted together")
                .value_parser(value_parser!(u64).range(1..=10_000)),
            Arg::new("load")
                .long("load")
                .value_name("WHICH")
                .default_value("both")
                .value_parser(["raw", "scaled", "both"])
                .help("The rates of the scenario's file, those scaled to --utilisation, or both"),
            number("utilisation", "0.7", "Share of the engine's capacity that scaled rates take")
                .value_parser(value_parser!(f64)),
            file("cost", "A cost model that `forebay calibrate` wrote [default: 10 ms a step and 0.5 ms a token]"),
            goodput(),
            json(),
            file("html", "Writes a page with charts"),
        ])
}

fn list(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("NAMES").default_value(default).value_delimiter(',').help(help)
}

fn number(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("N").default_value(default).help(help)
}

fn file(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
}

fn goodput() -> Arg {
    Arg::new("goodput")
        .long("goodput")
        .value_name("NAME:MS")
        .num_args(1..)
        .help("Objectives that requests must keep to count as goodput: ttft:MS, tpot:MS, e2el:MS")
}

fn json() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("One JSON object on stdout instead of text")
}

fn strings(matches: &ArgMatches, name: &str) -> Vec<String> {
    matches.get_many::<String>(name).map(|values| values.cloned().collect()).unwrap_or_default()
}

/// Of an argument that has a default.
fn given<T: Clone + Default + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> T {
    matches.get_one::<T>(name).cloned().unwrap_or_default()
}

pub(super) fn simulate_args(matches: &ArgMatches) -> SimulateArgs {
    let load: String = given(matches, "load");
    SimulateArgs {
        scenarios: strings(matches, "scenario"),
        strategies: strings(matches, "strategy"),
        policies: strings(matches, "policy"),
        seed: given(matches, "seed"),
        runs: given(matches, "runs"),
        raw: load != "scaled",
        scaled: load != "raw",
        utilisation: given(matches, "utilisation"),
        cost: matches.get_one::<PathBuf>("cost").cloned(),
        goodput: strings(matches, "goodput"),
        json: matches.get_flag("json"),
        html: matches.get_one::<PathBuf>("html").cloned(),
    }
}
