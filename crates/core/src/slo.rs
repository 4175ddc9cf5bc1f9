//! What the operator promises to each class of requests. Pure.

use crate::request::Priority;
use crate::units::Micros;

/// The promise to one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// From its arrival to its first token.
    pub ttft: Micros,
    /// The longest mean time between two of its tokens.
    pub itl: Micros,
}

/// The promises by class; nothing is promised to batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slo {
    /// By [`Priority::index`].
    pub promises: [Promise; 4],
    /// A request whose promise cannot be kept is refused when it comes, instead of served as well as it goes.
    pub refuses: bool,
}

impl Promise {
    /// Whether a sequence of `tokens` tokens that had its first after `ttft` and its last `decoded` later was served as promised.
    pub fn is_kept(&self, ttft: Micros, decoded: Micros, tokens: usize) -> bool {
        let gaps = tokens.saturating_sub(1) as u64;
        ttft <= self.ttft && decoded.0 <= self.itl.0.saturating_mul(gaps)
    }

    const fn of(ttft_ms: u64, itl_ms: u64) -> Promise {
        Promise { ttft: Micros::from_millis(ttft_ms), itl: Micros::from_millis(itl_ms) }
    }
}

impl Default for Slo {
    fn default() -> Slo {
        Slo::DEFAULT
    }
}

impl Slo {
    /// What is promised where the operator says nothing.
    pub const DEFAULT: Slo = Slo {
        promises: [Promise::of(500, 100), Promise::of(1_000, 150), Promise::of(2_000, 200), Promise::of(10_000, 500)],
        refuses: false,
    };

    /// What is promised to a class; nothing to batches.
    pub fn promise(&self, priority: Priority) -> Option<Promise> {
        self.promises.get(priority.index()).copied()
    }

    /// When a request that arrived then is promised its first token; the end of time for a batch.
    pub fn promised(&self, priority: Priority, arrived: Micros) -> Micros {
        self.promise(priority).map_or(Micros(u64::MAX), |promise| Micros(arrived.0.saturating_add(promise.ttft.0)))
    }
}
