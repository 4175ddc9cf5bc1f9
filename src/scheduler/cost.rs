//! What a step costs, learnt from the steps that were taken. Pure.
//!
//! `t ≈ a·steps + b·prefill + c·decode + d·prefills + e·context`, fitted by recursive least squares with exponential
//! forgetting (Haykin, *Adaptive Filter Theory*, chapter on RLS), a ridge from the initial covariance, and residuals
//! clipped, so that one slow step on a shared machine does not change what is known of all others.
//!
//! Predictions use no negative coefficient: what the fit takes back in one place for having put too much in another is not
//! believed, so predictions err towards too long. They reach twice as far as what was seen, not further.

use std::ops::Add;

use crate::units::Micros;

/// What a step (or several, added up) computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepLoad {
    pub steps: usize,
    /// Tokens of prompts, or of sequences that are computed again.
    pub prefill_tokens: usize,
    /// Sequences that computed one token each.
    pub decode_tokens: usize,
    /// Chunks of several tokens.
    pub prefills: usize,
    /// Cached tokens that all rows attended to, together.
    pub context_tokens: usize,
}

impl Add for StepLoad {
    type Output = StepLoad;
    fn add(self, other: StepLoad) -> StepLoad {
        StepLoad {
            steps: self.steps + other.steps,
            prefill_tokens: self.prefill_tokens + other.prefill_tokens,
            decode_tokens: self.decode_tokens + other.decode_tokens,
            prefills: self.prefills + other.prefills,
            context_tokens: self.context_tokens + other.context_tokens,
        }
    }
}

const FEATURES: usize = 5;
/// Per sample: what was seen 700 samples ago counts for half.
const FORGETTING: f64 = 0.999;
/// The variance of what is not known yet; without bound, forgetting would let it grow where nothing is seen.
const MAX_VARIANCE: f64 = 1e6;
/// How readily each feature is believed to cost something. Tokens before the number of prompts: while all chunks are alike
/// nothing tells the two apart, and blaming tokens predicts longer steps for longer chunks.
const PRIOR: [f64; FEATURES] = [1.0, 1.0, 1.0, 1e-3, 1.0];
/// Samples before anything is predicted, and samples with prefill before prefill is.
const ENOUGH: usize = 6;
const ENOUGH_PREFILLS: usize = 3;
/// Samples that are believed as they are.
const TRUSTING: usize = 24;
/// Residuals beyond so many times the usual one are cut to it.
const CLIP: f64 = 4.0;

/// A fitted model of step times.
#[derive(Clone, Debug)]
pub struct StepCost {
    /// Seconds per unit of each feature, in the features' scale.
    weights: [f64; FEATURES],
    covariance: [[f64; FEATURES]; FEATURES],
    samples: usize,
    prefill_samples: usize,
    /// Mean absolute residual, in seconds, of late.
    usual_residual: f64,
    most_prefill: usize,
}

impl Default for StepCost {
    fn default() -> StepCost {
        let mut covariance = [[0.0; FEATURES]; FEATURES];
        (0..FEATURES).for_each(|i| covariance[i][i] = 1e3 * PRIOR[i]);
        StepCost {
            weights: [0.0; FEATURES],
            covariance,
            samples: 0,
            prefill_samples: 0,
            usual_residual: 0.0,
            most_prefill: 0,
        }
    }
}

/// Scaled so that all are near 1 in a usual step, or the covariance would be badly conditioned.
fn features(load: &StepLoad) -> [f64; FEATURES] {
    [
        load.steps as f64,
        load.prefill_tokens as f64 / 128.0,
        load.decode_tokens as f64 / 16.0,
        load.prefills as f64 / 2.0,
        load.context_tokens as f64 / 16_384.0,
    ]
}

fn dot(a: &[f64; FEATURES], b: &[f64; FEATURES]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl StepCost {
    /// A step of this load took so long.
    pub fn observe(&mut self, load: &StepLoad, elapsed: Micros) {
        if load.steps == 0 {
            return;
        }
        let x = features(load);
        let residual = self.clipped(elapsed.as_secs_f64() - dot(&x, &self.weights));
        let gain_direction = self.covariance.map(|row| dot(&row, &x));
        let denominator = FORGETTING + dot(&x, &gain_direction);
        for (weight, direction) in self.weights.iter_mut().zip(gain_direction) {
            *weight += direction / denominator * residual;
        }
        self.shrink(&gain_direction, denominator);
        self.samples += 1;
        self.prefill_samples += usize::from(load.prefill_tokens > 0);
        self.most_prefill = self.most_prefill.max(load.prefill_tokens / load.steps);
    }

    fn clipped(&mut self, residual: f64) -> f64 {
        let size = residual.abs();
        if self.samples < TRUSTING {
            self.usual_residual = 0.8 * self.usual_residual + 0.2 * size;
            return residual;
        }
        let usual = self.usual_residual.max(1e-5);
        // A machine that became slower is believed after a few steps: what is usual grows with what is seen.
        self.usual_residual = 0.95 * usual + 0.05 * size.min(10.0 * usual);
        residual.clamp(-CLIP * usual, CLIP * usual)
    }

    /// The covariance after a sample in this direction.
    fn shrink(&mut self, direction: &[f64; FEATURES], denominator: f64) {
        let before = self.covariance;
        for i in 0..FEATURES {
            for j in 0..FEATURES {
                let shrunk = (before[i][j] - direction[i] * direction[j] / denominator) / FORGETTING;
                self.covariance[i][j] = shrunk;
            }
        }
        // Forgetting inflates what is not excited: held at its bound, by scaling row and column alike.
        for i in 0..FEATURES {
            let variance = self.covariance[i][i];
            if variance > MAX_VARIANCE {
                let scale = (MAX_VARIANCE / variance).sqrt();
                for j in 0..FEATURES {
                    self.covariance[i][j] *= scale;
                    self.covariance[j][i] *= scale;
                }
            }
        }
    }

    /// How long such a step will take. `None` before enough was seen, or for prefills larger than what was seen allows.
    pub fn predict(&self, load: &StepLoad) -> Option<Micros> {
        let known = self.samples >= ENOUGH;
        let reaches = load.prefill_tokens == 0 || load.prefill_tokens <= self.reach();
        if !known || !reaches {
            return None;
        }
        let weights = self.weights.map(|weight| weight.max(0.0));
        let seconds = dot(&features(load), &weights);
        seconds.is_finite().then(|| Micros::from_secs_f64(seconds))
    }

    /// Prefill tokens in a step up to which a prediction is worth something.
    pub fn reach(&self) -> usize {
        if self.prefill_samples < ENOUGH_PREFILLS { 0 } else { 2 * self.most_prefill }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with known costs, in microseconds.
    fn truth(load: &StepLoad) -> f64 {
        3_000.0 * load.steps as f64
            + 250.0 * load.prefill_tokens as f64
            + 400.0 * load.decode_tokens as f64
            + 0.05 * load.context_tokens as f64
    }

    fn loads(count: usize) -> impl Iterator<Item = StepLoad> {
        let mut state = 9u64;
        let mut next = move |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 33) % n) as usize
        };
        (0..count).map(move |_| {
            let (decode_tokens, prefill_tokens) = (next(32), if next(3) == 0 { next(512) } else { 0 });
            StepLoad {
                steps: 1,
                prefill_tokens,
                decode_tokens,
                prefills: prefill_tokens.div_ceil(200),
                context_tokens: decode_tokens * (100 + next(900)) + prefill_tokens * 50,
            }
        })
    }

    fn relative_error(cost: &StepCost) -> f64 {
        let errors = loads(400).skip(300).filter_map(|load| {
            let predicted = cost.predict(&load)?.0 as f64;
            Some((predicted - truth(&load)).abs() / truth(&load))
        });
        errors.fold(0.0, f64::max)
    }

    #[test]
    fn known_costs_are_learnt() {
        let mut cost = StepCost::default();
        loads(200).for_each(|load| cost.observe(&load, Micros(truth(&load) as u64)));
        assert!(relative_error(&cost) < 0.03, "{}", relative_error(&cost));
    }

    #[test]
    fn one_slow_step_in_ten_does_not_mislead_and_a_slower_machine_is_believed() {
        let mut cost = StepCost::default();
        for (n, load) in loads(400).enumerate() {
            let slow = if n > 20 && n % 10 == 0 { 20.0 } else { 1.0 };
            cost.observe(&load, Micros((truth(&load) * slow) as u64));
        }
        assert!(relative_error(&cost) < 0.6, "{}", relative_error(&cost));
        let mut cost = StepCost::default();
        loads(200).for_each(|load| cost.observe(&load, Micros(truth(&load) as u64)));
        loads(3_000).for_each(|load| cost.observe(&load, Micros((truth(&load) * 3.0) as u64)));
        let load = loads(7).last().unwrap();
        let ratio = cost.predict(&load).unwrap().0 as f64 / truth(&load);
        assert!((2.5..3.5).contains(&ratio), "{ratio}");
    }

    #[test]
    fn nothing_is_predicted_beyond_what_was_seen() {
        let mut cost = StepCost::default();
        let decode = StepLoad { steps: 1, decode_tokens: 4, context_tokens: 400, ..StepLoad::default() };
        assert_eq!(cost.predict(&decode), None);
        (0..100).for_each(|_| cost.observe(&decode, Micros(5_000)));
        assert!(cost.predict(&decode).unwrap().0.abs_diff(5_000) < 300);
        let prefill = |tokens| StepLoad { prefill_tokens: tokens, prefills: 1, ..decode };
        assert_eq!(cost.predict(&prefill(16)), None);
        (0..5).for_each(|_| cost.observe(&prefill(32), Micros(13_000)));
        assert!(cost.predict(&prefill(64)).is_some() && cost.predict(&prefill(65)).is_none());
    }

    #[test]
    fn years_of_the_same_step_keep_everything_finite() {
        let mut cost = StepCost::default();
        let decode = StepLoad { steps: 1, decode_tokens: 1, context_tokens: 10, ..StepLoad::default() };
        (0..200_000).for_each(|n| cost.observe(&decode, Micros(1_000 + n % 7)));
        let predicted = cost.predict(&decode).unwrap().0;
        assert!((900..1_100).contains(&predicted), "{predicted}");
        assert!(cost.covariance.iter().flatten().all(|x| x.is_finite()));
        cost.observe(&StepLoad { prefill_tokens: 512, prefills: 3, ..decode }, Micros(200_000));
        assert!(cost.predict(&decode).unwrap().0 < 50_000);
    }
}
