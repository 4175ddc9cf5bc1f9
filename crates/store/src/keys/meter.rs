//! What a key may use at once and per minute, in this process. Requests are counted by GCRA (the governor crate), on the
//! server's clock, so that tests move it.
//!
//! How many tokens a request takes is known only as it takes them, so tokens are a bucket of our own that may owe: a request
//! begins as soon as nothing is owed, and what it takes beyond the bucket the next one waits for. Governor's cells are
//! there or refused, never owed.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use governor::clock::Clock as _;
use governor::middleware::{StateInformationMiddleware, StateSnapshot};
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

use super::key::Key;
use forebay_clock::Clock;
use forebay_core::request::RequestError;
use forebay_core::units::Micros;

/// Our clock as governor reads it.
#[derive(Clone, Debug)]
struct Ticks(Clock);

impl governor::clock::Clock for Ticks {
    type Instant = Duration;

    fn now(&self) -> Duration {
        Duration::from_micros(self.0.now().0)
    }
}

type Limiter = RateLimiter<NotKeyed, InMemoryState, Ticks, StateInformationMiddleware>;

const MINUTE: Duration = Duration::from_secs(60);

/// How full a bucket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Per minute.
    pub limit: u32,
    pub remaining: u32,
    /// Until it is full again.
    pub reset: Duration,
}

impl Level {
    fn of(limit: u32, remaining: u32) -> Level {
        let remaining = remaining.min(limit);
        Level { limit, remaining, reset: time_for(u64::from(limit - remaining), limit) }
    }
}

/// Until so many have come.
fn time_for(count: u64, per_minute: u32) -> Duration {
    let millis = count.saturating_mul(MINUTE.as_millis() as u64).div_ceil(u64::from(per_minute.max(1)));
    Duration::from_millis(millis)
}

/// Of a key that has these limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    pub requests: Option<Level>,
    pub tokens: Option<Level>,
}

/// Why a request may not begin, and how things stand.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    pub error: RequestError,
    pub levels: Levels,
}

impl From<RequestError> for Refused {
    fn from(error: RequestError) -> Refused {
        Refused { error, levels: Levels::default() }
    }
}

/// What a key is using.
#[derive(Debug)]
pub struct Meter {
    clock: Clock,
    concurrency: Option<u32>,
    running: AtomicU32,
    requests: Option<Rate>,
    tokens: Option<Bucket>,
}

/// Requests per minute.
#[derive(Debug)]
struct Rate {
    limit: NonZeroU32,
    limiter: Limiter,
}

impl Rate {
    fn new(limit: Option<u32>, clock: &Ticks) -> Option<Rate> {
        let limit = NonZeroU32::new(limit?)?;
        let limiter = RateLimiter::direct_with_clock(Quota::per_minute(limit), clock.clone());
        Some(Rate { limit, limiter: limiter.with_middleware() })
    }

    /// Takes one, or says how long until it is there.
    fn take(&self) -> Result<StateSnapshot, Duration> {
        self.limiter.check().map_err(|until| until.wait_time_from(self.limiter.clock().now()))
    }
}

/// Tokens per minute.
#[derive(Debug)]
struct Bucket {
    limit: NonZeroU32,
    /// Guards these numbers only; no await happens under it.
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    /// What is there, or is owed, in parts of a token of which a limit of one brings one each microsecond.
    parts: i128,
    at: Micros,
}

const PARTS: i128 = 60_000_000;

impl Bucket {
    fn new(limit: Option<u32>, now: Micros) -> Option<Bucket> {
        let limit = NonZeroU32::new(limit?)?;
        let held = Held { parts: i128::from(limit.get()) * PARTS, at: now };
        Some(Bucket { limit, held: Mutex::new(held) })
    }

    /// Takes so many, there or not; what is there then, or is owed.
    fn take(&self, tokens: usize, now: Micros) -> i128 {
        let limit = i128::from(self.limit.get());
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let came = i128::from(now.since(held.at).0) * limit;
        held.parts = (held.parts + came).min(limit * PARTS) - tokens as i128 * PARTS;
        held.at = held.at.max(now);
        held.parts
    }

    /// How things stand, and how long to wait while nothing is there.
    fn look(&self, now: Micros) -> (Level, Option<Duration>) {
        let limit = self.limit.get();
        let parts = self.take(0, now);
        if parts >= PARTS {
            return (Level::of(limit, u32::try_from(parts / PARTS).unwrap_or(limit)), None);
        }
        // A token has to be there, whole.
        let each = i128::from(limit);
        let micros = |parts: i128| u64::try_from((parts + each - 1) / each).unwrap_or(u64::MAX);
        let reset = Duration::from_micros(micros(i128::from(limit) * PARTS - parts));
        (Level { limit, remaining: 0, reset }, Some(Duration::from_micros(micros(PARTS - parts))))
    }
}

/// A place among a key's running requests, given back when dropped.
#[derive(Debug)]
pub struct Seat {
    meter: Arc<Meter>,
    /// As the request began.
    pub levels: Levels,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.meter.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Meter {
    pub fn new(key: &Key, clock: &Clock) -> Meter {
        let clock = Ticks(clock.clone());
        Meter {
            concurrency: key.concurrency,
            running: AtomicU32::new(0),
            requests: Rate::new(key.requests_per_minute, &clock),
            tokens: Bucket::new(key.tokens_per_minute, clock.0.now()),
            clock: clock.0,
        }
    }

    /// Whether a key with changed limits can go on with this meter.
    pub fn fits(&self, key: &Key) -> bool {
        let requests = self.requests.as_ref().map(|rate| rate.limit.get());
        let tokens = self.tokens.as_ref().map(|bucket| bucket.limit.get());
        (requests, tokens, self.concurrency) == (key.requests_per_minute, key.tokens_per_minute, key.concurrency)
    }

    /// Lets one more request begin.
    pub fn admit(self: &Arc<Meter>) -> Result<Seat, Refused> {
        let most = self.concurrency.unwrap_or(u32::MAX);
        let more = |running: u32| (running < most).then_some(running + 1);
        if self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return Err(limited("requests at once", most, Duration::from_secs(1), Levels::default()));
        }
        // From here on a refusal gives the place back.
        let mut seat = Seat { meter: self.clone(), levels: Levels::default() };
        let mut levels = Levels::default();
        if let Some(rate) = &self.requests {
            let limit = rate.limit.get();
            let taken = rate.take();
            levels.requests = Some(Level::of(limit, taken.as_ref().map_or(0, StateSnapshot::remaining_burst_capacity)));
            taken.map_err(|wait| limited("requests per minute", limit, wait, levels))?;
        }
        if let Some(bucket) = &self.tokens {
            let (level, wait) = bucket.look(self.clock.now());
            levels.tokens = Some(level);
            if let Some(wait) = wait {
                return Err(limited("tokens per minute", level.limit, wait, levels));
            }
        }
        seat.levels = levels;
        Ok(seat)
    }

    /// Tokens that a running request has taken.
    pub fn charge(&self, tokens: usize) {
        if let Some(bucket) = &self.tokens {
            bucket.take(tokens, self.clock.now());
        }
    }

    /// Requests that run.
    pub fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }
}

fn limited(what: &'static str, limit: u32, wait: Duration, levels: Levels) -> Refused {
    let retry_after_ms = u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX).max(1);
    Refused { error: RequestError::RateLimited { what, limit, retry_after_ms }, levels }
}
