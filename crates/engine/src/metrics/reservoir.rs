//! A bounded sample of everything that was measured, in which what is new weighs more: for percentiles. Pure.
//!
//! Priority sampling (Duffield, Lund, Thorup: "Priority sampling for estimation of arbitrary subset sums", 2007) with forward
//! decay (Cormode and others, 2009): a value weighs e times as much as one that came [`MEMORY_S`] before it. Logarithms of
//! weights are kept, so that nothing ever has to be scaled down.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use forebay_core::units::Micros;

const MEMORY_S: f64 = 60.0;

/// Holds at most its capacity, whatever is added.
#[derive(Clone, Debug)]
pub struct Reservoir {
    capacity: usize,
    kept: BinaryHeap<Reverse<Kept>>,
    /// The greatest key that was let go: what a value of less weight stands for.
    threshold: f64,
    dice: u64,
    added: u64,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    /// The logarithm of its weight, less that of a number drawn from (0, 1].
    key: f64,
    log_weight: f64,
    value: f32,
}

impl Reservoir {
    /// `capacity` is at least 1. What is kept follows from `seed` and what is added.
    pub fn new(capacity: usize, seed: u64) -> Reservoir {
        let capacity = capacity.max(1);
        let kept = BinaryHeap::with_capacity(capacity.min(1 << 16));
        Reservoir { capacity, kept, threshold: f64::NEG_INFINITY, dice: seed, added: 0 }
    }

    pub fn add(&mut self, value: f64, now: Micros) {
        self.added += 1;
        let log_weight = now.as_secs_f64() / MEMORY_S;
        let kept = Kept { key: log_weight - self.draw().ln(), log_weight, value: value as f32 };
        if self.kept.len() < self.capacity {
            self.kept.push(Reverse(kept));
            return;
        }
        let least = self.kept.peek().map_or(f64::NEG_INFINITY, |Reverse(least)| least.key);
        if kept.key > least {
            self.kept.pop();
            self.kept.push(Reverse(kept));
        }
        self.threshold = self.threshold.max(kept.key.min(least));
    }

    /// The values below which these parts (0 to 1, rising) of the weight lie; `None` before the first value.
    pub fn percentiles<const N: usize>(&self, parts: [f64; N]) -> Option<[f64; N]> {
        let weight = |kept: &Kept| kept.log_weight.max(self.threshold);
        let heaviest = self.kept.iter().map(|Reverse(kept)| weight(kept)).fold(f64::NEG_INFINITY, f64::max);
        let mut values: Vec<(f32, f64)> =
            self.kept.iter().map(|Reverse(kept)| (kept.value, (weight(kept) - heaviest).exp())).collect();
        values.sort_unstable_by(|(one, _), (other, _)| one.total_cmp(other));
        let (last, _) = *values.last()?;
        let total: f64 = values.iter().map(|(_, weight)| weight).sum();
        let mut below = 0.0;
        let mut rest = values.iter();
        let mut reached = f64::from(values[0].0);
        Some(parts.map(|part| {
            // A hair less, so that rounding in the sum does not ask for the value after.
            let wanted = part * total * (1.0 - 1e-12);
            while below < wanted {
                let Some((value, weight)) = rest.next() else { return f64::from(last) };
                below += weight;
                reached = f64::from(*value);
            }
            reached
        }))
    }

    /// How many values ever were. While that stays, so do the percentiles: all weights fade alike.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Uniform in (0, 1]: SplitMix64 (Steele, Lea, Flood 2014).
    fn draw(&mut self) -> f64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.dice;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        ((bits >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

impl Ord for Kept {
    fn cmp(&self, other: &Kept) -> Ordering {
        self.key.total_cmp(&other.key)
    }
}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Kept) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Kept) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Kept {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Reservoir {
        fn len(&self) -> usize {
            self.kept.len()
        }
    }

    fn exact(mut values: Vec<f64>, part: f64) -> f64 {
        values.sort_by(f64::total_cmp);
        values[((values.len() as f64 * part).ceil() as usize).clamp(1, values.len()) - 1]
    }

    #[test]
    fn nothing_has_no_percentiles_and_one_value_is_all_of_them() {
        let mut reservoir = Reservoir::new(10, 1);
        assert_eq!(reservoir.percentiles([0.5]), None);
        reservoir.add(7.0, Micros(5));
        assert_eq!(reservoir.percentiles([0.0, 0.5, 0.999, 1.0]), Some([7.0; 4]));
    }

    #[test]
    fn a_sample_of_many_values_tells_of_all_of_them() {
        let mut reservoir = Reservoir::new(1_000, 7);
        // All at once, so that none weighs more; in an order that a biased sample would show.
        (0..100_000).for_each(|n| reservoir.add(f64::from(n), Micros::ZERO));
        assert_eq!(reservoir.len(), 1_000);
        let [median, p90, p99] = reservoir.percentiles([0.5, 0.9, 0.99]).unwrap();
        // Three standard deviations of a sample of a thousand.
        assert!((median - 50_000.0).abs() < 4_750.0, "{median}");
        assert!((p90 - 90_000.0).abs() < 2_850.0, "{p90}");
        assert!((p99 - 99_000.0).abs() < 950.0, "{p99}");
    }

    #[test]
    fn what_is_long_ago_weighs_nothing_whether_the_reservoir_is_full_or_not() {
        for count in [10, 5_000] {
            let mut reservoir = Reservoir::new(1_000, 3);
            (0..count).for_each(|_| reservoir.add(1.0, Micros::ZERO));
            (0..10).for_each(|_| reservoir.add(2.0, Micros::from_millis(3_600_000)));
            assert_eq!(reservoir.percentiles([0.01, 0.5, 0.99]), Some([2.0; 3]), "{count}");
        }
    }

    #[test]
    fn weight_fades_with_time() {
        let mut reservoir = Reservoir::new(1_000, 3);
        (0..100).for_each(|_| reservoir.add(1.0, Micros::ZERO));
        (0..100).for_each(|_| reservoir.add(2.0, Micros::from_secs_f64(MEMORY_S)));
        // Of the whole, the old ones are 1 / (1 + e) = 0.269.
        assert_eq!(reservoir.percentiles([0.26, 0.28]), Some([1.0, 2.0]));
    }

    proptest! {
        /// Below its capacity nothing is left to chance.
        #[test]
        fn few_values_have_exact_percentiles(values in proptest::collection::vec(0u32..1_000, 1..50), part in 0.01f64..1.0) {
            let mut reservoir = Reservoir::new(50, 9);
            values.iter().for_each(|&value| reservoir.add(f64::from(value), Micros(17)));
            let expected = exact(values.into_iter().map(f64::from).collect(), part);
            prop_assert_eq!(reservoir.percentiles([part]), Some([expected]));
        }

        #[test]
        fn the_bound_holds_and_percentiles_rise(
            added in proptest::collection::vec((0.0f64..1e4, 0u64..1_000_000_000), 1..400), capacity in 1usize..60,
        ) {
            let mut reservoir = Reservoir::new(capacity, 5);
            for &(value, at) in &added {
                reservoir.add(value, Micros(at));
                prop_assert!(reservoir.len() <= capacity);
            }
            let told = reservoir.percentiles([0.5, 0.9, 0.99, 0.999]).unwrap();
            prop_assert!(told.is_sorted(), "{told:?}");
            prop_assert!(told.iter().all(|told| added.iter().any(|(value, _)| (*value as f32 as f64) == *told)));
        }
    }
}
