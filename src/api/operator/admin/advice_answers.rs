//! What a strategy costs or would bring, as the operator reads it.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::canary::Canary;
use crate::api::pipeline::ordered::Ordered;
use forebay_sim::canary::Tally;
use forebay_sim::recommend::{self, Advice, Error, Prediction};
use forebay_sim::{Slo, json as sim_json};

/// What a step costs, as the engine has learnt.
#[derive(Serialize, ToSchema)]
pub struct Cost {
    pub samples: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// Microseconds, by name; the file that `forebay simulate --cost` reads.
    #[schema(required = true, value_type = Option<BTreeMap<String, f64>>)]
    pub model: Option<Ordered<f64>>,
}

#[derive(Serialize, ToSchema)]
pub struct Recommendation {
    window_s: f64,
    requests: usize,
    objective: Objective,
    /// What was measured, with the names that `forebay simulate` writes.
    #[schema(value_type = BTreeMap<String, Option<f64>>)]
    actual: Value,
    /// Relative, of the strategy and policy in force.
    #[schema(required = true)]
    error: Option<PredictionError>,
    predictions: Vec<Predicted>,
    #[schema(required = true)]
    recommended: Option<Recommended>,
    /// `change`, `keep` or `refused`.
    verdict: &'static str,
    why: String,
}

/// What counts as served well.
#[derive(Serialize, ToSchema)]
pub struct Objective {
    /// The first token comes within so many milliseconds.
    #[schema(required = true)]
    ttft_ms: Option<f64>,
}

/// How far a prediction is from what was measured, relative to that.
#[derive(Serialize, ToSchema)]
pub struct PredictionError {
    ttft_p50: f64,
    ttft_p99: f64,
    throughput: f64,
}

/// What one strategy and policy would have done, with the names that `forebay simulate` writes.
#[derive(Serialize, ToSchema)]
pub struct Predicted {
    #[serde(flatten)]
    #[schema(value_type = BTreeMap<String, Option<f64>>)]
    summary: Value,
    strategy: &'static str,
    policy: &'static str,
    /// It is in force.
    active: bool,
}

#[derive(Serialize, ToSchema)]
pub struct Recommended {
    strategy: &'static str,
    policy: &'static str,
}

impl Recommendation {
    pub fn of(told: recommend::Recommendation, slo: &Slo) -> Recommendation {
        let (verdict, recommended, why) = match told.advice {
            Advice::Change { strategy, policy, why } => {
                ("change", Some(Recommended { strategy: strategy.name(), policy: policy.name() }), why)
            }
            Advice::Keep { why } => ("keep", None, why),
            Advice::Refused { why } => ("refused", None, why),
        };
        Recommendation {
            window_s: told.seconds,
            requests: told.requests,
            objective: Objective { ttft_ms: slo.ttft_ms },
            actual: sim_json::summary(&told.actual),
            error: told.error.map(PredictionError::of),
            predictions: told.predictions.iter().map(Predicted::of).collect(),
            recommended,
            verdict,
            why,
        }
    }
}

impl PredictionError {
    fn of(Error { ttft_p50, ttft_p99, throughput }: Error) -> PredictionError {
        PredictionError { ttft_p50, ttft_p99, throughput }
    }
}

impl Predicted {
    fn of(prediction: &Prediction) -> Predicted {
        Predicted {
            summary: sim_json::summary(&prediction.summary),
            strategy: prediction.strategy.name(),
            policy: prediction.policy.name(),
            active: prediction.active,
        }
    }
}

/// A strategy on trial.
#[derive(Serialize, ToSchema)]
pub struct CanaryState {
    strategy: String,
    instead_of: String,
    share: f64,
    seconds: f64,
    running: bool,
    on_trial: CanaryTally,
    in_force: CanaryTally,
    /// Once it is over.
    #[schema(required = true)]
    kept: Option<bool>,
    #[schema(required = true)]
    why: Option<String>,
}

/// Requests of one arm of a trial, and those of them that kept the objective.
#[derive(Serialize, ToSchema)]
pub struct CanaryTally {
    requests: u64,
    kept: u64,
    /// Kept of all.
    share: f64,
    /// How far the true share may be from that.
    radius: f64,
}

impl CanaryState {
    pub fn of(canary: &Canary) -> CanaryState {
        let outcome = canary.outcome.as_ref();
        CanaryState {
            strategy: canary.strategy.clone(),
            instead_of: canary.instead_of.clone(),
            share: canary.share,
            seconds: canary.seconds,
            running: outcome.is_none(),
            on_trial: CanaryTally::of(&canary.trial.on_trial),
            in_force: CanaryTally::of(&canary.trial.in_force),
            kept: outcome.map(|outcome| outcome.kept),
            why: outcome.map(|outcome| outcome.why.clone()),
        }
    }
}

impl CanaryTally {
    fn of(tally: &Tally) -> CanaryTally {
        CanaryTally { requests: tally.requests, kept: tally.kept, share: tally.share(), radius: tally.radius() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::intake::StrategyKind;
    use forebay_core::scheduler::policy::PolicyKind;
    use forebay_sim::Summary;

    #[test]
    fn a_recommendation_is_written_as_before() {
        let (strategy, policy) = (StrategyKind::Fixed, PolicyKind::ALL[0]);
        let summary = Summary { completed: 5, goodput: Some(1.5), ..Summary::default() };
        let told = recommend::Recommendation {
            requests: 60,
            seconds: 600.0,
            actual: summary.clone(),
            predictions: vec![Prediction { strategy, policy, active: true, summary }],
            error: Some(Error { ttft_p50: 0.25, ttft_p99: -0.5, throughput: 0.0 }),
            advice: Advice::Change { strategy, policy, why: "better".into() },
        };
        let slo = Slo { ttft_ms: Some(500.0), ..Slo::default() };
        let text = serde_json::to_string(&Recommendation::of(told, &slo)).unwrap();
        assert_eq!(text, include_str!("recommendation.txt").trim_end());
    }
}
