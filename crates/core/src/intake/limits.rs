//! How much may be queued, and when a refused client should come back. Pure.

use crate::request::Priority;

/// Bounds of the queue, enforced by the intake and by whoever hands out permits before a prompt is tokenised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Sequences.
    pub requests: usize,
    /// Their prompts' tokens, together.
    pub tokens: usize,
}

impl Default for Capacity {
    fn default() -> Capacity {
        Capacity { requests: 10_000, tokens: 2_000_000 }
    }
}

/// The part of all places that classes above normal have beyond the others'.
const URGENT_SHARE: usize = 8;

impl Capacity {
    /// The bounds for requests of this class. Those above normal have places of their own, an eighth of the others': a queue that
    /// is full of others refuses none of them.
    pub fn for_class(self, class: Priority) -> Capacity {
        if class > Priority::High {
            return self;
        }
        let more = |places: usize| places.saturating_add(places.div_ceil(URGENT_SHARE));
        Capacity { requests: more(self.requests), tokens: more(self.tokens) }
    }

    /// Whether `requests` more sequences with `tokens` prompt tokens together fit beside what is used.
    ///
    /// The first into an empty queue is admitted whatever its tokens: a prompt longer than the whole capacity would
    /// otherwise be told to retry for ever. So `tokens` may be exceeded by one group, then alone in the queue; `requests`
    /// never is.
    pub fn admits(&self, used_requests: usize, used_tokens: usize, requests: usize, tokens: usize) -> Result<(), Full> {
        let enough_requests = used_requests.saturating_add(requests) <= self.requests;
        let enough_tokens = used_requests == 0 || used_tokens.saturating_add(tokens) <= self.tokens;
        if enough_requests && enough_tokens { Ok(()) } else { Err(Full { capacity: *self }) }
    }
}

/// The queue has no room for the whole group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    pub capacity: Capacity,
}

/// Seconds, 1 to 60, after which a refused client should try again: the time in which what is queued drains at the
/// measured rate, plus up to a quarter, so that those refused together do not return together. `jitter` is a random
/// number from 0 to 1; without a measured rate the answer is 2 to 5 s.
pub fn retry_after(queued: usize, drained_per_s: f64, jitter: f64) -> u32 {
    // 48 × 1.25 = 60: the spread survives the cap.
    const LONGEST_BEFORE_JITTER: f64 = 48.0;
    let jitter = if jitter.is_nan() { 0.0 } else { jitter.clamp(0.0, 1.0) };
    let known = drained_per_s.is_finite() && drained_per_s > 0.0;
    let seconds = if known {
        (queued as f64 / drained_per_s).min(LONGEST_BEFORE_JITTER) * (1.0 + 0.25 * jitter)
    } else {
        2.0 + 3.0 * jitter
    };
    (seconds.ceil() as u32).clamp(1, 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_bounds_count_and_the_first_always_fits_by_tokens() {
        let capacity = Capacity { requests: 4, tokens: 100 };
        for (used_requests, used_tokens, requests, tokens, fits) in [
            (0, 0, 4, 100, true),
            (0, 0, 5, 5, false),
            (3, 50, 1, 50, true),
            (3, 50, 2, 2, false),
            (3, 50, 1, 51, false),
            (0, 0, 1, 101, true),
            (1, 101, 1, 1, false),
            (usize::MAX, usize::MAX, usize::MAX, usize::MAX, false),
        ] {
            let expected = if fits { Ok(()) } else { Err(Full { capacity }) };
            assert_eq!(capacity.admits(used_requests, used_tokens, requests, tokens), expected);
        }
    }

    #[test]
    fn a_queue_full_of_others_has_places_for_urgent_ones() {
        for (class, requests, tokens) in [
            (Priority::Critical, 12, 113),
            (Priority::High, 12, 113),
            (Priority::Normal, 10, 100),
            (Priority::Low, 10, 100),
            (Priority::Batch, 10, 100),
        ] {
            assert_eq!(Capacity { requests: 10, tokens: 100 }.for_class(class), Capacity { requests, tokens });
        }
        assert_eq!(Capacity { requests: 1, tokens: 1 }.for_class(Priority::High).requests, 2, "never none");
    }

    #[test]
    fn retry_after_follows_the_drain_rate_and_is_spread() {
        for (queued, rate, jitter, expected) in [
            (100, 10.0, 0.0, 10),
            (100, 10.0, 1.0, 13),
            (0, 10.0, 0.5, 1),
            (1, 1_000.0, 1.0, 1),
            (10_000, 1.0, 0.0, 48),
            (10_000, 1.0, 1.0, 60),
            (10, 0.0, 0.0, 2),
            (10, 0.0, 1.0, 5),
            (10, f64::NAN, 0.5, 4),
            (10, f64::INFINITY, 0.0, 2),
            (10, -1.0, 0.0, 2),
            (100, 10.0, f64::NAN, 10),
            (100, 10.0, 9.0, 13),
        ] {
            assert_eq!(retry_after(queued, rate, jitter), expected, "{queued} {rate} {jitter}");
        }
    }
}
