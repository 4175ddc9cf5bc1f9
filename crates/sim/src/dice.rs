//! Seeded draws. SplitMix64 (Steele, Lea, Flood 2014): small, fast, and good enough for arrivals and noise.

/// The same seed, the same draws.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Another sequence of draws that has nothing to do with this one: `stream` names it.
    pub fn stream(seed: u64, stream: u64) -> Dice {
        let mut dice = Dice(seed ^ stream.wrapping_mul(0xD1B5_4A32_D192_ED03));
        dice.next();
        dice
    }

    /// 64 bits, each as likely set as not.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0, included, to 1, excluded.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From `min` to `max`, both included.
    pub fn between(&mut self, min: u32, max: u32) -> u32 {
        min + (self.uniform() * f64::from(max - min + 1)) as u32
    }

    /// With mean 1: the gaps of a Poisson process.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// Mean 0, standard deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let draws: Vec<f64> = (0..100_000).map(|_| draw()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        (mean, variance)
    }

    #[test]
    fn draws_have_their_mean_and_variance() {
        let mut dice = Dice::new(7);
        for (name, (mean, variance), expected) in [
            ("uniform", moments(|| dice.uniform()), (0.5, 1.0 / 12.0)),
            ("exponential", moments(|| dice.exponential()), (1.0, 1.0)),
            ("normal", moments(|| dice.normal()), (0.0, 1.0)),
            ("between", moments(|| dice.between(3, 5).into()), (4.0, 2.0 / 3.0)),
        ] {
            assert!((mean - expected.0).abs() < 0.02, "{name}: mean {mean}");
            assert!((variance - expected.1).abs() < 0.03, "{name}: variance {variance}");
        }
    }

    #[test]
    fn streams_of_a_seed_repeat_and_differ() {
        let draws = |seed, stream| {
            let mut dice = Dice::stream(seed, stream);
            (0..8).map(|_| dice.between(0, 1 << 30)).collect::<Vec<_>>()
        };
        assert_eq!(draws(1, 2), draws(1, 2));
        assert_ne!(draws(1, 2), draws(1, 3));
        assert_ne!(draws(1, 2), draws(2, 2));
    }
}
