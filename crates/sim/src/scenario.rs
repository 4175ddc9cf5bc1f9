//! What arrives when: rates over time and kinds of requests, written as YAML.
//!
//! ```yaml
//! name: spike_test
//! about: 100 requests per second, ten times as many for ten seconds
//! arrivals:
//!   process: poisson        # poisson, constant, or burst (groups of `burst` at Poisson times)
//!   rate:                   # requests per second, linear between the points; two points at one time are a jump
//!     - {at_s: 0, rps: 100}
//!     - {at_s: 60, rps: 100}
//! requests:                 # shares are relative
//!   - {name: chat, share: 1, priority: normal, prompt_tokens: {min: 64, max: 192}, output_tokens: 64}
//! ```

use config::{Config, File, FileFormat};
use serde::Deserialize;
use thiserror::Error;

use super::arrival::Arrival;
use super::cost::{Capacity, CostModel};
use super::dice::Dice;
use forebay_core::request::Priority;
use forebay_core::units::Micros;

#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub name: String,
    pub about: String,
    process: Process,
    /// Seconds and requests per second, times never falling, at least two.
    rate: Vec<(f64, f64)>,
    /// Never empty.
    pub classes: Vec<Class>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    Poisson,
    Constant,
    Burst(u32),
}

/// A kind of request.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    pub name: String,
    pub share: f64,
    pub priority: Priority,
    pub prompt_tokens: Length,
    pub output_tokens: Length,
}

/// A number of tokens, uniform between two bounds, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    pub min: u32,
    pub max: u32,
}

impl Length {
    pub fn mean(&self) -> f64 {
        f64::from(self.min + self.max) / 2.0
    }
}

#[derive(Debug, Error, PartialEq)]
pub enum ScenarioError {
    #[error("not a scenario: {0}")]
    Syntax(String),
    #[error("{field} {message}")]
    Value { field: String, message: String },
}

/// As the file says it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default)]
    about: String,
    arrivals: WrittenArrivals,
    requests: Vec<WrittenClass>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenArrivals {
    process: String,
    burst: Option<u32>,
    rate: Vec<WrittenPoint>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPoint {
    at_s: f64,
    rps: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenClass {
    name: String,
    share: f64,
    #[serde(default)]
    priority: Option<String>,
    prompt_tokens: WrittenLength,
    output_tokens: WrittenLength,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenLength {
    Exactly(u32),
    Between { min: u32, max: u32 },
}

const BUILT_IN: [&str; 6] = [
    include_str!("scenarios/steady_state.yaml"),
    include_str!("scenarios/ramp_up.yaml"),
    include_str!("scenarios/spike_test.yaml"),
    include_str!("scenarios/mixed_priority.yaml"),
    include_str!("scenarios/long_tail.yaml"),
    include_str!("scenarios/mixed_long_short.yaml"),
];
/// The first of [`BUILT_IN`]: what `all` means.
const ALL: usize = 5;
/// Longer lengths and faster rates are mistakes.
const MOST_TOKENS: u32 = 1 << 20;
const HIGHEST_RPS: f64 = 1e6;
const LONGEST_S: f64 = 86_400.0;

impl Scenario {
    /// The five of `--scenario all`.
    pub fn all() -> Vec<Scenario> {
        BUILT_IN[..ALL].iter().map(|text| Scenario::parse(text).expect("a test parses them")).collect()
    }

    pub fn built_in(name: &str) -> Option<Scenario> {
        BUILT_IN.iter().filter_map(|text| Scenario::parse(text).ok()).find(|scenario| scenario.name == name)
    }

    pub fn names() -> Vec<String> {
        BUILT_IN.iter().filter_map(|text| Scenario::parse(text).ok()).map(|scenario| scenario.name).collect()
    }

    pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        let syntax = |error: config::ConfigError| ScenarioError::Syntax(error.to_string());
        let file = Config::builder().add_source(File::from_str(text, FileFormat::Yaml)).build().map_err(syntax)?;
        let written: Written = file.try_deserialize().map_err(syntax)?;
        Ok(Scenario {
            process: process(&written.arrivals.process, written.arrivals.burst)?,
            rate: rate(&written.arrivals.rate)?,
            classes: classes(written.requests)?,
            name: written.name,
            about: written.about,
        })
    }

    /// The same requests at a steady `rps` for `seconds`.
    pub fn at_rate(&self, rps: f64, seconds: f64) -> Scenario {
        Scenario { rate: vec![(0.0, rps), (seconds, rps)], ..self.clone() }
    }

    /// With other gaps: `poisson`, `constant` or `burst:N`.
    pub fn with_process(self, text: &str) -> Result<Scenario, ScenarioError> {
        let (name, burst) = text.split_once(':').map_or((text, None), |(name, size)| (name, Some(size)));
        let burst = burst.map(|size| size.parse().unwrap_or(0));
        Ok(Scenario { process: process(name, burst)?, ..self })
    }

    /// All rates times `factor`.
    pub fn scaled(&self, factor: f64) -> Scenario {
        Scenario { rate: self.rate.iter().map(|(at, rps)| (*at, rps * factor)).collect(), ..self.clone() }
    }

    /// The factor on all rates at which the work that arrives takes `share` of what the engine can do under `cost`, averaged
    /// over the scenario.
    pub fn factor(&self, share: f64, cost: &CostModel, capacity: &Capacity) -> f64 {
        let shares: f64 = self.classes.iter().map(|class| class.share).sum();
        let work = |class: &Class| cost.seconds(class.prompt_tokens.mean(), class.output_tokens.mean(), capacity);
        let per_request = self.classes.iter().map(|class| class.share / shares * work(class)).sum::<f64>();
        share / (per_request * self.mean_rps())
    }

    pub fn seconds(&self) -> f64 {
        self.rate.last().map_or(0.0, |(at, _)| *at)
    }

    pub fn mean_rps(&self) -> f64 {
        self.segments().map(|segment| segment.requests()).sum::<f64>() / self.seconds()
    }

    /// The longest prompt and completion together.
    pub fn longest(&self) -> u32 {
        self.classes.iter().map(|class| class.prompt_tokens.max + class.output_tokens.max).max().unwrap_or(1)
    }

    /// Every request, in the order of arrival; the same seed, the same requests. Lengths and times are drawn apart, so that
    /// the n-th request is the same whatever the rates are.
    pub fn arrivals(&self, seed: u64) -> Vec<Arrival> {
        let mut times = Dice::stream(seed, 1);
        let mut lengths = Dice::stream(seed, 2);
        let mut arrivals = Vec::new();
        // In units of expected requests, where the process is steady whatever the rate does.
        let mut next = match self.process {
            Process::Constant => 0.0,
            Process::Poisson => times.exponential(),
            Process::Burst(size) => times.exponential() * f64::from(size),
        };
        let mut before = 0.0;
        for segment in self.segments() {
            while next < before + segment.requests() {
                let at = Micros::from_secs_f64(segment.start + segment.until(next - before));
                let group = if let Process::Burst(size) = self.process { size } else { 1 };
                arrivals.extend((0..group).map(|_| self.draw(at, &mut lengths)));
                next += match self.process {
                    Process::Constant => 1.0,
                    Process::Poisson => times.exponential(),
                    Process::Burst(size) => times.exponential() * f64::from(size),
                };
            }
            before += segment.requests();
        }
        arrivals
    }

    /// One request that arrives at `at`.
    fn draw(&self, at: Micros, dice: &mut Dice) -> Arrival {
        let shares: f64 = self.classes.iter().map(|class| class.share).sum();
        let mut left = dice.uniform() * shares;
        let index = self.classes.iter().position(|class| {
            left -= class.share;
            left < 0.0
        });
        let index = index.unwrap_or(self.classes.len() - 1);
        let class = &self.classes[index];
        Arrival {
            at,
            class: index,
            priority: class.priority,
            prompt_tokens: dice.between(class.prompt_tokens.min, class.prompt_tokens.max),
            output_tokens: dice.between(class.output_tokens.min, class.output_tokens.max),
            shared: None,
        }
    }

    fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        self.rate.windows(2).map(|pair| Segment {
            start: pair[0].0,
            seconds: pair[1].0 - pair[0].0,
            from: pair[0].1,
            to: pair[1].1,
        })
    }
}

/// A stretch in which the rate is linear.
struct Segment {
    start: f64,
    seconds: f64,
    from: f64,
    to: f64,
}

impl Segment {
    /// The area below the line.
    fn requests(&self) -> f64 {
        self.seconds * (self.from + self.to) / 2.0
    }

    /// The time by which `requests` of them are expected: the root of `from·x + slope·x²/2 = requests`, in the form that
    /// holds for any slope.
    fn until(&self, requests: f64) -> f64 {
        let slope = (self.to - self.from) / self.seconds;
        let root = (self.from * self.from + 2.0 * slope * requests).max(0.0).sqrt();
        (2.0 * requests / (self.from + root).max(f64::MIN_POSITIVE)).min(self.seconds)
    }
}

fn value(field: impl Into<String>, message: impl Into<String>) -> ScenarioError {
    ScenarioError::Value { field: field.into(), message: message.into() }
}

fn process(name: &str, burst: Option<u32>) -> Result<Process, ScenarioError> {
    match (name, burst) {
        ("poisson", None) => Ok(Process::Poisson),
        ("constant", None) => Ok(Process::Constant),
        ("burst", Some(size)) if (1..=100_000).contains(&size) => Ok(Process::Burst(size)),
        ("burst", _) => Err(value("arrivals.burst", "must be from 1 to 100000 where process is burst")),
        ("poisson" | "constant", Some(_)) => Err(value("arrivals.burst", "needs process: burst")),
        (other, _) => Err(value("arrivals.process", format!("must be poisson, constant or burst, got {other}"))),
    }
}

fn rate(points: &[WrittenPoint]) -> Result<Vec<(f64, f64)>, ScenarioError> {
    if points.len() < 2 || points[0].at_s != 0.0 {
        return Err(value("arrivals.rate", "must have two points or more, the first at_s 0"));
    }
    if !points.is_sorted_by(|a, b| a.at_s <= b.at_s) || points.iter().any(|point| point.at_s.is_nan()) {
        return Err(value("arrivals.rate", "must go forward in time"));
    }
    let end = points[points.len() - 1].at_s;
    if !(end > 0.0 && end <= LONGEST_S) {
        return Err(value("arrivals.rate", format!("must end between 0 and {LONGEST_S} s")));
    }
    let in_range = |point: &WrittenPoint| (0.0..=HIGHEST_RPS).contains(&point.rps);
    if !points.iter().all(in_range) || points.iter().all(|point| point.rps == 0.0) {
        return Err(value("arrivals.rate", format!("rps must be from 0 to {HIGHEST_RPS}, and not always 0")));
    }
    Ok(points.iter().map(|point| (point.at_s, point.rps)).collect())
}

fn classes(written: Vec<WrittenClass>) -> Result<Vec<Class>, ScenarioError> {
    if written.is_empty() {
        return Err(value("requests", "must not be empty"));
    }
    let classes = written.into_iter().enumerate().map(|(at, class)| {
        let field = |name: &str| format!("requests[{at}].{name}");
        if !(class.share > 0.0 && class.share.is_finite()) {
            return Err(value(field("share"), "must be above 0"));
        }
        let priority = class.priority.as_deref().unwrap_or("normal");
        Ok(Class {
            priority: Priority::from_name(priority)
                .ok_or_else(|| value(field("priority"), "must be critical, high, normal or low"))?,
            prompt_tokens: length(&class.prompt_tokens, field("prompt_tokens"))?,
            output_tokens: length(&class.output_tokens, field("output_tokens"))?,
            name: class.name,
            share: class.share,
        })
    });
    classes.collect()
}

fn length(written: &WrittenLength, field: String) -> Result<Length, ScenarioError> {
    let length = match *written {
        WrittenLength::Exactly(tokens) => Length { min: tokens, max: tokens },
        WrittenLength::Between { min, max } => Length { min, max },
    };
    if length.min == 0 || length.min > length.max || length.max > MOST_TOKENS {
        return Err(value(field, format!("must be from 1 to {MOST_TOKENS}, min not above max")));
    }
    Ok(length)
}

#[cfg(test)]
#[path = "scenario_tests.rs"]
mod tests;
