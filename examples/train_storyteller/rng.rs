//! The corpus's random numbers: splitmix64, written out so that a seed means the same story in every release.

/// A stream of random choices; equal seeds give equal streams, on every machine and version.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    #[cfg(test)]
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// A stream keyed by several numbers, so that row `r` of step `s` needs no state from step `s - 1`.
    pub fn keyed(keys: &[u64]) -> Self {
        let mut state = 0x005E_ED0F_0A57_A1E5u64;
        for key in keys {
            state = mix(state ^ mix(key.wrapping_add(0x9E37_79B9_7F4A_7C15)));
        }
        Rng(state)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number in `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "nothing to choose from");
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// A number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// `n` different items, in random order.
    pub fn sample<T: Copy>(&mut self, from: &[T], n: usize) -> Vec<T> {
        let mut pool = from.to_vec();
        (0..n.min(pool.len()))
            .map(|_| {
                let i = self.below(pool.len());
                pool.swap_remove(i)
            })
            .collect()
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
