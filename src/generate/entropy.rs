//! Randomness for what need not be repeated.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The seed of a request that brought none: the standard library's hash keys are random, and differ from call to call.
pub fn entropy() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Where in its spread the advice to a refused client falls, 0 to 1.
pub fn jitter() -> f64 {
    (entropy() >> 11) as f64 / (1u64 << 53) as f64
}
