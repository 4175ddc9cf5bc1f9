//! What a step costs, learned from the steps themselves.
//!
//! The time of a step is modelled as `t ≈ a·steps + b·prefill + c·decode + d·prefills + e·context` with no negative
//! coefficient, fitted by recursive least squares with exponential forgetting (Ljung, "System Identification", 2nd ed., ch.
//! 11) on the normal equations. The ridge pulls towards the estimate before instead of towards zero, so that what has not
//! been seen for hours (prefills, in a long decode) is neither forgotten nor blown up.

use std::ops::Add;

use crate::units::Micros;

use super::chunk::Chunk;

/// The work of a step, or, summed, of a few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepLoad {
    /// Forward passes.
    pub steps: usize,
    /// Tokens of prompts, computed for the first time or again.
    pub prefill_tokens: usize,
    pub decode_tokens: usize,
    /// Sequences whose prompts went on.
    pub prefills: usize,
    /// KV entries read: for each computed token those at and before its position.
    pub context_tokens: usize,
}

impl StepLoad {
    /// One forward pass without any work yet.
    pub const STEP: StepLoad =
        StepLoad { steps: 1, prefill_tokens: 0, decode_tokens: 0, prefills: 0, context_tokens: 0 };

    pub fn of(chunk: &Chunk) -> StepLoad {
        let (start, end) = (chunk.tokens.start as usize, chunk.tokens.end as usize);
        if chunk.decode { StepLoad::decode(end) } else { StepLoad::prefill(start, end - start) }
    }

    /// One decode token that reads `context` KV entries.
    pub fn decode(context: usize) -> StepLoad {
        StepLoad { decode_tokens: 1, context_tokens: context, ..StepLoad::default() }
    }

    /// A prefill chunk of `tokens` behind `computed` others.
    pub fn prefill(computed: usize, tokens: usize) -> StepLoad {
        // The sum of computed + 1 … computed + tokens.
        let context_tokens = tokens * computed + tokens * (tokens + 1) / 2;
        StepLoad { prefill_tokens: tokens, prefills: 1, context_tokens, ..StepLoad::default() }
    }

    fn features(&self) -> Features {
        let features = [self.steps, self.prefill_tokens, self.decode_tokens, self.prefills, self.context_tokens];
        features.map(|count| (count as f64).min(LARGEST))
    }
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

const N: usize = 5;
type Features = [f64; N];
const STEPS: usize = 0;
const PREFILLS: usize = 3;
/// Larger counts and times are cut to this, so that no sum of squares ever overflows.
const LARGEST: f64 = 1e12;
/// The weight of the estimate before, in samples.
const RIDGE: f64 = 0.1;
/// Samples before there is a prediction, and those among them that show each kind of work it is asked about.
const MIN_SAMPLES: u64 = 8;
const MIN_SAMPLES_OF_A_KIND: u64 = 4;
/// How much an estimate remembers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Memory {
    /// What a sample still weighs when the next comes.
    forgetting: f64,
    /// How fast the spread follows residuals above and below it.
    spread_rise: f64,
    spread_fall: f64,
    /// A residual counts up to so many spreads; more is an outlier.
    clip_spreads: f64,
}

/// About the last 100 samples count: what bounds the next step must follow a machine whose speed changes. Trust is lost
/// faster than won.
const QUICK: Memory = Memory { forgetting: 0.99, spread_rise: 0.1, spread_fall: 0.05, clip_spreads: 4.0 };
/// About the last 20,000: what describes an engine must have seen it idle, full, reading prompts and decoding. Its spread is
/// an estimate, not a precaution, and what takes longer than usual now and then belongs to the mean.
const LASTING: Memory = Memory { forgetting: 0.999_95, spread_rise: 0.002, spread_fall: 0.002, clip_spreads: 20.0 };
/// The relative spread taken for granted at first.
const FIRST_SPREAD: f64 = 0.1;
/// Spreads added to a prediction: 3.2 standard deviations if errors are normal, so 999 of 1000 steps stay below it. With three of
/// them up to 1.4 of 1000 steps of the simulated worker took longer than they might.
const MARGIN_SPREADS: f64 = 4.0;
/// Added at least, relative: no machine is quite linear.
const MIN_MARGIN: f64 = 0.02;
/// The relative spread below which clipping does not narrow: a model that fits perfectly must still be able to learn.
const MIN_SPREAD: f64 = 0.05;
const MIN_CLIP_MICROS: f64 = 50.0;

/// The measured cost of steps.
#[derive(Clone, Debug, PartialEq)]
pub struct StepCost {
    memory: Memory,
    /// Microseconds per unit of each feature, never negative.
    coefficients: Features,
    /// Weighted sums of x·xᵀ and of x·t over the samples.
    moments: [Features; N],
    targets: Features,
    /// Mean square of each feature where it was not zero, the unit of the ridge.
    scale: Features,
    /// Samples in which each feature was not zero.
    seen: [u64; N],
    samples: u64,
    /// Of steps without and with prefills: decode steps that fit to the microsecond say nothing about the others.
    spreads: [Spread; 2],
    /// The most prefill tokens that a sample had in one step.
    reach: f64,
}

/// Running means of the absolute residual and of the prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Spread {
    residual: f64,
    predicted: f64,
}

impl Spread {
    /// The first over the second.
    fn relative(&self) -> f64 {
        if self.predicted > 0.0 { self.residual / self.predicted } else { FIRST_SPREAD }
    }

    fn follow(&mut self, residual: f64, predicted: f64, memory: Memory) {
        if self.predicted == 0.0 {
            *self = Spread { residual: FIRST_SPREAD * predicted, predicted };
        }
        let rate = if residual > self.relative() * predicted { memory.spread_rise } else { memory.spread_fall };
        self.residual += rate * (residual - self.residual);
        self.predicted += rate * (predicted - self.predicted);
    }
}

impl Default for StepCost {
    /// For predictions of the next steps: the last hundred or so count.
    fn default() -> StepCost {
        StepCost::remembering(QUICK)
    }
}

/// What was learnt, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficients {
    pub step_us: f64,
    pub prefill_token_us: f64,
    pub decode_token_us: f64,
    /// Of each prompt in the step, beside its tokens.
    pub prefill_us: f64,
    /// Of each KV entry read.
    pub context_token_us: f64,
}

impl StepCost {
    fn remembering(memory: Memory) -> StepCost {
        StepCost {
            memory,
            coefficients: [0.0; N],
            moments: [[0.0; N]; N],
            targets: [0.0; N],
            scale: [0.0; N],
            seen: [0; N],
            samples: 0,
            spreads: [Spread::default(); 2],
            reach: 0.0,
        }
    }

    /// For a description of the engine: the last twenty thousand samples or so count.
    pub fn lasting() -> StepCost {
        StepCost::remembering(LASTING)
    }

    /// Takes in that `load` took `elapsed`.
    ///
    /// A residual beyond four times the usual one (at least 20 % of the prediction) is clipped to that; since the usual
    /// one grows with it, a lasting change is followed within ten steps and a single outlier moves next to nothing. (The
    /// estimate of long memory clips at twenty times.)
    pub fn observe(&mut self, load: &StepLoad, elapsed: Micros) {
        if load.steps == 0 {
            return;
        }
        let Memory { forgetting, .. } = self.memory;
        let x = load.features();
        let time = self.clipped(&x, (elapsed.0 as f64).min(LARGEST));
        for i in 0..N {
            for j in 0..N {
                self.moments[i][j] = forgetting * self.moments[i][j] + x[i] * x[j];
            }
            self.targets[i] = forgetting * self.targets[i] + x[i] * time;
            if x[i] > 0.0 {
                let square = x[i] * x[i];
                self.scale[i] += (square - self.scale[i]) * if self.seen[i] == 0 { 1.0 } else { 1.0 - forgetting };
                self.seen[i] += 1;
            }
        }
        self.samples += 1;
        self.reach = self.reach.max(load.prefill_tokens as f64 / load.steps as f64);
        self.coefficients = self.fit();
    }

    /// How long `load` will take at most, or nearly; `None` until enough was measured of each kind of work in it.
    ///
    /// Meant as a bound, so it errs upwards: to the fit it adds four mean errors (at least 2 %), and for chunks longer than any seen
    /// the fixed costs in proportion, since from chunks of one size nobody can tell fixed cost from cost per token.
    pub fn predict(&self, load: &StepLoad) -> Option<Micros> {
        let x = load.features();
        let known = x.iter().zip(self.seen).all(|(&x, seen)| x == 0.0 || seen >= MIN_SAMPLES_OF_A_KIND);
        if self.samples < MIN_SAMPLES || !known {
            return None;
        }
        let beyond = if self.reach > 0.0 { (load.prefill_tokens as f64 / self.reach - 1.0).max(0.0) } else { 0.0 };
        let fixed = self.coefficients[STEPS] * x[STEPS] + self.coefficients[PREFILLS] * x[PREFILLS];
        let margin = (MARGIN_SPREADS * self.spreads[kind(&x)].relative()).max(MIN_MARGIN);
        let time = (dot(&self.coefficients, &x) + beyond * fixed) * (1.0 + margin);
        Some(Micros(time.ceil().min(LARGEST) as u64))
    }

    /// How long `load` takes on average; `None` as for [`StepCost::predict`], which is a bound where this is an estimate.
    pub fn expect(&self, load: &StepLoad) -> Option<Micros> {
        self.predict(load)?;
        let time = dot(&self.coefficients, &load.features());
        Some(Micros(time.clamp(0.0, LARGEST) as u64))
    }

    /// The most prefill tokens that a step had.
    pub fn reach(&self) -> usize {
        self.reach as usize
    }

    /// The most tokens, up to `most`, that a prefill chunk behind `computed` others may have so that a step of `load` and
    /// the chunk takes no longer than `limit`. `None` as for [`StepCost::predict`].
    pub fn longest_chunk(&self, load: StepLoad, computed: usize, most: usize, limit: Micros) -> Option<usize> {
        let takes = |tokens: usize| self.predict(&(load + StepLoad::prefill(computed, tokens)));
        takes(1)?;
        // Predictions rise with the length: all below `low` fit, none from `high` on.
        let (mut low, mut high) = (0, most + 1);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if takes(middle)? <= limit { low = middle } else { high = middle }
        }
        Some(low)
    }

    /// What each part of a step's work costs.
    pub fn coefficients(&self) -> Coefficients {
        let [step_us, prefill_token_us, decode_token_us, prefill_us, context_token_us] = self.coefficients;
        Coefficients { step_us, prefill_token_us, decode_token_us, prefill_us, context_token_us }
    }

    /// Steps, or calls of a few steps, that were measured.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The mean absolute error of the fit relative to what it predicts, for the kind of steps that it predicts worse.
    pub fn spread(&self) -> f64 {
        self.spreads.iter().map(Spread::relative).fold(0.0, f64::max)
    }

    /// The time that counts for a sample; keeps the spread.
    fn clipped(&mut self, x: &Features, time: f64) -> f64 {
        if self.samples < MIN_SAMPLES {
            return time;
        }
        let expected = dot(&self.coefficients, x);
        let memory = self.memory;
        let spread = &mut self.spreads[kind(x)];
        let clip = (memory.clip_spreads * spread.relative().max(MIN_SPREAD) * expected).max(MIN_CLIP_MICROS);
        let residual = time - expected;
        // Up to twice the clip: the spread, and with it the clip, must be able to grow.
        spread.follow(residual.abs().min(2.0 * clip), expected, memory);
        expected + residual.clamp(-clip, clip)
    }

    /// The coefficients of least squares that are not negative: the most negative one is set to zero and the others
    /// fitted again, until none is. (Not always the exact constrained optimum, which five features do not need.)
    fn fit(&self) -> Features {
        let mut active = self.seen.map(|seen| seen > 0);
        loop {
            let fitted = self.solve(&active);
            let worst = (0..N).min_by(|&i, &j| fitted[i].total_cmp(&fitted[j])).unwrap_or(0);
            if !fitted.iter().all(|x| x.is_finite()) {
                return self.coefficients;
            }
            if fitted[worst] >= 0.0 {
                return fitted;
            }
            active[worst] = false;
        }
    }

    /// Solves the regularised normal equations for the active coefficients; the others are zero.
    fn solve(&self, active: &[bool; N]) -> Features {
        let (mut matrix, mut right) = ([[0.0; N]; N], [0.0; N]);
        for i in 0..N {
            if !active[i] {
                matrix[i][i] = 1.0;
                continue;
            }
            let ridge = RIDGE * self.scale[i];
            for j in (0..N).filter(|&j| active[j]) {
                matrix[i][j] = self.moments[i][j];
            }
            matrix[i][i] += ridge;
            right[i] = self.targets[i] + ridge * self.coefficients[i];
        }
        eliminate(matrix, right)
    }
}

/// Gaussian elimination without pivoting, which is stable for the positive definite matrix that the ridge makes.
fn eliminate(mut matrix: [Features; N], mut right: Features) -> Features {
    for k in 0..N {
        let (above, below) = matrix.split_at_mut(k + 1);
        let pivot = &above[k];
        for (i, row) in (k + 1..N).zip(below) {
            let factor = row[k] / pivot[k];
            row.iter_mut().zip(pivot).for_each(|(x, p)| *x -= factor * p);
            right[i] -= factor * right[k];
        }
    }
    for k in (0..N).rev() {
        let known: f64 = (k + 1..N).map(|j| matrix[k][j] * right[j]).sum();
        right[k] = (right[k] - known) / matrix[k][k];
    }
    right
}

fn kind(x: &Features) -> usize {
    usize::from(x[PREFILLS] > 0.0)
}

fn dot(a: &Features, b: &Features) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
#[path = "cost_tests.rs"]
mod tests;
