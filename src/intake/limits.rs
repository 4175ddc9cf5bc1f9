//! How much may be queued, and what a client that finds no room is told.

/// Bounds of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    pub requests: usize,
    /// Prompt tokens of all of them.
    pub tokens: usize,
}

/// The queue has no room for the whole group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    pub capacity: Capacity,
}

impl Default for Capacity {
    fn default() -> Capacity {
        Capacity { requests: 10_000, tokens: 2_000_000 }
    }
}

impl Capacity {
    /// Whether `requests` with `tokens` fit beside what is there. A group of more tokens than fit at all is admitted to an
    /// empty queue: it could be served at no better time.
    pub fn admits(&self, used_requests: usize, used_tokens: usize, requests: usize, tokens: usize) -> Result<(), Full> {
        let room = used_requests.saturating_add(requests) <= self.requests;
        let fits = used_requests == 0 || used_tokens.saturating_add(tokens) <= self.tokens;
        if room && fits { Ok(()) } else { Err(Full { capacity: *self }) }
    }
}

/// The SDKs ignore longer advice.
const LONGEST_S: f64 = 60.0;
/// Before anything was measured.
const UNKNOWN_S: f64 = 2.0;

/// Seconds, 1 to 60, after which a refused client should try again: when half of the queue has drained at the measured
/// rate. `jitter`, from 0 to 1, spreads those who were refused together over ±25 %, so that they do not come back together.
pub fn retry_after(queued: usize, drained_per_s: f64, jitter: f64) -> u32 {
    let seconds = if drained_per_s > 0.0 { queued as f64 / 2.0 / drained_per_s } else { UNKNOWN_S };
    let spread = 0.75 + 0.5 * jitter.clamp(0.0, 1.0);
    (seconds * spread).clamp(1.0, LONGEST_S).ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_bounds_hold_and_an_empty_queue_takes_any_prompt() {
        let capacity = Capacity { requests: 4, tokens: 100 };
        let admits = |used, used_tokens, new, tokens| capacity.admits(used, used_tokens, new, tokens).is_ok();
        assert!(admits(0, 0, 4, 100) && admits(3, 90, 1, 10));
        assert!(!admits(3, 0, 2, 0) && !admits(3, 91, 1, 10) && !admits(0, 0, 5, 5));
        assert!(admits(0, 0, 1, 5_000), "or it could never be served");
        assert!(!admits(1, 1, 1, 5_000) && !admits(usize::MAX, 1, 1, usize::MAX));
    }

    #[test]
    fn retry_after_follows_the_drain_rate_within_what_clients_obey() {
        assert_eq!(retry_after(1000, 50.0, 0.5), 10);
        assert_eq!((retry_after(1000, 50.0, 0.0), retry_after(1000, 50.0, 1.0)), (8, 13));
        assert_eq!(retry_after(10_000, 0.001, 0.5), 60);
        assert_eq!(retry_after(1, 1e9, 0.0), 1);
        assert_eq!(retry_after(500, 0.0, 0.5), 2);
        assert_eq!(retry_after(0, 0.0, f64::NAN), 60.min(retry_after(0, 0.0, f64::NAN)));
    }
}
