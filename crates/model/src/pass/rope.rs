//! The angles of rotary position embedding, computed once per step and shared by its layers.

use crate::types::spec::rope::{Rope, RopeScaling, unscaled};

/// What the angles of one rope are made of.
#[derive(Debug)]
pub(crate) struct Frequencies {
    /// One per rotated pair of dimensions.
    pairs: Vec<f32>,
    /// What sines and cosines are multiplied by.
    attention: f32,
    /// Positions from `original_context` on have a base of their own.
    grown: Option<Grown>,
}

/// [`RopeScaling::Dynamic`].
#[derive(Debug)]
struct Grown {
    theta: f64,
    factor: f64,
    original_context: f64,
    dims: usize,
}

/// `[T, dims / 2]` each.
#[derive(Debug, Default)]
pub(crate) struct Angles {
    pub cos: Vec<f32>,
    pub sin: Vec<f32>,
    /// Rotated dimensions of a head.
    pub dims: usize,
}

impl Frequencies {
    /// For sequences of up to `context` tokens.
    pub(crate) fn new(rope: &Rope, context: u32) -> Frequencies {
        let Rope { theta, dims, ref scaling } = *rope;
        let pairs = (0..dims / 2).map(|pair| rope.frequency(pair, context) as f32).collect();
        let attention = match *scaling {
            RopeScaling::Yarn { attention, .. } | RopeScaling::LongRope { attention, .. } => attention as f32,
            _ => 1.0,
        };
        let grown = match *scaling {
            RopeScaling::Dynamic { factor, original_context } => Some(Grown { theta, factor, original_context, dims }),
            _ => None,
        };
        Frequencies { pairs, attention, grown }
    }

    /// `angles` become those of `positions`: products in `f32`, as the reference implementations have them; at position
    /// 100,000 the rounding of that product is what the model was trained with.
    pub(crate) fn angles(&self, positions: &[u32], angles: &mut Angles) {
        angles.cos.clear();
        angles.sin.clear();
        angles.dims = 2 * self.pairs.len();
        for &position in positions {
            let grown = self.grown.as_ref().and_then(|grown| grown.theta(position));
            for (pair, &frequency) in self.pairs.iter().enumerate() {
                let frequency = grown.map_or(frequency, |theta| unscaled(theta, pair, angles.dims) as f32);
                let (sin, cos) = (position as f32 * frequency).sin_cos();
                angles.cos.push(cos * self.attention);
                angles.sin.push(sin * self.attention);
            }
        }
    }
}

impl Grown {
    /// The base at `position`, where that is not the common one.
    fn theta(&self, position: u32) -> Option<f64> {
        let length = f64::from(position) + 1.0;
        let stretch = self.factor * length / self.original_context - (self.factor - 1.0);
        let exponent = self.dims as f64 / (self.dims as f64 - 2.0).max(1.0);
        (length > self.original_context).then(|| self.theta * stretch.powf(exponent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frequencies(scaling: RopeScaling) -> Vec<f32> {
        Frequencies::new(&Rope { theta: 10_000.0, dims: 8, scaling }, 4096).pairs
    }

    fn close(got: &[f32], expected: &[f32]) -> bool {
        got.len() == expected.len() && got.iter().zip(expected).all(|(g, e)| (g - e).abs() <= 2e-6 * e.abs())
    }

    #[test]
    fn plain_and_linear() {
        assert!(close(&frequencies(RopeScaling::None), &[1.0, 0.1, 0.01, 0.001]));
        assert!(close(&frequencies(RopeScaling::Linear { factor: 4.0 }), &[0.25, 0.025, 0.0025, 0.00025]));
        let divisors = RopeScaling::Divisors(vec![1.0, 2.0, 4.0, 8.0]);
        assert!(close(&frequencies(divisors), &[1.0, 0.05, 0.0025, 0.000125]));
    }

    #[test]
    fn llama3_keeps_short_waves_and_stretches_long_ones() {
        let scaling =
            RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 1000.0 };
        let got = frequencies(scaling);
        // Wavelengths 6.3, 63, 628, 6283 against the bounds 250 and 1000: kept, kept, between, divided.
        assert_eq!(got[..2], frequencies(RopeScaling::None)[..2]);
        assert!(got[2] > 0.01 / 8.0 && got[2] < 0.01);
        assert!((got[3] - 0.001 / 8.0).abs() < 1e-9);
    }

    /// Expected numbers: `_compute_yarn_parameters` of transformers, for dim 8, base 10,000, factor 4, original 4096.
    #[test]
    fn yarn_as_transformers_has_it() {
        let yarn = |truncate| RopeScaling::Yarn {
            factor: 4.0,
            original_context: 4096.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate,
            attention: 1.25,
        };
        assert!(close(&frequencies(yarn(true)), YARN_TRUNCATED), "{:?}", frequencies(yarn(true)));
        assert!(close(&frequencies(yarn(false)), YARN_EXACT), "{:?}", frequencies(yarn(false)));
        let rope = Rope { theta: 10_000.0, dims: 8, scaling: yarn(true) };
        let mut angles = Angles::default();
        Frequencies::new(&rope, 1).angles(&[0], &mut angles);
        assert_eq!((&*angles.cos, &*angles.sin), (&[1.25; 4][..], &[0.0; 4][..]), "its attention factor");
    }

    const YARN_TRUNCATED: &[f32] = &[1.0, 0.1, 0.00625, 0.00025];
    const YARN_EXACT: &[f32] = &[1.0, 0.1, 0.006_556_971_5, 0.00025];

    #[test]
    fn longrope_is_chosen_by_the_context_that_is_served() {
        let scaling = RopeScaling::LongRope {
            short: vec![1.0, 1.0, 2.0, 2.0],
            long: vec![4.0, 5.0, 8.0, 10.0],
            original_context: 4096,
            attention: 1.5,
        };
        let rope = Rope { theta: 10_000.0, dims: 8, scaling };
        assert!(close(&Frequencies::new(&rope, 4096).pairs, &[1.0, 0.1, 0.005, 0.0005]));
        let long = Frequencies::new(&rope, 4097);
        assert!(close(&long.pairs, &[0.25, 0.02, 0.00125, 0.0001]));
        assert_eq!(long.attention, 1.5);
    }

    #[test]
    fn dynamic_grows_with_the_position_alone() {
        let rope =
            Rope { theta: 10_000.0, dims: 8, scaling: RopeScaling::Dynamic { factor: 2.0, original_context: 16.0 } };
        let frequencies = Frequencies::new(&rope, 64);
        let angles = |positions: &[u32]| {
            let mut angles = Angles::default();
            frequencies.angles(positions, &mut angles);
            (angles.cos, angles.sin)
        };
        let plain = Frequencies::new(&Rope { scaling: RopeScaling::None, ..rope.clone() }, 64);
        let mut expected = Angles::default();
        plain.angles(&[15], &mut expected);
        assert_eq!(angles(&[15]).0, expected.cos, "the last position of the original context");
        // `_compute_dynamic_ntk_parameters` for a length of 32: base 10000 * (2 * 32 / 16 - 1) ^ (8 / 6).
        let base = 10_000f64 * 3f64.powf(8.0 / 6.0);
        let sines: Vec<f32> = (0..4).map(|pair| (31.0 * unscaled(base, pair, 8) as f32).sin()).collect();
        assert!(close(&angles(&[31]).1, &sines));
        let (both, alone) = (angles(&[3, 31]), angles(&[31]));
        assert_eq!((&both.0[4..], &both.1[4..]), (&*alone.0, &*alone.1), "whatever else is in the step");
    }

    #[test]
    fn angles_are_laid_out_token_by_token() {
        let mut angles = Angles::default();
        let frequencies = Frequencies { pairs: vec![1.0, 0.5], attention: 1.0, grown: None };
        frequencies.angles(&[0, 2], &mut angles);
        assert_eq!(angles.cos, [1.0, 1.0, 2f32.cos(), 1f32.cos()]);
        assert_eq!(angles.sin, [0.0, 0.0, 2f32.sin(), 1f32.sin()]);
        assert_eq!(angles.dims, 4);
    }
}
