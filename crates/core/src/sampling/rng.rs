//! A counter-based generator: the number for a position is a function of `(seed, position)`, so neither batching nor
//! preemption nor another request can shift it (the idea of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
//! SC 2011; the mixer is SplitMix64's, Steele, Lea, Flood, OOPSLA 2014).

/// Uniform in `[0, 1)` with 53 random bits.
pub fn uniform(seed: u64, position: u32) -> f64 {
    let bits = mix(mix(seed) ^ u64::from(position).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
