//! The command line. Flags only say what was asked for; meaning and ranges come from the table of settings.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command as Clap, value_parser};

use super::operator::{self, DbArgs, KeysArgs, UsageArgs};
use super::origin::Flag;
use super::table::{self, flags};
use super::tools::{self, BenchArgs, CalibrateArgs, SimulateArgs};
use forebay_core::settings::Kind;
use forebay_model::Quantised;

/// What the command line said.
#[derive(Debug)]
pub struct Parsed {
    pub command: Command,
    pub file: Option<PathBuf>,
    pub flags: Vec<Flag>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Serve,
    /// Prints the effective configuration.
    Config,
    /// Asks a running server whether it is ready.
    Health {
        url: String,
    },
    /// Prints what a model's files say about it.
    Inspect {
        path: PathBuf,
        format: InspectFormat,
    },
    /// Writes a model with smaller weights.
    Quantize {
        from: PathBuf,
        to: PathBuf,
        kind: Quantised,
    },
    /// Predicts what a load would meet.
    Simulate(Box<SimulateArgs>),
    /// Looks at the machine, the configuration and what they need.
    Doctor {
        format: DoctorFormat,
        /// What is wrong with the configuration; the defaults are looked at in its place.
        mistake: Option<String>,
    },
    /// Loads a server.
    Bench(Box<BenchArgs>),
    /// Asks a server what its steps cost.
    Calibrate(Box<CalibrateArgs>),
    /// API keys.
    Keys(Box<KeysArgs>),
    /// What they have used.
    Usage(Box<UsageArgs>),
    /// The store's schema.
    Db(DbArgs),
}

/// How `doctor` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoctorFormat {
    Table,
    Json,
}

/// How `model inspect` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectFormat {
    Table,
    Json,
}

/// Parses the process's arguments; `--help`, `--version` and mistakes end the process, mistakes with code 2.
pub fn parse() -> Parsed {
    read(command().get_matches())
}

#[cfg(test)]
pub fn parse_from(args: &[&str]) -> Result<Parsed, clap::Error> {
    command().try_get_matches_from([&["forebay"], args].concat()).map(read)
}

pub fn command() -> Clap {
    let health = Clap::new("health").about("Ask a running server whether it is ready; exit code 0 if it is").arg(
        Arg::new("url")
            .long("url")
            .env("FOREBAY_HEALTH_URL")
            .help(format!("The readiness probe [default: http://127.0.0.1:PORT/health/ready, PORT from {}]", port())),
    );
    let serve = Clap::new("serve").about("Serve a model (what `forebay` alone does, too)").args(arguments());
    let config = Clap::new("config").about("Print the effective configuration and where each value came from");
    let doctor = Clap::new("doctor")
        .about("Look at this machine and the configuration: what would not work, and what to do; exit code 1 if something is broken")
        .args(arguments())
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("One JSON object instead of a table"));
    let inspect = Clap::new("inspect")
        .about("Print architecture, size, quantisation and context of a model, and whether it will fit")
        .arg(
            Arg::new("path")
                .required(true)
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help("A folder in the Hugging Face layout, or a .gguf file"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("One JSON object instead of a table"));
    let quantize = Clap::new("quantize")
        .about("Write a GGUF file whose matrices are quantised, for us and for llama.cpp")
        .arg(path(
            "from",
            "IN",
            "A folder in the Hugging Face layout, or a .gguf file; its matrices in F32, F16 or BF16",
        ))
        .arg(path("to", "OUT", "The .gguf file to write; must not exist"))
        .arg(
            Arg::new("type").long("type").value_name("TYPE").value_parser(["q4_k", "q8_0"]).default_value("q4_k").help(
                "Of matrices; the embedding and the output get 8 bits, and so do rows that are no multiple of 256",
            ),
        );
    let model =
        Clap::new("model").about("Look at a model, or make it smaller, without serving it").subcommand_required(true);
    Clap::new("forebay")
        .version(env!("CARGO_PKG_VERSION"))
        .about("An OpenAI-compatible LLM inference server")
        .args_conflicts_with_subcommands(true)
        .args(arguments())
        .subcommand(serve)
        .subcommand(config.args(arguments()))
        .subcommand(doctor)
        .subcommand(health)
        .subcommand(model.subcommand(inspect).subcommand(quantize))
        .subcommand(tools::simulate().args(some_arguments(SIMULATED)))
        .subcommand(tools::bench())
        .subcommand(tools::calibrate())
        .subcommands(operator::commands(|| some_arguments(STORED)))
}

fn path(id: &'static str, shown: &'static str, help: &'static str) -> Arg {
    Arg::new(id).required(true).value_name(shown).value_parser(value_parser!(PathBuf)).help(help)
}

/// The flags of `serve` that change what is simulated; strategies, policies and preemptions have arguments of
/// their own.
const SIMULATED: &[&str] = &["max-num-seqs", "max-num-batched-tokens", "max-stall-ms", "queue-capacity"];

/// Those of the commands that work on the store.
const STORED: &[&str] = &["store"];

/// The variable that moves the port of a server in a container, and with it the port that its health check asks.
fn port() -> String {
    table::env_name("server.port")
}

/// The server in the same container, on `port` if that is a port.
pub fn probe_url(port: Option<&str>) -> String {
    let port: u16 = port.and_then(|port| port.trim().parse().ok()).unwrap_or(8080);
    format!("http://127.0.0.1:{port}/health/ready")
}

fn arguments() -> Vec<Arg> {
    arguments_of(|_| true)
}

fn some_arguments(names: &[&str]) -> Vec<Arg> {
    arguments_of(|flag| names.contains(&flag))
}

/// `--config` and the chosen flags.
fn arguments_of(wanted: impl Fn(&str) -> bool) -> Vec<Arg> {
    let file = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .env("FOREBAY_CONFIG")
        .value_parser(value_parser!(PathBuf))
        .help("A YAML file like config.yaml");
    let flags = flags().filter(|(flag, _)| wanted(flag)).map(|(flag, row)| {
        let default = row.default_text();
        let default = if default.is_empty() { "none" } else { &default };
        let help = format!("{} [default: {default}; env: {}]", row.help, table::env_name(row.key));
        let arg = Arg::new(flag).long(flag).help(help);
        match row.kind {
            Kind::Bool => arg.action(ArgAction::SetTrue),
            _ => arg.value_name("VALUE").allow_hyphen_values(true),
        }
    });
    std::iter::once(file).chain(flags).collect()
}

fn read(matches: ArgMatches) -> Parsed {
    let (command, matches) = match matches.subcommand() {
        Some(("health", matches)) => {
            let url = matches.get_one::<String>("url").cloned();
            let url = url.unwrap_or_else(|| probe_url(std::env::var(port()).ok().as_deref()));
            return bare(Command::Health { url });
        }
        Some(("bench", matches)) => {
            return bare(Command::Bench(Box::new(tools::bench_args(matches))));
        }
        Some(("calibrate", matches)) => {
            return bare(Command::Calibrate(Box::new(tools::calibrate_args(matches))));
        }
        Some(("model", matches)) => {
            return bare(match matches.subcommand() {
                Some(("quantize", matches)) => quantize_command(matches),
                Some((_, matches)) => inspect_command(matches),
                None => inspect_command(matches),
            });
        }
        Some(("doctor", matches)) => {
            let format = if matches.get_flag("json") { DoctorFormat::Json } else { DoctorFormat::Table };
            (Command::Doctor { format, mistake: None }, matches.clone())
        }
        Some(("config", matches)) => (Command::Config, matches.clone()),
        Some(("simulate", matches)) => (Command::Simulate(Box::new(tools::simulate_args(matches))), matches.clone()),
        Some((name @ ("keys" | "usage" | "db"), matches)) => {
            let command = match name {
                "keys" => Command::Keys(Box::new(operator::keys_args(matches))),
                "usage" => Command::Usage(Box::new(operator::usage_args(matches))),
                _ => Command::Db(operator::db_args(matches)),
            };
            (command, matches.subcommand().map_or_else(|| matches.clone(), |(_, leaf)| leaf.clone()))
        }
        Some((_, matches)) => (Command::Serve, matches.clone()),
        None => (Command::Serve, matches),
    };
    // Other commands than `serve` know only some flags, and may use the name of another for something of their own.
    let known = match &command {
        Command::Simulate(_) => Some(SIMULATED),
        Command::Keys(_) | Command::Usage(_) | Command::Db(_) => Some(STORED),
        _ => None,
    };
    let given = |flag| Some(flag).filter(|flag| known.is_none_or(|known| known.contains(flag)));
    let value = |flag: &'static str, kind: &Kind| match kind {
        Kind::Bool => given(flag).and_then(|id| matches.get_flag(id).then(|| "true".to_owned())),
        _ => given(flag).and_then(|id| matches.get_one::<String>(id).cloned()),
    };
    let flags = flags().filter_map(|(flag, row)| Some((flag, row.key, value(flag, &row.kind)?))).collect();
    Parsed { command, file: matches.get_one::<PathBuf>("config").cloned(), flags }
}

/// A command that reads no configuration.
fn bare(command: Command) -> Parsed {
    Parsed { command, file: None, flags: Vec::new() }
}

fn inspect_command(matches: &ArgMatches) -> Command {
    Command::Inspect {
        path: matches.get_one::<PathBuf>("path").cloned().unwrap_or_default(),
        format: if matches.get_flag("json") { InspectFormat::Json } else { InspectFormat::Table },
    }
}

fn quantize_command(matches: &ArgMatches) -> Command {
    let path = |id: &str| matches.get_one::<PathBuf>(id).cloned().unwrap_or_default();
    let eight = matches.get_one::<String>("type").is_some_and(|kind| kind == "q8_0");
    Command::Quantize { from: path("from"), to: path("to"), kind: if eight { Quantised::Q8_0 } else { Quantised::Q4K } }
}
