//! The recorded arrivals under every strategy and policy, and whether the prediction can be trusted: it is held against what
//! the strategy in force really did with them.

use super::arrival::Arrival;
use super::cost::CostModel;
use super::measure::{End, Measured, Record, Slo, Summary};
use super::setup::{Setup, Workers};
use super::simulate::simulate;
use forebay_core::intake::StrategyKind;
use forebay_core::scheduler::PolicyKind;
use forebay_core::units::Micros;
use forebay_turn::history;

/// Fewer requests say too little about tails.
pub const MIN_REQUESTS: usize = 50;
/// A prediction further off than this, for what is known, is not worth acting on.
pub const MAX_ERROR: f64 = 0.2;
/// Less than this is no reason to change anything.
const MIN_GAIN: f64 = 0.02;

/// What one strategy and policy would have done.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    pub strategy: StrategyKind,
    pub policy: PolicyKind,
    /// It is in force.
    pub active: bool,
    pub summary: Summary,
}

/// How far the prediction for the strategy in force is from what it did, relative to that.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Error {
    pub ttft_p50: f64,
    pub ttft_p99: f64,
    pub throughput: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Recommendation {
    pub requests: usize,
    pub seconds: f64,
    /// What was measured.
    pub actual: Summary,
    pub predictions: Vec<Prediction>,
    /// `None` without a prediction.
    pub error: Option<Error>,
    pub advice: Advice,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Advice {
    /// What to select, and why.
    Change { strategy: StrategyKind, policy: PolicyKind, why: String },
    /// What is in force is as good as anything.
    Keep { why: String },
    /// Nothing can be said.
    Refused { why: String },
}

impl Error {
    pub fn worst(&self) -> f64 {
        self.ttft_p50.abs().max(self.ttft_p99.abs()).max(self.throughput.abs())
    }
}

/// A loop's record, and the requests of it that count: those that came under the tuning in force and have ended.
struct Loop<'a> {
    record: &'a history::Record,
    past: Vec<&'a history::Past>,
}

impl Loop<'_> {
    fn of(record: &history::Record) -> Loop<'_> {
        let counts = |past: &&history::Past| past.at >= record.since && past.completed.is_some();
        Loop { record, past: record.past.iter().filter(counts).collect() }
    }
}

/// Predicts from what live engines recorded, loops that are tuned alike: each gets the requests that it had. Requests that
/// came before the tuning in force, or have not ended, do not count.
pub fn recommend(records: &[history::Record], slo: &Slo) -> Recommendation {
    let loops: Vec<Loop> = records.iter().map(Loop::of).filter(|a_loop| !a_loop.past.is_empty()).collect();
    let requests = loops.iter().map(|a_loop| a_loop.past.len()).sum();
    let began = loops.iter().map(|a_loop| a_loop.past[0].at).min().unwrap_or_default();
    let actual = measured(&loops, began).summary(slo);
    let refused = |why: String| Recommendation {
        requests,
        seconds: actual.seconds,
        actual: actual.clone(),
        predictions: Vec::new(),
        error: None,
        advice: Advice::Refused { why },
    };
    if requests < MIN_REQUESTS {
        let why = format!("{requests} requests have ended in the window; {MIN_REQUESTS} are needed");
        return refused(why);
    }
    let Some(runs) = loops.iter().map(|a_loop| Run::of(a_loop, began)).collect::<Option<Vec<Run>>>() else {
        return refused("the cost of a step is not measured yet".into());
    };
    let predictions = predictions(&runs, slo);
    let active = predictions.iter().find(|prediction| prediction.active);
    let error = active.map(|active| error(&active.summary, &actual));
    let advice = advise(&predictions, error);
    Recommendation { requests, seconds: actual.seconds, actual, predictions, error, advice }
}

/// What one loop's part of a prediction is made of.
struct Run {
    setup: Setup,
    arrivals: Vec<Arrival>,
}

impl Run {
    /// `None` before the loop has learnt what a step costs.
    fn of(a_loop: &Loop, began: Micros) -> Option<Run> {
        let record = a_loop.record;
        let cost = CostModel { gap_us: record.gap.0 as f64, ..CostModel::fitted(&record.cost)? };
        let setup = Setup {
            intake: record.tuning.intake,
            scheduler: record.tuning.scheduler,
            block_size: record.block_size,
            num_blocks: Some(record.num_blocks),
            cost,
            timeout: None,
            workers: Workers::default(),
        };
        Some(Run { setup, arrivals: arrivals(&a_loop.past, began) })
    }

    fn is_tuned(&self, strategy: StrategyKind, policy: PolicyKind) -> bool {
        strategy == self.setup.intake.flush.strategy && policy == self.setup.scheduler.policy.kind
    }

    fn under(&self, strategy: StrategyKind, policy: PolicyKind, seed: u64) -> Measured {
        let mut setup = self.setup.clone();
        setup.intake.flush.strategy = strategy;
        setup.scheduler.policy.kind = policy;
        simulate(&setup, &["all".into()], &self.arrivals, seed, &mut |_| ())
    }
}

fn predictions(runs: &[Run], slo: &Slo) -> Vec<Prediction> {
    let mut predictions = Vec::new();
    for strategy in StrategyKind::ALL {
        for policy in PolicyKind::ALL {
            let active = runs.iter().all(|run| run.is_tuned(strategy, policy));
            let measured = runs.iter().zip(0..).map(|(run, seed)| run.under(strategy, policy, seed));
            let summary = together(measured).summary(slo);
            predictions.push(Prediction { strategy, policy, active, summary });
        }
    }
    predictions
}

/// What several loops did at the same time.
fn together(parts: impl Iterator<Item = Measured>) -> Measured {
    let mut whole = Measured::new(vec!["all".into()]);
    for part in parts {
        whole.records.extend(part.records);
        for (whole, part) in whole.gaps.iter_mut().zip(part.gaps) {
            whole.extend(part);
        }
        whole.duration = whole.duration.max(part.duration);
    }
    whole
}

/// The same requests, with `began` as time zero.
fn arrivals(past: &[&history::Past], began: Micros) -> Vec<Arrival> {
    let arrival = |past: &&history::Past| Arrival {
        at: past.at.since(began),
        class: 0,
        priority: past.priority,
        prompt_tokens: past.prompt_tokens.max(1),
        // One that was aborted computed at least what it was told.
        output_tokens: past.output_tokens.max(1),
        shared: None,
    };
    past.iter().map(arrival).collect()
}

fn measured(loops: &[Loop], began: Micros) -> Measured {
    let mut measured = Measured::new(vec!["all".into()]);
    measured.records = loops
        .iter()
        .flat_map(|a_loop| &a_loop.past)
        .map(|past| Record {
            class: 0,
            priority: past.priority,
            sent: past.at.since(began),
            prompt_tokens: past.prompt_tokens,
            output_tokens: past.output_tokens,
            predicted: None,
            first_token: past.first_token.map(|at| at.since(began)),
            last: past.last.since(began),
            end: if past.completed == Some(true) { End::Completed } else { End::Failed },
        })
        .collect();
    measured.duration = measured.records.iter().map(|record| record.last).max().unwrap_or_default();
    measured
}

fn error(predicted: &Summary, actual: &Summary) -> Error {
    let relative = |predicted: f64, actual: f64| if actual > 0.0 { predicted / actual - 1.0 } else { 0.0 };
    Error {
        ttft_p50: relative(predicted.ttft.p50, actual.ttft.p50),
        ttft_p99: relative(predicted.ttft.p99, actual.ttft.p99),
        throughput: relative(predicted.output_throughput, actual.output_throughput),
    }
}

fn advise(predictions: &[Prediction], error: Option<Error>) -> Advice {
    let (Some(active), Some(error)) = (predictions.iter().find(|prediction| prediction.active), error) else {
        return Advice::Refused { why: "what is in force was not predicted".into() };
    };
    if error.worst() > MAX_ERROR {
        let Error { ttft_p50, ttft_p99, throughput } = error;
        let percent = |error: f64| format!("{:+.0} %", error * 100.0);
        let why = format!(
            "for {} the prediction is off by {} in p50 TTFT, {} in p99 TTFT and {} in throughput; {:.0} % is allowed",
            active.strategy.name(),
            percent(ttft_p50),
            percent(ttft_p99),
            percent(throughput),
            MAX_ERROR * 100.0
        );
        return Advice::Refused { why };
    }
    // Goodput first, where it differs; then the tail.
    let goodput = |prediction: &Prediction| prediction.summary.goodput.unwrap_or(0.0);
    let most = predictions.iter().map(goodput).fold(0.0, f64::max);
    let good = predictions.iter().filter(|prediction| goodput(prediction) >= most * (1.0 - MIN_GAIN));
    let p99 = |prediction: &Prediction| prediction.summary.ttft.p99;
    let Some(best) = good.min_by(|a, b| p99(a).total_cmp(&p99(b))) else {
        return Advice::Refused { why: "nothing was predicted".into() };
    };
    let is_gain = goodput(active) < most * (1.0 - MIN_GAIN) || p99(best) < p99(active) * (1.0 - MIN_GAIN);
    if !is_gain {
        let why = format!("nothing would be better by more than {:.0} %", MIN_GAIN * 100.0);
        return Advice::Keep { why };
    }
    let why = format!(
        "goodput {:.2} instead of {:.2} requests/s, p99 TTFT {:.0} instead of {:.0} ms",
        goodput(best),
        goodput(active),
        p99(best),
        p99(active)
    );
    Advice::Change { strategy: best.strategy, policy: best.policy, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use forebay_core::request::Priority;
    use forebay_core::scheduler::{StepCost, StepLoad};
    use forebay_turn::control::Tuning;

    /// An engine that took `slower` times as long as its cost model says.
    fn recorded(slower: f64) -> history::Record {
        let mut setup = crate::simulate::tests::setup();
        setup.intake.flush.strategy = StrategyKind::Fixed;
        let scenario = Scenario::built_in("steady_state").unwrap();
        let scenario = scenario.scaled(scenario.factor(0.5, &setup.cost, &setup.capacity()));
        let CostModel { step_us, prefill_token_us, decode_token_us, .. } = setup.cost;
        let slow = CostModel {
            step_us: step_us * slower,
            prefill_token_us: prefill_token_us * slower,
            decode_token_us: decode_token_us * slower,
            ..setup.cost
        };
        let truth = Setup { cost: slow, ..setup.clone() };
        let measured = simulate(&truth, &["chat".into()], &scenario.arrivals(9), 9, &mut |_| ());
        let past = measured.records.iter().map(|record| history::Past {
            at: record.sent,
            priority: Priority::Normal,
            prompt_tokens: record.prompt_tokens,
            output_tokens: record.output_tokens,
            first_token: record.first_token,
            last: record.last,
            completed: Some(true),
        });
        let mut cost = StepCost::default();
        for n in 0..300_usize {
            let decodes = (0..n % 9).fold(StepLoad::STEP, |sum, _| sum + StepLoad::decode(100));
            let load = if n % 3 == 0 { decodes + StepLoad::prefill(0, 20 + n % 200) } else { decodes };
            cost.observe(&load, Micros(setup.cost.mean_us(&load) as u64));
        }
        history::Record {
            now: measured.duration,
            since: Micros::ZERO,
            past: past.collect(),
            tuning: Tuning { intake: setup.intake, scheduler: setup.scheduler },
            cost,
            gap: Micros::ZERO,
            block_size: 32,
            num_blocks: 4_096,
        }
    }

    fn slo() -> Slo {
        Slo { ttft_ms: Some(500.0), ..Slo::default() }
    }

    #[test]
    fn what_happened_is_predicted_and_what_would_be_better_is_named() {
        let advice = recommend(&[recorded(1.0)], &slo());
        assert!(advice.error.unwrap().worst() < 0.1, "{:?}", advice.error);
        assert_eq!(advice.predictions.len(), StrategyKind::ALL.len() * PolicyKind::ALL.len());
        assert!(advice.predictions.iter().filter(|prediction| prediction.active).count() == 1);
        // Waiting 50 ms beside running work helps nobody here.
        let Advice::Change { strategy, .. } = advice.advice else { panic!("{:?}", advice.advice) };
        assert!([StrategyKind::Immediate, StrategyKind::CostAware].contains(&strategy), "{strategy:?}");
    }

    #[test]
    fn two_loops_are_two_engines() {
        let one = recommend(&[recorded(1.0)], &slo());
        let two = recommend(&[recorded(1.0), recorded(1.0)], &slo());
        assert_eq!(two.requests, 2 * one.requests);
        assert!(two.error.unwrap().worst() < 0.1, "{:?}", two.error);
        // Twice the requests in the same time, and each as fast as before.
        let active = |advice: &Recommendation| advice.predictions.iter().find(|p| p.active).unwrap().summary.clone();
        let (one, two) = (active(&one), active(&two));
        assert!((two.output_throughput / one.output_throughput - 2.0).abs() < 0.05, "{one:?} {two:?}");
        assert!((two.ttft.p50 / one.ttft.p50 - 1.0).abs() < 0.05, "{one:?} {two:?}");
        // A loop that nothing came to says nothing, and does not keep the others from it.
        let idle = history::Record { past: Vec::new(), cost: StepCost::default(), ..recorded(1.0) };
        assert!(recommend(&[idle, recorded(1.0)], &slo()).error.is_some());
    }

    #[test]
    fn a_prediction_that_is_wrong_about_the_present_recommends_nothing() {
        let advice = recommend(&[recorded(1.6)], &slo());
        assert!(matches!(&advice.advice, Advice::Refused { why } if why.contains("p99 TTFT")), "{:?}", advice.advice);
    }

    #[test]
    fn too_few_requests_and_those_of_another_tuning_say_nothing() {
        let refused = |record: &history::Record| match recommend(std::slice::from_ref(record), &slo()).advice {
            Advice::Refused { why } => why,
            other => panic!("{other:?}"),
        };
        let mut record = recorded(1.0);
        record.since = record.now;
        assert!(refused(&record).starts_with("0 requests"));
        let unmeasured = history::Record { cost: StepCost::default(), ..recorded(1.0) };
        assert!(refused(&unmeasured).contains("not measured"));
    }
}
