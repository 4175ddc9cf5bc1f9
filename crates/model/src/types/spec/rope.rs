//! Rotary position embedding as data, and the frequencies that its scaling comes to.

use std::f64::consts::PI;

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    pub theta: f64,
    /// How many dimensions of a head are rotated, from its first on: even, mostly all.
    pub dims: usize,
    pub scaling: RopeScaling,
}

/// How a model was stretched beyond the context of its pre-training.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    None,
    /// All frequencies divided by `factor` (position interpolation).
    Linear {
        factor: f64,
    },
    /// Llama 3: long wavelengths divided by `factor`, short ones kept, a smooth ramp between.
    Llama3 {
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        original_context: f64,
    },
    /// Each pair's frequency divided by its own number, `dims / 2` of them: what GGUF files hold of Llama 3's.
    Divisors(Vec<f32>),
    /// A base that grows with the position beyond `original_context`, as transformers has it when it decodes token by
    /// token: a token's angles depend on its own position only.
    Dynamic {
        factor: f64,
        original_context: f64,
    },
    /// Peng et al. (2023): pairs that turn more than `beta_fast` times within `original_context` keep their frequency, those
    /// that turn less than `beta_slow` times are divided by `factor`, a linear ramp between.
    Yarn {
        factor: f64,
        original_context: f64,
        beta_fast: f64,
        beta_slow: f64,
        /// The ends of the ramp are whole pairs.
        truncate: bool,
        /// What rotated queries and keys are multiplied by.
        attention: f64,
    },
    /// Each pair's frequency divided by its own number: one of `short` for contexts up to `original_context`, one of `long`
    /// for longer ones. Which, is decided once, by the context that is served, as in vLLM and llama.cpp: keys that were
    /// rotated one way cannot meet queries rotated the other.
    LongRope {
        short: Vec<f32>,
        long: Vec<f32>,
        original_context: u32,
        /// What rotated queries and keys are multiplied by.
        attention: f64,
    },
}

impl Rope {
    /// The frequency of a rotated pair, for sequences of up to `context` tokens.
    pub(crate) fn frequency(&self, pair: usize, context: u32) -> f64 {
        let frequency = unscaled(self.theta, pair, self.dims);
        match self.scaling {
            RopeScaling::None | RopeScaling::Dynamic { .. } => frequency,
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Divisors(ref divisors) => frequency / f64::from(divisors[pair]),
            RopeScaling::LongRope { ref short, ref long, original_context, .. } => {
                let divisors = if context > original_context { long } else { short };
                frequency / f64::from(divisors[pair])
            }
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                let wavelength = 2.0 * PI / frequency;
                if wavelength < original_context / high_freq_factor {
                    frequency
                } else if wavelength > original_context / low_freq_factor {
                    frequency / factor
                } else {
                    let ramp = (original_context / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
                    (1.0 - ramp) * frequency / factor + ramp * frequency
                }
            }
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, truncate, .. } => {
                // The pair that turns `rotations` times within the original context.
                let pair_of = |rotations: f64| {
                    self.dims as f64 * (original_context / (rotations * 2.0 * PI)).ln() / (2.0 * self.theta.ln())
                };
                let (low, high) = (pair_of(beta_fast), pair_of(beta_slow));
                let (low, high) = if truncate { (low.floor(), high.ceil()) } else { (low, high) };
                let (low, high) = (low.max(0.0), high.min(self.dims as f64 - 1.0));
                let width = if low == high { 0.001 } else { high - low };
                let ramp = ((pair as f64 - low) / width).clamp(0.0, 1.0);
                frequency / factor * ramp + frequency * (1.0 - ramp)
            }
        }
    }

    /// What scaling divides each pair's frequency by.
    pub(crate) fn divisors(&self) -> Vec<f32> {
        let of = |pair| unscaled(self.theta, pair, self.dims) / self.frequency(pair, u32::MAX);
        (0..self.dims / 2).map(|pair| of(pair) as f32).collect()
    }
}

/// The frequency of a rotated pair without any scaling.
pub(crate) fn unscaled(theta: f64, pair: usize, dims: usize) -> f64 {
    theta.powf(-((2 * pair) as f64) / dims as f64)
}
