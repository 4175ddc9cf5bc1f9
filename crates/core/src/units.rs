//! Newtypes for the numbers that travel between rooms. Pure.

use std::fmt;
use std::ops::{Add, Sub};

/// An index into the model's vocabulary. A plain alias, since slices of it cross into tokenizers and kernels.
pub type TokenId = u32;

/// Microseconds: a duration, or a point in time since the process's [`forebay_clock::Clock`] began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    pub const ZERO: Micros = Micros(0);
    pub const MILLISECOND: Micros = Micros(1_000);
    pub const SECOND: Micros = Micros(1_000_000);
    pub const MINUTE: Micros = Micros(60 * Micros::SECOND.0);
    pub const HOUR: Micros = Micros(60 * Micros::MINUTE.0);
    pub const DAY: Micros = Micros(24 * Micros::HOUR.0);

    pub const fn from_millis(millis: u64) -> Micros {
        Micros(millis * 1_000)
    }

    /// The duration from `earlier` to `self`, zero when `earlier` is later.
    pub const fn since(self, earlier: Micros) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }

    /// Whole milliseconds, rounded up: a wait of 0.4 ms is not none.
    pub const fn as_millis(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    pub fn from_secs_f64(seconds: f64) -> Micros {
        Micros((seconds.max(0.0) * 1e6) as u64)
    }

    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Add for Micros {
    type Output = Micros;
    fn add(self, other: Micros) -> Micros {
        Micros(self.0 + other.0)
    }
}

impl Sub for Micros {
    type Output = Micros;
    fn sub(self, other: Micros) -> Micros {
        Micros(self.0 - other.0)
    }
}

/// One sequence: one running completion. A request with `n` = 4 makes four. Unique for the life of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u64);

impl fmt::Display for SeqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seq-{}", self.0)
    }
}

/// A physical block of the paged KV cache, an index in `0..num_blocks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);
