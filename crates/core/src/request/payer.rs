//! Who pays for a request, and what its share weighs. Pure.

use std::fmt::Debug;
use std::num::NonZeroU32;

/// Hears what a request takes, as it takes it.
pub trait Payer: Debug + Send + Sync {
    /// Which model answers. The first name counts.
    fn model(&self, name: &str);
    /// The prompt is queued; of a request with several prompts, one of them.
    fn prompt(&self, tokens: usize);
    /// Of a prompt's tokens, those that were in the KV cache.
    fn cached(&self, tokens: usize);
    fn completion(&self, tokens: usize);
}

/// What a tenant weighs in the fair share: with twice the weight, it gets twice as much while there is not enough for all.
/// Whole thousandths, so that shares add up the same everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(NonZeroU32);

impl Weight {
    const ONE: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

    /// `None` is what zero gives.
    pub fn from_thousandths(thousandths: u32) -> Option<Weight> {
        NonZeroU32::new(thousandths).map(Weight)
    }

    pub fn thousandths(self) -> u32 {
        self.0.get()
    }

    /// What a service counts for a tenant of this weight: at least 1, if it is any.
    pub fn of(self, charge: u64) -> u64 {
        let weighed = u128::from(charge) * u128::from(Weight::ONE.get()) / u128::from(self.0.get());
        u64::try_from(weighed).unwrap_or(u64::MAX).max(charge.min(1))
    }
}

impl Default for Weight {
    fn default() -> Weight {
        Weight(Weight::ONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_weight_counts_half() {
        let of = |thousandths, charge| Weight::from_thousandths(thousandths).unwrap().of(charge);
        assert_eq!([of(1_000, 7), of(2_000, 10), of(500, 10), of(3_000, 1), of(3_000, 0)], [7, 5, 20, 1, 0]);
        assert_eq!((of(1, u64::MAX), Weight::default().of(u64::MAX)), (u64::MAX, u64::MAX));
        assert_eq!(Weight::from_thousandths(0), None);
    }
}
