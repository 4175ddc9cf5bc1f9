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
    /// The factor on the lengths of traces.
    pub trace_lengths: f64,
    /// All four classes, whatever the scenario says.
    pub mixed: bool,
    /// The schedulers of other servers, too.
    pub peers: bool,
    /// Engines that share the load.
    pub workers: usize,
    pub balancers: Vec<String>,
    /// `WORKER:FROM-TO`, in seconds.
    pub outages: Vec<String>,
    pub preemptions: Vec<String>,
    /// Of each engine; `None` is as many as all seats can use.
    pub kv_blocks: Option<usize>,
    /// A file of `forebay calibrate`; `None` is the simulated worker.
    pub cost: Option<PathBuf>,
    pub goodput: Vec<String>,
    pub json: bool,
    pub html: Option<PathBuf>,
}

/// What `forebay bench` was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchArgs {
    pub target: TargetArgs,
    pub scenario: String,
    /// The factor on the lengths of a trace.
    pub trace_lengths: f64,
    /// All four classes, whatever the scenario says.
    pub mixed: bool,
    /// Times the scenario's rates.
    pub scale: f64,
    /// Instead of the scenario's rates.
    pub request_rate: Option<f64>,
    /// Closed loop.
    pub concurrency: Option<usize>,
    /// `poisson`, `constant`, `burst:N`; `None` is the scenario's.
    pub process: Option<String>,
    pub seconds: Option<f64>,
    pub num_prompts: Option<usize>,
    /// Prompts of words instead of token ids.
    pub text: bool,
    pub respect_eos: bool,
    pub goodput: Vec<String>,
    pub json: bool,
    pub html: Option<PathBuf>,
}

/// Whom to ask.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetArgs {
    pub url: String,
    /// `None` is the first that the server lists.
    pub model: Option<String>,
    pub api_key: Option<String>,
    pub seed: u64,
}

/// What `forebay calibrate` was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrateArgs {
    pub target: TargetArgs,
    pub seconds: f64,
    pub output: Option<PathBuf>,
}

pub(super) fn bench() -> Clap {
    let optional = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    Clap::new("bench")
        .about("Load an OpenAI-compatible server and print what `vllm bench serve` prints")
        .args(target())
        .args([
            Arg::new("scenario").long("scenario").value_name("NAME").default_value("steady_state").help(
                "A built-in scenario (mixed_long_short among them) or trace, or a file of one: lengths, priorities and rates",
            ),
            trace_lengths(),
            mixed(),
            number("scale", "1", "Factor on the scenario's rates").value_parser(value_parser!(f64)),
            optional("request-rate", "R", "Open loop at R requests per second instead of the scenario's rates")
                .value_parser(value_parser!(f64)),
            optional("concurrency", "C", "Closed loop: C clients, each asking again when it is answered")
                .value_parser(value_parser!(usize))
                .conflicts_with("request-rate"),
            optional(
                "process",
                "NAME",
                "Gaps between requests: poisson, constant or burst:N [default: the scenario's]",
            ),
            optional("duration", "SECONDS", "How long requests are sent [default: the scenario's]")
                .value_parser(value_parser!(f64)),
            optional("num-prompts", "N", "No more requests than this").value_parser(value_parser!(usize)),
            Arg::new("text").long("text").action(ArgAction::SetTrue).help("Prompts of words instead of token ids"),
            Arg::new("respect-eos")
                .long("respect-eos")
                .action(ArgAction::SetTrue)
                .help("Do not send ignore_eos: completions may be shorter than the scenario says"),
            goodput(),
            json(),
            file("html", "Writes a page with charts"),
        ])
}

pub(super) fn calibrate() -> Clap {
    Clap::new("calibrate")
        .about("Load a running Forebay and write what its steps cost, for `forebay simulate --cost`")
        .args(target())
        .args([
            number("duration", "20", "Seconds of load").value_parser(value_parser!(f64)),
            file("output", "Where to write the cost model [default: stdout]"),
        ])
}

fn target() -> [Arg; 4] {
    [
        Arg::new("url")
            .long("url")
            .value_name("URL")
            .default_value("http://127.0.0.1:8080")
            .help("The server, with or without /v1"),
        Arg::new("model").long("model").value_name("ID").help("[default: the first that the server lists]"),
        Arg::new("api-key")
            .long("api-key")
            .value_name("KEY")
            .env("OPENAI_API_KEY")
            .hide_env_values(true)
            .help("Sent as a bearer token"),
        number(
            "seed",
            "0",
            "The same seed, the same arrivals and lengths; words differ from run to run, so that no cache helps",
        )
        .value_parser(value_parser!(u64)),
    ]
}

fn target_args(matches: &ArgMatches) -> TargetArgs {
    TargetArgs {
        url: given(matches, "url"),
        model: matches.get_one::<String>("model").cloned(),
        api_key: matches.get_one::<String>("api-key").cloned().filter(|key| !key.is_empty()),
        seed: given(matches, "seed"),
    }
}

pub(super) fn bench_args(matches: &ArgMatches) -> BenchArgs {
    BenchArgs {
        target: target_args(matches),
        scenario: given(matches, "scenario"),
        trace_lengths: given(matches, "trace-lengths"),
        mixed: matches.get_flag("mixed"),
        scale: given(matches, "scale"),
        request_rate: matches.get_one("request-rate").copied(),
        concurrency: matches.get_one("concurrency").copied(),
        process: matches.get_one("process").cloned(),
        seconds: matches.get_one("duration").copied(),
        num_prompts: matches.get_one("num-prompts").copied(),
        text: matches.get_flag("text"),
        respect_eos: matches.get_flag("respect-eos"),
        goodput: strings(matches, "goodput"),
        json: matches.get_flag("json"),
        html: matches.get_one::<PathBuf>("html").cloned(),
    }
}

pub(super) fn calibrate_args(matches: &ArgMatches) -> CalibrateArgs {
    CalibrateArgs {
        target: target_args(matches),
        seconds: given(matches, "duration"),
        output: matches.get_one::<PathBuf>("output").cloned(),
    }
}

pub(super) fn simulate() -> Clap {
    Clap::new("simulate")
        .about("Predict latencies and throughput of strategies and policies under a load, in virtual time")
        .args([
            list(
                "scenario",
                "all",
                "all, the name of a built-in scenario or trace, a YAML file, or a trace's; several with commas",
            ),
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
            trace_lengths(),
            mixed(),
            number("workers", "1", "Engines that share the load; capacity is that of all of them")
                .value_parser(value_parser!(usize)),
            optional_list("balancer", "all, or names of balancers with commas [default: the configuration's]"),
            optional_list("outage", "Workers that are gone for a time: 1:20-30 is the second, which has number 1, from 20 to 30 s"),
            optional_list("preemption", "all, or names of preemptions with commas [default: the configuration's]"),
            Arg::new("kv-blocks")
                .long("kv-blocks")
                .value_name("N")
                .value_parser(value_parser!(usize))
                .help("KV blocks of an engine [default: as many as all seats can use]"),
            flag("peers", "Also run the schedulers of vLLM, SGLang, Orca and FastServe, with the tokens per step that serve them best"),
            file("cost", "A cost model that `forebay calibrate` wrote [default: 10 ms a step and 0.5 ms a token]"),
            goodput(),
            json(),
            file("html", "Writes a page with charts"),
        ])
}

fn list(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("NAMES").default_value(default).value_delimiter(',').help(help)
}

fn optional_list(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("NAMES").value_delimiter(',').help(help)
}

fn number(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("N").default_value(default).help(help)
}

fn file(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
}

fn goodput() -> Arg {
    Arg::new("goodput").long("goodput").value_name("NAME:MS").num_args(1..).help(
        "What requests must keep to count as goodput: ttft:MS, tpot:MS, e2el:MS, promises (batching.slo_* by class)",
    )
}

fn trace_lengths() -> Arg {
    number("trace-lengths", "1", "Factor on the lengths of traces, for a model of a shorter context")
        .value_parser(value_parser!(f64))
}

fn mixed() -> Arg {
    flag("mixed", "Draw each request's class: 5 % critical, 15 % high, 50 % normal, 30 % low")
}

fn json() -> Arg {
    flag("json", "One JSON object on stdout instead of text")
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
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
        trace_lengths: given(matches, "trace-lengths"),
        mixed: matches.get_flag("mixed"),
        peers: matches.get_flag("peers"),
        workers: given(matches, "workers"),
        balancers: strings(matches, "balancer"),
        outages: strings(matches, "outage"),
        preemptions: strings(matches, "preemption"),
        kv_blocks: matches.get_one("kv-blocks").copied(),
        cost: matches.get_one::<PathBuf>("cost").cloned(),
        goodput: strings(matches, "goodput"),
        json: matches.get_flag("json"),
        html: matches.get_one::<PathBuf>("html").cloned(),
    }
}
