//! Arrivals that were recorded: when requests came, how long they were, and which prompts began alike.
//!
//! Two formats are read, told apart by their first line:
//! - `TIMESTAMP,ContextTokens,GeneratedTokens`, of Azure/AzurePublicDataset (Patel et al., "Splitwise", ISCA 2024);
//! - a JSON object per line with `timestamp` (ms), `input_length`, `output_length` and `hash_ids`, of kvcache-ai/Mooncake (Qin et
//!   al., FAST 2025): each id names 512 tokens of the prompt and all before them.

use serde::Deserialize;

use super::arrival::{Arrival, Shared};
use super::cost::{Capacity, CostModel};
use forebay_core::request::Priority;
use forebay_core::units::Micros;

/// Requests at their own times.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    pub name: String,
    /// Sorted by time, never empty; the first comes at zero.
    requests: Vec<Recorded>,
    /// On times.
    speed: f64,
    /// On lengths.
    scale: f64,
}

#[derive(Clone, Debug, PartialEq)]
struct Recorded {
    at_s: f64,
    prompt_tokens: u32,
    output_tokens: u32,
    /// Empty where the trace says nothing of them.
    names: Vec<u32>,
}

/// A line of Mooncake's format.
#[derive(Deserialize)]
struct Line {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    #[serde(default)]
    hash_ids: Vec<u32>,
}

/// Tokens that one of `hash_ids` names.
const TOKENS_PER_ID: f64 = 512.0;
/// Longer is a mistake.
const MOST_TOKENS: u32 = 1 << 20;
/// The beginnings of the two traces, with the names of prompts counted anew from 0. Sources and licences: docs/simulator.md.
const BUILT_IN: [(&str, &str, f64); 2] = [
    ("azure_conversations", include_str!("traces/azure_conversations.csv"), 1.0),
    // A sixteenth of their length: these conversations have 12,000 tokens on average.
    ("mooncake_conversations", include_str!("traces/mooncake_conversations.jsonl"), 1.0 / 16.0),
];

impl Trace {
    /// Those that come with the program.
    pub fn all() -> Vec<Trace> {
        let trace = |(name, text, scale): &(&str, &str, f64)| Trace::parse(name, text)?.with_lengths(*scale);
        BUILT_IN.iter().map(|built_in| trace(built_in).expect("a test parses them")).collect()
    }

    pub fn built_in(name: &str) -> Option<Trace> {
        Trace::all().into_iter().find(|trace| trace.name == name)
    }

    pub fn names() -> Vec<String> {
        BUILT_IN.iter().map(|(name, ..)| (*name).to_owned()).collect()
    }

    /// Whether a file is a trace rather than a scenario.
    pub fn is_one(text: &str) -> bool {
        text.starts_with(AZURE) || text.starts_with('{')
    }

    /// The error says in which line.
    pub fn parse(name: &str, text: &str) -> Result<Trace, String> {
        let is_azure = text.starts_with(AZURE);
        let lines = text.lines().enumerate().skip(usize::from(is_azure)).filter(|(_, line)| !line.trim().is_empty());
        let parse = |(at, line): (usize, &str)| {
            let recorded = if is_azure { azure(line) } else { mooncake(line) };
            let recorded = recorded.map_err(|message| format!("line {}: {message}", at + 1))?;
            let fits = |tokens: u32| (1..=MOST_TOKENS).contains(&tokens);
            match recorded.at_s.is_finite() && fits(recorded.prompt_tokens) && fits(recorded.output_tokens) {
                true => Ok(recorded),
                false => Err(format!("line {}: lengths must be from 1 to {MOST_TOKENS} tokens", at + 1)),
            }
        };
        let mut requests = lines.map(parse).collect::<Result<Vec<Recorded>, String>>()?;
        requests.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        let first = requests.first().ok_or("a trace has at least one request")?.at_s;
        requests.iter_mut().for_each(|request| request.at_s -= first);
        Ok(Trace { name: name.to_owned(), requests, speed: 1.0, scale: 1.0 })
    }

    /// All lengths times `scale`, above 0 and at most 1, so that a model whose context is shorter can serve them.
    pub fn with_lengths(self, scale: f64) -> Result<Trace, String> {
        match scale > 0.0 && scale <= 1.0 {
            true => Ok(Trace { scale: self.scale * scale, ..self }),
            false => Err("must be above 0 and at most 1".into()),
        }
    }

    /// As if it had come `factor` times as fast.
    pub fn scaled(&self, factor: f64) -> Trace {
        Trace { speed: self.speed * factor, ..self.clone() }
    }

    /// The factor on the speed at which the work that arrives takes `share` of what the engine can do, computing every prompt.
    pub fn factor(&self, share: f64, cost: &CostModel, capacity: &Capacity) -> f64 {
        let work = |request: &Recorded| {
            let (prompt, output) = (self.length(request.prompt_tokens), self.length(request.output_tokens));
            cost.seconds(prompt.into(), output.into(), capacity)
        };
        share * self.seconds() / self.requests.iter().map(work).sum::<f64>()
    }

    /// At the speed that it has.
    pub fn seconds(&self) -> f64 {
        let last = self.requests.last().map_or(0.0, |request| request.at_s);
        last.max(f64::MIN_POSITIVE) / self.speed
    }

    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// The longest prompt and completion together.
    pub fn longest(&self) -> u32 {
        let length = |request: &Recorded| self.length(request.prompt_tokens) + self.length(request.output_tokens);
        self.requests.iter().map(length).max().unwrap_or(1)
    }

    /// Every request, in the order of arrival.
    pub fn arrivals(&self) -> Vec<Arrival> {
        let tokens = ((TOKENS_PER_ID * self.scale).round() as u32).max(1);
        let arrival = |request: &Recorded| Arrival {
            at: Micros::from_secs_f64(request.at_s / self.speed),
            class: 0,
            priority: Priority::Normal,
            prompt_tokens: self.length(request.prompt_tokens),
            output_tokens: self.length(request.output_tokens),
            shared: (!request.names.is_empty()).then(|| Shared { names: request.names.as_slice().into(), tokens }),
        };
        self.requests.iter().map(arrival).collect()
    }

    fn length(&self, tokens: u32) -> u32 {
        ((f64::from(tokens) * self.scale).round() as u32).max(1)
    }
}

const AZURE: &str = "TIMESTAMP,";

/// `2023-11-16 18:15:46.6805900,374,44`
fn azure(line: &str) -> Result<Recorded, String> {
    let wrong = || "must be TIMESTAMP,ContextTokens,GeneratedTokens".to_owned();
    let mut fields = line.trim().split(',');
    let mut next = || fields.next().ok_or_else(wrong);
    let (time, prompt, output) = (next()?, next()?, next()?);
    let tokens = |text: &str| text.parse().map_err(|_| wrong());
    let (prompt_tokens, output_tokens) = (tokens(prompt)?, tokens(output)?);
    Ok(Recorded { at_s: seconds(time).ok_or_else(wrong)?, prompt_tokens, output_tokens, names: Vec::new() })
}

/// Seconds of a date and time since some day; months count as in the calendar (Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", `days_from_civil`).
fn seconds(time: &str) -> Option<f64> {
    let (date, clock) = time.split_once(' ')?;
    let mut date = date.split('-').map(str::parse::<i64>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let mut clock = clock.split(':').map(str::parse::<f64>);
    let (hours, minutes, seconds) = (clock.next()?.ok()?, clock.next()?.ok()?, clock.next()?.ok()?);
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day;
    Some(days as f64 * 86_400.0 + hours * 3_600.0 + minutes * 60.0 + seconds)
}

fn mooncake(line: &str) -> Result<Recorded, String> {
    let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
    Ok(Recorded {
        at_s: line.timestamp / 1e3,
        prompt_tokens: line.input_length,
        output_tokens: line.output_length.max(1),
        names: line.hash_ids,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AZURE_LINES: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
        2023-11-30 23:59:59.5000000,374,44\n2023-12-01 00:00:01.0000000,396,109\n";
    const MOONCAKE_LINES: &str = "{\"timestamp\": 3000, \"input_length\": 700, \"output_length\": 8, \"hash_ids\": [0, 2]}\n\
        {\"timestamp\": 1000, \"input_length\": 600, \"output_length\": 16, \"hash_ids\": [0, 1]}\n";

    #[test]
    fn both_formats_give_times_and_lengths() {
        let arrivals = Trace::parse("a", AZURE_LINES).unwrap().arrivals();
        let found: Vec<_> = arrivals.iter().map(|a| (a.at.as_millis(), a.prompt_tokens, a.output_tokens)).collect();
        assert_eq!(found, [(0, 374, 44), (1_500, 396, 109)]);
        let half = Trace::parse("m", MOONCAKE_LINES).unwrap().with_lengths(0.5).unwrap().scaled(2.0);
        let arrivals = half.arrivals();
        let found: Vec<_> = arrivals.iter().map(|a| (a.at.as_millis(), a.prompt_tokens, a.output_tokens)).collect();
        assert_eq!((found, half.longest()), (vec![(0, 300, 8), (1_000, 350, 4)], 354));
        let (one, two) = (arrivals[0].prompt(0), arrivals[1].prompt(1));
        assert_eq!(one[..256], two[..256], "the first name is the same, and stands for half of 512 tokens");
        assert_ne!(one[256], two[256]);
    }

    #[test]
    fn a_share_of_capacity_is_kept() {
        for trace in Trace::all() {
            let (cost, capacity) = (CostModel::simulated_worker(), Capacity { seats: 64, step_tokens: 512 });
            let scaled = trace.scaled(trace.factor(0.7, &cost, &capacity));
            assert!((scaled.factor(0.7, &cost, &capacity) - 1.0).abs() < 1e-9, "{}", trace.name);
            assert!(trace.requests() >= 500 && scaled.arrivals().is_sorted_by_key(|arrival| arrival.at));
        }
    }

    #[test]
    fn conversations_share_beginnings() {
        let arrivals = Trace::built_in("mooncake_conversations").unwrap().arrivals();
        let named: Vec<_> = arrivals.iter().filter_map(|arrival| arrival.shared.as_ref()).collect();
        assert_eq!(named.len(), arrivals.len());
        assert_eq!(named[0].tokens, 32);
        let again = named.iter().zip(1..).filter(|(shared, next)| {
            let second = shared.names.get(1);
            second.is_some() && named[*next..].iter().any(|later| later.names.get(1) == second)
        });
        assert!(again.count() > arrivals.len() / 10);
    }

    #[test]
    fn errors_name_the_line() {
        let bad = |text: &str| Trace::parse("x", text).unwrap_err();
        assert!(bad(&format!("{AZURE_LINES}yesterday,1,1")).starts_with("line 4"));
        assert!(bad(&format!("{AZURE_LINES}2023-12-01 00:00:01,0,1")).starts_with("line 4: lengths"));
        assert!(bad("{\"timestamp\": 1}").starts_with("line 1: missing field"));
        assert!(bad("TIMESTAMP,ContextTokens,GeneratedTokens\n").contains("at least one"));
        for scale in [0.0, -1.0, 1.5, f64::NAN] {
            assert!(Trace::parse("m", MOONCAKE_LINES).unwrap().with_lengths(scale).is_err());
        }
    }
}
