//! How much sequences draw of what they may. Pure.

use std::collections::VecDeque;

/// Of sequences that might draw about as much: the parts that the newest have drawn.
#[derive(Clone, Debug, Default)]
struct Bucket {
    newest: VecDeque<Sample>,
    mean: f64,
}

/// The part of its tokens that a sequence drew.
#[derive(Clone, Copy, Debug)]
struct Sample {
    share: f64,
    /// It ended by itself; else it would have drawn more.
    whole: bool,
}

/// What was drawn lately, apart by the powers of two of what might have been: who asks for 16 tokens mostly wants 16, and who
/// asks for 4,000 wants to be let alone.
#[derive(Clone, Debug)]
pub struct Lengths([Bucket; usize::BITS as usize]);

/// Samples of a bucket that count.
const SAMPLES: usize = 64;
/// Fewer say nothing of the shortest.
const ENOUGH: usize = 20;
/// The part of sequences that draw at least [`Lengths::at_least`].
const NEARLY_ALL: f64 = 0.95;

impl Default for Lengths {
    fn default() -> Lengths {
        Lengths(std::array::from_fn(|_| Bucket::default()))
    }
}

impl Lengths {
    /// A sequence ended by itself that had drawn `drawn` of `most` tokens.
    pub fn ended(&mut self, drawn: usize, most: usize) {
        self.push(drawn, most, true);
    }

    /// It was ended before.
    pub fn cut(&mut self, drawn: usize, most: usize) {
        self.push(drawn, most, false);
    }

    fn push(&mut self, drawn: usize, most: usize, whole: bool) {
        let Bucket { newest, mean } = &mut self.0[bucket(most)];
        if newest.len() == SAMPLES {
            newest.pop_front();
        }
        newest.push_back(Sample { share: (drawn as f64 / most.max(1) as f64).min(1.0), whole });
        *mean = newest.iter().map(|sample| sample.share).sum::<f64>() / newest.len() as f64;
    }

    /// Tokens that a sequence will hold its seat for yet, on average, which has drawn `drawn` of `most`; all of them where
    /// nothing is known.
    pub fn rest(&self, most: usize, drawn: usize) -> usize {
        let Bucket { newest, mean } = &self.0[bucket(most)];
        let share = if newest.is_empty() { 1.0 } else { *mean };
        let expected = (share * most as f64).round() as usize;
        expected.saturating_sub(drawn).clamp(1, most.saturating_sub(drawn).max(1))
    }

    /// Tokens that 19 of 20 sequences want at least which may draw `most`; 1 where too few were seen.
    ///
    /// By the product-limit estimate (Kaplan and Meier, 1958): one that was cut off says only that it wanted more. If those
    /// were left out, an engine whose deadlines end everybody would never learn how long answers are.
    pub fn at_least(&self, most: usize) -> usize {
        let newest = &self.0[bucket(most)].newest;
        if newest.len() < ENOUGH {
            return 1;
        }
        let mut samples: Vec<Sample> = newest.iter().copied().collect();
        samples.sort_unstable_by(|one, other| one.share.total_cmp(&other.share));
        let (mut survive, mut share) = (1.0, 0.0);
        for (at, sample) in samples.iter().enumerate() {
            share = sample.share;
            if sample.whole {
                survive *= 1.0 - 1.0 / (samples.len() - at) as f64;
            }
            if survive < NEARLY_ALL {
                break;
            }
        }
        ((share * most as f64).floor() as usize).max(1)
    }
}

fn bucket(most: usize) -> usize {
    most.max(1).ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_cut_off_teaches_that_answers_are_longer() {
        let mut lengths = Lengths::default();
        (0..30).for_each(|n| lengths.cut(10 + n % 8, 64));
        assert_eq!((lengths.at_least(64), lengths.rest(64, 0)), (17, 13), "nobody ended by itself");
        (0..10).for_each(|_| lengths.ended(64, 64));
        assert_eq!(lengths.at_least(64), 64);
        (0..10).for_each(|_| lengths.ended(5, 64));
        assert_eq!(lengths.at_least(64), 5);
    }

    #[test]
    fn what_is_asked_for_and_what_is_drawn_are_apart() {
        let mut lengths = Lengths::default();
        assert_eq!((lengths.rest(100, 30), lengths.at_least(100)), (70, 1), "nothing is known");
        for n in 0..40 {
            lengths.ended(16, 16);
            lengths.ended(if n % 10 == 0 { 10 } else { 410 }, 4_000);
        }
        assert_eq!((lengths.rest(16, 0), lengths.at_least(16)), (16, 16));
        assert_eq!((lengths.rest(4_000, 0), lengths.at_least(4_000)), (370, 10));
        assert_eq!(lengths.rest(4_000, 2_000), 1, "longer than most, and it ends some time");
        assert_eq!(lengths.rest(100, 100), 1);
        // Another habit is followed.
        (0..64).for_each(|_| lengths.ended(4_000, 4_000));
        assert_eq!(lengths.at_least(4_000), 4_000);
    }
}
