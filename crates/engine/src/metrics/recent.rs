//! Recent times and the past: what `/metrics/json` needs beside the counters.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::config::Config;
use super::reservoir::Reservoir;
use super::timeline::{Percentiles, Timeline};
use forebay_core::units::Micros;

/// Which of a sequence's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    Whole,
    FirstToken,
    InterToken,
}

/// p50, p90, p99, p99.9.
const PARTS: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Shared by all loops. The locks of `times` are held for one addition or one copy; loops take no others.
#[derive(Debug)]
pub(super) struct Recent {
    /// By [`Time`].
    times: [Mutex<Reservoir>; 3],
    /// The same: what they said last, after so many additions. A server at rest is asked ten times a second, too.
    told: [Mutex<(u64, Percentiles)>; 3],
    pub timeline: Mutex<Timeline>,
    config: Config,
}

impl Recent {
    pub fn new(config: &Config) -> Recent {
        let reservoir = |seed| Mutex::new(Reservoir::new(config.percentile_window, seed));
        let millis = |time: Micros| time.as_millis();
        Recent {
            times: [1, 2, 3].map(reservoir),
            told: Default::default(),
            timeline: Mutex::new(Timeline::new(millis(config.interval), millis(config.retention))),
            config: config.clone(),
        }
    }

    pub fn took(&self, what: Time, time: Micros, now: Micros) {
        lock(&self.times[what as usize]).add(time.as_secs_f64() * 1e3, now);
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn percentiles(&self, what: Time) -> Percentiles {
        let mut told = lock(&self.told[what as usize]);
        let reservoir = {
            let times = lock(&self.times[what as usize]);
            if times.added() == told.0 {
                return told.1;
            }
            // Sorted outside this lock: an engine loop may be about to add.
            times.clone()
        };
        let percentiles = reservoir.percentiles(PARTS).map(|all| all.map(|one| one as f32));
        *told = (reservoir.added(), percentiles);
        percentiles
    }
}

/// Nothing that is done under these locks can leave a value half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
