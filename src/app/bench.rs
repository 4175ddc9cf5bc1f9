//! `forebay bench` and `forebay calibrate`: loads on a server that is already running.

use std::io::{self, Write};

use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};
use tokio::runtime;

use super::failure::{Failure, bad, input};
use super::simulate::{objectives, read_workload};
use crate::client::load::{self, Pace, Plan, Words};
use crate::client::{Ask, Client, ClientError, Prompt};
use crate::config::{BenchArgs, CalibrateArgs, TargetArgs};
use forebay_sim::{Arrival, CostModel, Measured, Scenario, Slo, Workload};

/// Prints to standard output; progress goes to standard error.
pub fn bench(args: &BenchArgs) -> Result<(), Failure> {
    // What the server promises is the server's; the default promises are the same everywhere.
    let slo = objectives(&args.goodput, &forebay_core::slo::Slo::DEFAULT)?;
    let workload = workload(args)?;
    let mut arrivals = workload.arrivals(args.target.seed);
    arrivals.truncate(args.num_prompts.unwrap_or(usize::MAX));
    if arrivals.is_empty() {
        return Err(bad("duration", "no request comes in so short a time at this rate"));
    }
    let plan = Plan {
        pace: args.concurrency.map_or(Pace::Open, |clients| Pace::Closed(clients.max(1))),
        words: if args.text { Words::Text } else { Words::Tokens },
        ignore_eos: !args.respect_eos,
        seed: fresh(args.target.seed),
    };
    let measured = measure(&args.target, &workload, &arrivals, plan)?;
    let settings = settings(args, &workload);
    let text = forebay_sim::report::serving(&measured, &slo, &settings);
    if let Some(path) = &args.html {
        let about = format!("{} against {}", workload.name(), args.target.url);
        let page = forebay_sim::html::one("forebay bench", &about, &measured, &text);
        std::fs::write(path, page).with_context(|| format!("writing {}", path.display()))?;
    }
    let text = if args.json { json_text(args, &workload, &measured, &slo, settings) } else { text };
    io::stdout().write_all(text.as_bytes()).context("standard output")?;
    Ok(())
}

/// What words are drawn from: no two runs have the same prompts, so what one left in the server's cache helps no other.
fn fresh(seed: u64) -> u64 {
    seed ^ (forebay_clock::Clock::system().unix_millis() as u64).rotate_left(20)
}

fn workload(args: &BenchArgs) -> Result<Workload, Failure> {
    let workload = read_workload(&args.scenario, args.trace_lengths)?;
    let workload = match workload.scenario() {
        Some(scenario) => Workload::from(paced(scenario, args)?),
        None if args.request_rate.is_some() || args.seconds.is_some() || args.process.is_some() => {
            return Err(bad(
                "scenario",
                "a trace has its own times: leave out --request-rate, --duration and --process",
            ));
        }
        None => workload,
    };
    let workload = workload.scaled(positive("scale", args.scale)?);
    Ok(if args.mixed { workload.mixed() } else { workload })
}

/// The scenario with the rates and gaps that were asked for.
fn paced(scenario: &Scenario, args: &BenchArgs) -> Result<Scenario, Failure> {
    let seconds = positive("duration", args.seconds.unwrap_or(scenario.seconds()))?;
    let scenario = match (args.request_rate, args.seconds) {
        (Some(rps), _) => scenario.at_rate(positive("request-rate", rps)?, seconds),
        (None, Some(_)) => scenario.at_rate(scenario.mean_rps(), seconds),
        (None, None) => scenario.clone(),
    };
    match &args.process {
        Some(process) => scenario.with_process(process).map_err(|error| bad("process", error.to_string())),
        None => Ok(scenario),
    }
}

fn positive(flag: &'static str, value: f64) -> Result<f64, Failure> {
    match value > 0.0 && value.is_finite() {
        true => Ok(value),
        false => Err(bad(flag, "must be above 0")),
    }
}

/// One request to see that the server answers, then all of them.
fn measure(target: &TargetArgs, workload: &Workload, arrivals: &[Arrival], plan: Plan) -> Result<Measured, Failure> {
    let classes = workload.classes();
    let bar = ProgressBar::new(arrivals.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos} of {len} requests, {elapsed}") {
        bar.set_style(style);
    }
    let (measured, error) = runtime()?
        .block_on(async {
            let client = connect(target).await?;
            let result = load::run(&client, &classes, arrivals, plan, &mut || bar.inc(1)).await;
            Ok::<_, ClientError>(result)
        })
        .map_err(input)?;
    bar.finish_and_clear();
    if let Some(error) = error {
        eprintln!("forebay: some requests failed; the first error: {error}");
    }
    Ok(measured)
}

async fn connect(target: &TargetArgs) -> Result<Client, ClientError> {
    let mut client = Client::new(&target.url)?;
    if let Some(key) = &target.api_key {
        client = client.with_key(key);
    }
    let model = match &target.model {
        Some(model) => model.clone(),
        None => client.first_model().await?,
    };
    let client = client.with_model(model);
    let hello = Ask { prompt: Prompt::Text("Hello".into()), max_tokens: 2, ..Ask::default() };
    let mut stream = client.stream(&hello).await?;
    while stream.next().await?.is_some() {}
    Ok(client)
}

fn runtime() -> Result<runtime::Runtime, Failure> {
    Ok(runtime::Builder::new_current_thread().enable_all().build().context("the client's runtime")?)
}

fn settings(args: &BenchArgs, workload: &Workload) -> Vec<(String, String)> {
    let pace = match args.concurrency {
        Some(clients) => ("Maximum request concurrency".to_owned(), clients.to_string()),
        None => ("Request rate configured (RPS)".to_owned(), format!("{:.2}", workload.mean_rps())),
    };
    vec![pace]
}

fn json_text(
    args: &BenchArgs,
    workload: &Workload,
    measured: &Measured,
    slo: &Slo,
    settings: Vec<(String, String)>,
) -> String {
    let mut object = json!({
        "scenario": workload.name(),
        "url": args.target.url,
        "seed": args.target.seed,
        "max_concurrency": args.concurrency,
        "request_rate": if args.concurrency.is_none() { Some(workload.mean_rps()) } else { None },
        "settings": settings.into_iter().map(|(name, value)| (name, json!(value))).collect::<Map<_, _>>(),
    });
    if let (Some(object), Value::Object(numbers)) = (object.as_object_mut(), forebay_sim::json::measured(measured, slo))
    {
        object.extend(numbers);
    }
    format!("{object:#}\n")
}

/// Prompts and completions of many lengths, from many clients and from few: every number of the model must show.
/// Talkers are most: decoded tokens are what most steps are made of, and their contexts must differ.
const CALIBRATION: &str = "
name: calibration
arrivals: {process: poisson, rate: [{at_s: 0, rps: 1000}, {at_s: 60, rps: 1000}]}
requests:
  - {name: short, share: 4, prompt_tokens: {min: 4, max: 64}, output_tokens: {min: 4, max: 64}}
  - {name: long, share: 3, prompt_tokens: {min: 64, max: 640}, output_tokens: {min: 4, max: 32}}
  - {name: talker, share: 4, prompt_tokens: {min: 8, max: 400}, output_tokens: {min: 64, max: 300}}
";

/// Writes the cost model that the server has fitted under a load that shows all of it.
pub fn calibrate(args: &CalibrateArgs) -> Result<(), Failure> {
    if !(args.seconds > 0.0 && args.seconds.is_finite()) {
        return Err(bad("duration", "must be above 0"));
    }
    let scenario = Scenario::parse(CALIBRATION).map_err(input)?;
    let classes: Vec<String> = scenario.classes.iter().map(|class| class.name.clone()).collect();
    let mut seed = fresh(args.target.seed);
    let mut plan = |clients| {
        seed = seed.wrapping_add(1);
        Plan { pace: Pace::Closed(clients), words: Words::Tokens, ignore_eos: true, seed }
    };
    let cost = runtime()?
        .block_on(async {
            let client = connect(&args.target).await?;
            let clock = forebay_clock::Clock::system();
            let mut arrivals = scenario.arrivals(args.target.seed).into_iter();
            while clock.now().as_secs_f64() < args.seconds {
                for clients in [1, 4, 16, 48] {
                    let some: Vec<Arrival> = arrivals.by_ref().take(clients * 3).collect();
                    if some.is_empty() {
                        arrivals = scenario.arrivals(args.target.seed).into_iter();
                    }
                    let (_, error) = load::run(&client, &classes, &some, plan(clients), &mut || ()).await;
                    if let Some(error) = error {
                        return Err(error);
                    }
                }
            }
            client.get("/admin/cost").await
        })
        .map_err(input)?;
    let fitted = CostModel::parse(&cost["model"].to_string())
        .map_err(|message| anyhow!("{}/admin/cost: {message}", args.target.url))?;
    let lines = fitted.named().map(|(name, value)| format!("{name}: {value:.4}\n"));
    let text = format!(
        "# What a step costs at {}, after {} steps; see docs/simulator.md.\n{}",
        args.target.url,
        cost["samples"],
        lines.concat()
    );
    match &args.output {
        Some(path) => std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?,
        None => io::stdout().write_all(text.as_bytes()).context("standard output")?,
    }
    Ok(())
}
