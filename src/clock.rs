//! The only reader of the system clock, with a manual twin for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::units::Micros;

/// A source of monotonic time. Cheap to clone; clones agree.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    System(Instant),
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// Time since this call, by the system's monotonic clock.
    pub fn system() -> Clock {
        Clock(Kind::System(Instant::now()))
    }

    /// A clock that stands still until [`Clock::advance`] moves it.
    pub fn manual() -> Clock {
        Clock(Kind::Manual(Arc::default()))
    }

    pub fn now(&self) -> Micros {
        match &self.0 {
            Kind::System(start) => Micros(start.elapsed().as_micros() as u64),
            Kind::Manual(micros) => Micros(micros.load(Ordering::SeqCst)),
        }
    }

    /// The wall clock in milliseconds since 1970, for what outlives the process. A manual clock begins in November 2023.
    pub fn unix_millis(&self) -> i64 {
        match &self.0 {
            Kind::System(_) => unix_millis(),
            Kind::Manual(_) => 1_700_000_000_000 + self.now().as_millis() as i64,
        }
    }

    /// Moves a manual clock on. Does nothing to the system's.
    pub fn advance(&self, by: Micros) {
        if let Kind::Manual(micros) = &self.0 {
            micros.fetch_add(by.0, Ordering::SeqCst);
        }
    }
}

fn unix_millis() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// The wall clock, in seconds since 1970: for dates shown to people, never for durations. 0 when it is set before 1970.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
