//! What was measured lately: percentiles of the newest samples, and rates. Pure.

use std::collections::VecDeque;

use forebay_core::units::Micros;

/// Samples behind the percentiles of step times and TTFT.
pub const SAMPLES: usize = 1_000;

/// The newest durations, for percentiles.
#[derive(Clone, Debug)]
pub struct Window {
    newest: VecDeque<Micros>,
    capacity: usize,
    /// Of the samples at the time when `fresh` was last 0.
    p99: Option<Micros>,
    fresh: usize,
}

/// How many samples may come before the kept p99 is computed anew: sorting at each step would cost more than it tells.
const STALE: usize = 16;

impl Window {
    pub fn new(capacity: usize) -> Window {
        Window { newest: VecDeque::with_capacity(capacity), capacity, p99: None, fresh: 0 }
    }

    pub fn push(&mut self, sample: Micros) {
        if self.newest.len() == self.capacity {
            self.newest.pop_front();
        }
        self.newest.push_back(sample);
        self.fresh += 1;
        if self.p99.is_none() || self.fresh >= STALE {
            self.p99 = self.percentile(0.99);
            self.fresh = 0;
        }
    }

    /// At most a few samples old; `None` before the first.
    pub fn recent_p99(&self) -> Option<Micros> {
        self.p99
    }

    /// The nearest-rank percentile, `q` from 0 to 1.
    pub fn percentile(&self, q: f64) -> Option<Micros> {
        let mut sorted: Vec<Micros> = self.newest.iter().copied().collect();
        let rank = ((sorted.len() as f64 * q).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
        if sorted.is_empty() {
            return None;
        }
        Some(*sorted.select_nth_unstable(rank).1)
    }

    pub fn last(&self) -> Option<Micros> {
        self.newest.back().copied()
    }

    pub fn mean(&self) -> Option<Micros> {
        let sum: u64 = self.newest.iter().map(|sample| sample.0).sum();
        (!self.newest.is_empty()).then(|| Micros(sum / self.newest.len() as u64))
    }

    pub fn clear(&mut self) {
        *self = Window::new(self.capacity);
    }
}

/// Events per second, older ones forgotten exponentially.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// The age at which an event counts for 1/e, in seconds.
    memory_s: f64,
    /// Sum of `exp(-age / memory)` over all events, as of `at`.
    weight: f64,
    at: Micros,
}

/// Less time says nothing of a rate.
const LEAST_S: f64 = 1.0;

impl Default for Rate {
    /// Of the last ten seconds or so.
    fn default() -> Rate {
        Rate::of_last(10.0)
    }
}

impl Rate {
    /// Of about the last `seconds`.
    pub const fn of_last(seconds: f64) -> Rate {
        Rate { memory_s: seconds, weight: 0.0, at: Micros::ZERO }
    }

    pub fn count(&mut self, events: usize, now: Micros) {
        self.weight = self.weight_at(now) + events as f64;
        self.at = now;
    }

    /// Per second.
    pub fn per_s(&self, now: Micros) -> f64 {
        self.weight_at(now) / self.memory_s
    }

    /// Per second, counted since `began`: what was not counted before is not taken for silence.
    pub fn per_s_since(&self, began: Micros, now: Micros) -> f64 {
        let covered = 1.0 - (-now.since(began).as_secs_f64().max(LEAST_S) / self.memory_s).exp();
        self.per_s(now) / covered
    }

    fn weight_at(&self, now: Micros) -> f64 {
        self.weight * (-now.since(self.at).as_secs_f64() / self.memory_s).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_newest_samples() {
        let mut window = Window::new(100);
        assert_eq!((window.percentile(0.5), window.recent_p99(), window.mean()), (None, None, None));
        (1..=1000).for_each(|n| window.push(Micros(n)));
        assert_eq!(window.percentile(0.5), Some(Micros(950)));
        assert_eq!(window.percentile(0.99), Some(Micros(999)));
        assert_eq!(window.percentile(1.0), Some(Micros(1000)));
        assert_eq!(window.percentile(0.0), Some(Micros(901)));
        assert!(window.recent_p99() >= Some(Micros(999 - STALE as u64)));
        assert_eq!(window.mean(), Some(Micros(950)));
        window.clear();
        assert_eq!(window.last(), None);
    }

    #[test]
    fn a_steady_stream_has_its_rate_and_silence_forgets_it() {
        let mut rate = Rate::default();
        for n in 0..1000 {
            rate.count(2, Micros::from_millis(n * 100));
        }
        let now = Micros::from_millis(99_900);
        assert!((rate.per_s(now) - 20.0).abs() < 0.5, "{}", rate.per_s(now));
        assert!(rate.per_s(now + Micros::from_millis(60_000)) < 0.1);
    }
}
