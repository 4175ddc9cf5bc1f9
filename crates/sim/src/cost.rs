//! How long a step takes: the simulated worker's numbers, or those that were fitted to a live engine.

use config::{Config, File, FileFormat};
use serde::Deserialize;

use super::dice::Dice;
use forebay_core::scheduler::{Coefficients, StepCost, StepLoad};
use forebay_core::step::{BatchChunk, StepBatch};
use forebay_core::units::Micros;

/// What a step takes at least, in microseconds.
const LEAST_STEP_US: f64 = 1.0;

/// Step time as a linear function of its work, with normal noise. Microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    pub step_us: f64,
    pub prefill_token_us: f64,
    pub decode_token_us: f64,
    /// Per sequence whose prompt is computed.
    pub prefill_us: f64,
    /// Per KV entry read.
    pub context_token_us: f64,
    /// Standard deviation, as a share of `step_us`.
    pub base_noise: f64,
    /// Standard deviation, as a share of the whole step.
    pub step_noise: f64,
    /// Between two steps: planning, delivering, waking up.
    pub gap_us: f64,
}

/// The bounds of an engine, as far as they decide what it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Sequences that run at once.
    pub seats: usize,
    /// Tokens that one step computes at most.
    pub step_tokens: usize,
}

/// As `forebay calibrate` writes it. What is left out is 0.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct Written {
    step_us: f64,
    prefill_token_us: f64,
    decode_token_us: f64,
    prefill_us: f64,
    context_token_us: f64,
    base_noise: f64,
    step_noise: f64,
    gap_us: f64,
}

impl CostModel {
    /// Reads JSON or YAML; the error is for whoever wrote it.
    pub fn parse(text: &str) -> Result<CostModel, String> {
        let file = Config::builder().add_source(File::from_str(text, FileFormat::Yaml)).build();
        let written: Written = file.and_then(Config::try_deserialize).map_err(|error| error.to_string())?;
        let Written { step_us, prefill_token_us, decode_token_us, prefill_us, context_token_us, .. } = written;
        let Written { base_noise, step_noise, gap_us, .. } = written;
        let model = CostModel {
            step_us,
            prefill_token_us,
            decode_token_us,
            prefill_us,
            context_token_us,
            base_noise,
            step_noise,
            gap_us,
        };
        let numbers = model.named().map(|(_, value)| value);
        if numbers.iter().any(|value| !(0.0..=1e12).contains(value)) || model.mean_us(&StepLoad::STEP) <= 0.0 {
            return Err("a cost model has no negative numbers, and its steps take time".into());
        }
        Ok(model)
    }

    /// Its numbers and their names in files.
    pub fn named(&self) -> [(&'static str, f64); 8] {
        [
            ("step_us", self.step_us),
            ("prefill_token_us", self.prefill_token_us),
            ("decode_token_us", self.decode_token_us),
            ("prefill_us", self.prefill_us),
            ("context_token_us", self.context_token_us),
            ("base_noise", self.base_noise),
            ("step_noise", self.step_noise),
            ("gap_us", self.gap_us),
        ]
    }

    /// 10 ms a step and 0.5 ms a token, with a deviation of a tenth of the 10 ms.
    pub const fn simulated_worker() -> CostModel {
        CostModel {
            step_us: 10_000.0,
            prefill_token_us: 500.0,
            decode_token_us: 500.0,
            prefill_us: 0.0,
            context_token_us: 0.0,
            base_noise: 0.1,
            step_noise: 0.0,
            gap_us: 0.0,
        }
    }

    /// What a live engine has learnt; `None` before it has learnt anything.
    pub fn fitted(cost: &StepCost) -> Option<CostModel> {
        if cost.samples() == 0 {
            return None;
        }
        let Coefficients { step_us, prefill_token_us, decode_token_us, prefill_us, context_token_us } =
            cost.coefficients();
        // A fit that lays all time on tokens says so; but no step is free, and whoever reads this model relies on it.
        let step_us = step_us.max(LEAST_STEP_US);
        // The spread is a mean absolute error; of normal errors that is 0.8 standard deviations.
        let step_noise = cost.spread() / 0.8;
        let base_noise = 0.0;
        Some(CostModel {
            step_us,
            prefill_token_us,
            decode_token_us,
            prefill_us,
            context_token_us,
            base_noise,
            step_noise,
            gap_us: 0.0,
        })
    }

    /// Without noise, in microseconds.
    pub fn mean_us(&self, load: &StepLoad) -> f64 {
        self.step_us * load.steps as f64
            + self.prefill_token_us * load.prefill_tokens as f64
            + self.decode_token_us * load.decode_tokens as f64
            + self.prefill_us * load.prefills as f64
            + self.context_token_us * load.context_tokens as f64
    }

    /// One draw of how long `load` takes.
    pub fn draw(&self, load: &StepLoad, dice: &mut Dice) -> Micros {
        let mean = self.mean_us(load);
        let deviation = (self.step_us * self.base_noise).hypot(mean * self.step_noise);
        // No step is faster than a tenth of its mean, whatever the dice say.
        Micros((mean + deviation * dice.normal()).max(mean / 10.0).round() as u64)
    }

    /// Seconds of the engine that a request needs when every seat is taken: its own tokens, and its part of the steps. It
    /// needs a step per output token, shared with as many others as there are seats, or, if the tokens of a step are the
    /// tighter bound, as many tokens' worth of steps as it has.
    pub fn seconds(&self, prompt: f64, output: f64, capacity: &Capacity) -> f64 {
        let steps = (output / capacity.seats as f64).max((prompt + output) / capacity.step_tokens as f64);
        let context = prompt * prompt / 2.0 + output * (prompt + output / 2.0);
        let micros = (self.step_us + self.gap_us) * steps
            + self.prefill_token_us * prompt
            + self.decode_token_us * output
            + self.prefill_us
            + self.context_token_us * context;
        micros / 1e6
    }
}

/// The work of a step, from its physical form.
pub fn load(batch: &StepBatch) -> StepLoad {
    batch.chunks.iter().fold(StepLoad::STEP, |sum, chunk| sum + of_chunk(batch, chunk))
}

fn of_chunk(batch: &StepBatch, chunk: &BatchChunk) -> StepLoad {
    let start = batch.positions[chunk.rows.start] as usize;
    // A lone token that draws is a decode; the rare prompt of which one token is left costs the same.
    let is_decode = start > 0 && chunk.sample && chunk.rows.len() == 1 + chunk.proposed;
    if !is_decode {
        return StepLoad::prefill(start, chunk.rows.len());
    }
    chunk
        .rows
        .clone()
        .map(|row| StepLoad::decode(batch.positions[row] as usize + 1))
        .fold(StepLoad { steps: 0, ..StepLoad::default() }, |sum, row| sum + row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::units::SeqId;

    fn chunk(rows: std::ops::Range<usize>, sample: bool) -> BatchChunk {
        BatchChunk { seq: SeqId(rows.start as u64), rows, table: 0..0, sample, proposed: 0 }
    }

    #[test]
    fn a_batch_is_weighed_as_its_plan_was() {
        // A decode at position 9, a prompt's 4 tokens behind 2 others, another prompt's single first token.
        let batch = StepBatch {
            positions: vec![9, 2, 3, 4, 5, 0],
            chunks: vec![chunk(0..1, true), chunk(1..5, false), chunk(5..6, true)],
            ..StepBatch::default()
        };
        let expected = StepLoad::STEP + StepLoad::decode(10) + StepLoad::prefill(2, 4) + StepLoad::prefill(0, 1);
        assert_eq!(load(&batch), expected);
        let micros = CostModel::simulated_worker().mean_us(&expected);
        assert_eq!(micros, 10_000.0 + 6.0 * 500.0);
    }

    #[test]
    fn noise_is_a_tenth_of_the_base() {
        let (cost, mut dice) = (CostModel::simulated_worker(), Dice::new(1));
        let load = StepLoad::STEP + StepLoad::prefill(0, 100);
        let draws: Vec<f64> = (0..20_000).map(|_| cost.draw(&load, &mut dice).0 as f64).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let deviation = (draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64).sqrt();
        assert!((mean - 60_000.0).abs() < 50.0 && (deviation - 1_000.0).abs() < 30.0, "{mean} {deviation}");
    }

    #[test]
    fn a_file_says_what_the_model_is() {
        let worker = CostModel::simulated_worker();
        let text: String = worker.named().iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        assert_eq!(CostModel::parse(&text), Ok(worker));
        for bad in ["step_us: -1", "step_us: 0", "{}", "step_us: 5\nstep_ms: 5", "step_us: fast", "["] {
            assert!(CostModel::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_fitted_model_can_be_read_whatever_was_measured() {
        let mut learnt = StepCost::default();
        for tokens in 1..200 {
            // More tokens than proportion would have it: a line through these begins below zero.
            let load = StepLoad::STEP + StepLoad::prefill(0, tokens);
            learnt.observe(&load, Micros((tokens * tokens) as u64));
        }
        let fitted = CostModel::fitted(&learnt).unwrap();
        let written: String = fitted.named().iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        assert_eq!(learnt.coefficients().step_us, 0.0, "{written}");
        assert_eq!(CostModel::parse(&written), Ok(fitted), "{written}");
    }

    #[test]
    fn a_fitted_model_says_what_was_learnt() {
        let mut learnt = StepCost::default();
        assert_eq!(CostModel::fitted(&learnt), None);
        let truth = CostModel { step_us: 2_000.0, context_token_us: 1.0, ..CostModel::simulated_worker() };
        let mut dice = Dice::new(2);
        for n in 0..400_usize {
            let decodes = (0..n % 8).fold(StepLoad::STEP, |sum, _| sum + StepLoad::decode(50 + n));
            let load = if n % 3 == 0 { decodes + StepLoad::prefill(n % 5, 10 + n % 90) } else { decodes };
            learnt.observe(&load, CostModel { base_noise: 0.02, ..truth }.draw(&load, &mut dice));
        }
        let fitted = CostModel::fitted(&learnt).unwrap();
        for load in [
            StepLoad::STEP + StepLoad::decode(300),
            StepLoad::STEP + StepLoad::prefill(0, 64),
            StepLoad::STEP + StepLoad::prefill(3, 80) + StepLoad::decode(200),
        ] {
            let (found, expected) = (fitted.mean_us(&load), truth.mean_us(&load));
            assert!((found / expected - 1.0).abs() < 0.05, "{load:?}: {found}, not {expected}");
        }
    }
}
