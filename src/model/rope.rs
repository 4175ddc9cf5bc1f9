//! The angles of rotary position embedding, computed once per step and shared by its layers.

use std::f64::consts::PI;

use super::spec::{Rope, RopeScaling};

/// Rotation frequencies, one per pair of dimensions.
#[derive(Debug)]
pub(super) struct Frequencies(Vec<f32>);

/// `[T, head_dim / 2]` each.
#[derive(Debug, Default)]
pub(super) struct Angles {
    pub cos: Vec<f32>,
    pub sin: Vec<f32>,
}

impl Frequencies {
    pub(super) fn new(rope: &Rope, head_dim: usize) -> Frequencies {
        let frequency = |pair: usize| rope.theta.powf(-((2 * pair) as f64) / head_dim as f64);
        Frequencies((0..head_dim / 2).map(|pair| scaled(frequency(pair), pair, &rope.scaling) as f32).collect())
    }

    /// `angles` become those of `positions`: products in `f32`, as the reference implementations have them; at position
    /// 100,000 the rounding of that product is what the model was trained with.
    pub(super) fn angles(&self, positions: &[u32], angles: &mut Angles) {
        angles.cos.clear();
        angles.sin.clear();
        let each = positions.iter().flat_map(|&position| self.0.iter().map(move |f| position as f32 * f));
        for (sin, cos) in each.map(f32::sin_cos) {
            angles.cos.push(cos);
            angles.sin.push(sin);
        }
    }
}

fn scaled(frequency: f64, pair: usize, scaling: &RopeScaling) -> f64 {
    match *scaling {
        RopeScaling::None => frequency,
        RopeScaling::Linear { factor } => frequency / factor,
        RopeScaling::Divisors(ref divisors) => frequency / f64::from(divisors[pair]),
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frequencies(scaling: RopeScaling) -> Vec<f32> {
        Frequencies::new(&Rope { theta: 10_000.0, scaling }, 8).0
    }

    #[test]
    fn plain_and_linear() {
        let close = |got: Vec<f32>, expected: [f32; 4]| got.iter().zip(expected).all(|(g, e)| (g - e).abs() < 1e-7);
        assert!(close(frequencies(RopeScaling::None), [1.0, 0.1, 0.01, 0.001]));
        assert!(close(frequencies(RopeScaling::Linear { factor: 4.0 }), [0.25, 0.025, 0.0025, 0.00025]));
        assert!(close(frequencies(RopeScaling::Divisors(vec![1.0, 2.0, 4.0, 8.0])), [1.0, 0.05, 0.0025, 0.000125]));
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

    #[test]
    fn angles_are_laid_out_token_by_token() {
        let mut angles = Angles::default();
        Frequencies(vec![1.0, 0.5]).angles(&[0, 2], &mut angles);
        assert_eq!(angles.cos, [1.0, 1.0, 2f32.cos(), 1f32.cos()]);
        assert_eq!(angles.sin, [0.0, 0.0, 2f32.sin(), 1f32.sin()]);
    }
}
