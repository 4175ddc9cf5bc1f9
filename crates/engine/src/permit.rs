//! Places in the queue, given out before a prompt is tokenised.
//!
//! The counters are the only thing that the HTTP face and the loop share. They count what is being tokenised, on its way
//! through channel 1, or queued; a place is given back when its request is released to the scheduler, or ends before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use forebay_core::intake::{Capacity, Full, retry_after};
use forebay_core::request::{Priority, RequestError};

/// Why nobody gets a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Closed {
    #[default]
    Open,
    /// Too hot.
    Thermal,
    Draining,
}

/// Hands out permits. Cheap to clone; clones share their counters.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Counters>, Arc<Rate>);

/// How fast one loop empties the queue, in millionths per second; a part of [`Counters::drained`].
#[derive(Debug, Default)]
struct Rate {
    counters: Arc<Counters>,
    own: AtomicU64,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicUsize,
    /// Prompt tokens, or bounds of them.
    tokens: AtomicUsize,
    /// Requests of clients, each with a connection that it keeps until it is answered.
    connections: AtomicUsize,
    max_requests: AtomicUsize,
    max_tokens: AtomicUsize,
    /// With more, classes up to normal are refused; 0 for no bound.
    max_connections: AtomicUsize,
    closed: AtomicUsize,
    /// Millionths of requests that leave the queue per second, at all loops together.
    drained: AtomicU64,
}

/// Places for a request's sequences. Dropped, it gives back what it still holds.
#[derive(Debug, Default)]
pub struct Permit {
    counters: Option<Arc<Counters>>,
    requests: usize,
    tokens: usize,
}

/// A client's request that keeps its connection, until this is dropped.
#[derive(Debug)]
pub struct Connection(Arc<Counters>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Gate {
    pub fn new(capacity: Capacity) -> Gate {
        let gate = Gate::default().of_another_loop();
        gate.set_capacity(capacity);
        gate
    }

    /// One more loop's way to the same places: their number is the server's, not a loop's.
    pub fn of_another_loop(&self) -> Gate {
        Gate(self.0.clone(), Arc::new(Rate { counters: self.0.clone(), own: AtomicU64::new(0) }))
    }

    /// A permit for `sequences` of a class, of at most `tokens` prompt tokens together. `jitter`, from 0 to 1, spreads the advice to
    /// clients that are refused.
    pub fn enter(&self, class: Priority, sequences: usize, tokens: usize, jitter: f64) -> Result<Permit, RequestError> {
        let counters = &self.0;
        match self.closed() {
            Closed::Open => {}
            Closed::Thermal => return Err(RequestError::ThermalLimit { retry_after_s: THERMAL_RETRY_S }),
            Closed::Draining => return Err(RequestError::ShuttingDown),
        }
        // Taken first and checked after: of two that race for the last place at most one too many is refused, never let in.
        let permit = Permit { counters: Some(counters.clone()), requests: sequences, tokens };
        let requests_before = counters.requests.fetch_add(sequences, Ordering::AcqRel);
        let tokens_before = counters.tokens.fetch_add(tokens, Ordering::AcqRel);
        let max_connections = counters.max_connections.load(Ordering::Relaxed);
        let is_crowded = max_connections > 0 && counters.connections.load(Ordering::Acquire) > max_connections;
        let crowd = Full { capacity: Capacity { requests: max_connections, ..self.capacity() } };
        let places = self.capacity().for_class(class).admits(requests_before, tokens_before, sequences, tokens);
        match if is_crowded && class > Priority::High { Err(crowd) } else { places } {
            Ok(()) => Ok(permit),
            Err(full) => {
                drop(permit);
                let drained = counters.drained.load(Ordering::Relaxed) as f64 / 1e6;
                let retry_after_s = retry_after(requests_before, drained, jitter);
                Err(RequestError::QueueFull { capacity: full.capacity.requests, retry_after_s })
            }
        }
    }

    pub fn set_capacity(&self, capacity: Capacity) {
        self.0.max_requests.store(capacity.requests, Ordering::Relaxed);
        self.0.max_tokens.store(capacity.tokens, Ordering::Relaxed);
    }

    pub fn capacity(&self) -> Capacity {
        Capacity {
            requests: self.0.max_requests.load(Ordering::Relaxed),
            tokens: self.0.max_tokens.load(Ordering::Relaxed),
        }
    }

    /// While requests keep more connections than this, classes up to normal are refused, however many places there are: the other
    /// connections are for more urgent ones, which would not even be heard else. For the server's start.
    pub fn keep_connections(&self, max_connections: usize) {
        self.0.max_connections.store(max_connections.max(1), Ordering::Relaxed);
    }

    /// A client's request has come. To be held until its answer has been sent.
    pub fn connect(&self) -> Connection {
        self.0.connections.fetch_add(1, Ordering::AcqRel);
        Connection(self.0.clone())
    }

    pub fn set_closed(&self, closed: Closed) {
        self.0.closed.store(closed as usize, Ordering::Relaxed);
    }

    pub fn closed(&self) -> Closed {
        match self.0.closed.load(Ordering::Relaxed) {
            n if n == Closed::Thermal as usize => Closed::Thermal,
            n if n == Closed::Draining as usize => Closed::Draining,
            _ => Closed::Open,
        }
    }

    pub fn set_drain_rate(&self, per_s: f64) {
        self.1.set((per_s * 1e6) as u64);
    }

    /// Requests and prompt tokens that hold places.
    pub fn held(&self) -> (usize, usize) {
        (self.0.requests.load(Ordering::Relaxed), self.0.tokens.load(Ordering::Relaxed))
    }
}

impl Rate {
    fn set(&self, rate: u64) {
        let before = self.own.swap(rate, Ordering::Relaxed);
        // Wrapping, as atomics are: the sum of all parts is right whatever the order.
        self.counters.drained.fetch_add(rate.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Drop for Rate {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A machine cools within minutes, not seconds.
pub const THERMAL_RETRY_S: u32 = 30;

impl Permit {
    /// The bound becomes the count.
    pub fn true_up(&mut self, tokens: usize) {
        if let Some(counters) = &self.counters {
            counters.tokens.fetch_add(tokens, Ordering::AcqRel);
            counters.tokens.fetch_sub(self.tokens, Ordering::AcqRel);
            self.tokens = tokens;
        }
    }

    /// Takes one sequence of `tokens` prompt tokens out, so that it can be given back alone.
    pub fn split(&mut self, tokens: usize) -> Permit {
        let (requests, tokens) = (self.requests.min(1), self.tokens.min(tokens));
        self.requests -= requests;
        self.tokens -= tokens;
        Permit { counters: self.counters.clone(), requests, tokens }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(counters) = &self.counters {
            counters.requests.fetch_sub(self.requests, Ordering::AcqRel);
            counters.tokens.fetch_sub(self.tokens, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(requests: usize, tokens: usize) -> Gate {
        Gate::new(Capacity { requests, tokens })
    }

    #[test]
    fn places_are_bounded_by_requests_and_by_tokens_and_come_back() {
        let gate = gate(3, 100);
        let first = gate.enter(Priority::Normal, 2, 60, 0.5).unwrap();
        assert!(
            matches!(gate.enter(Priority::Normal, 2, 10, 0.5), Err(RequestError::QueueFull { capacity: 3, .. })),
            "requests"
        );
        assert!(gate.enter(Priority::Normal, 1, 50, 0.5).is_err(), "tokens");
        assert_eq!(gate.held(), (2, 60), "a refusal holds nothing");
        let second = gate.enter(Priority::Normal, 1, 40, 0.5).unwrap();
        drop(first);
        assert_eq!(gate.held(), (1, 40));
        drop(second);
        assert_eq!(gate.held(), (0, 0));
    }

    #[test]
    fn places_that_others_cannot_take_are_left_for_urgent_requests() {
        let gate = gate(8, 1_000);
        let _full = gate.enter(Priority::Low, 8, 8, 0.5).unwrap();
        assert!(gate.enter(Priority::Normal, 1, 1, 0.5).is_err());
        let _urgent = gate.enter(Priority::High, 1, 1, 0.5).unwrap();
        let refused = gate.enter(Priority::Critical, 1, 1, 0.5);
        assert!(matches!(refused, Err(RequestError::QueueFull { capacity: 9, .. })), "they have a bound, too");
    }

    #[test]
    fn connections_are_left_for_urgent_requests() {
        let gate = gate(100, 1_000);
        gate.keep_connections(2);
        let connected = [gate.connect(), gate.of_another_loop().connect()];
        let _many_of_one =
            (gate.enter(Priority::Normal, 50, 8, 0.5).unwrap(), gate.enter(Priority::Low, 8, 8, 0.5).unwrap());
        let third = gate.connect();
        let refused = gate.enter(Priority::Normal, 1, 1, 0.5);
        assert!(matches!(refused, Err(RequestError::QueueFull { capacity: 2, .. })));
        assert!(gate.enter(Priority::Critical, 1, 1, 0.5).is_ok());
        drop(connected);
        assert!(gate.enter(Priority::Normal, 1, 1, 0.5).is_ok());
        drop(third);
        assert_eq!(gate.0.connections.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_bound_is_trued_up_and_sequences_leave_one_by_one() {
        let gate = gate(10, 1000);
        let mut permit = gate.enter(Priority::Normal, 3, 900, 0.0).unwrap();
        permit.true_up(30);
        assert_eq!(gate.held(), (3, 30));
        let one = permit.split(10);
        drop(permit);
        assert_eq!(gate.held(), (1, 10));
        drop(one);
        assert_eq!(gate.held(), (0, 0));
    }

    #[test]
    fn a_closed_gate_says_why() {
        let gate = gate(10, 1000);
        gate.set_closed(Closed::Thermal);
        assert!(matches!(gate.enter(Priority::Normal, 1, 1, 0.0), Err(RequestError::ThermalLimit { .. })));
        gate.set_closed(Closed::Draining);
        assert!(matches!(gate.enter(Priority::Normal, 1, 1, 0.0), Err(RequestError::ShuttingDown)));
        gate.set_closed(Closed::Open);
        assert!(gate.enter(Priority::Normal, 1, 1, 0.0).is_ok());
    }

    #[test]
    fn loops_share_places_and_empty_the_queue_together() {
        let gate = gate(1, 1_000);
        let other = gate.of_another_loop();
        gate.set_drain_rate(1.0);
        other.set_drain_rate(9.0);
        let _held = other.enter(Priority::Normal, 1, 1, 0.0).unwrap();
        let retry = |gate: &Gate| match gate.enter(Priority::Normal, 1, 1, 1.0) {
            Err(RequestError::QueueFull { retry_after_s, .. }) => retry_after_s,
            other => panic!("{other:?}"),
        };
        assert_eq!(retry(&gate), retry_after(1, 10.0, 1.0));
        drop(other);
        assert_eq!(retry(&gate), retry_after(1, 1.0, 1.0));
    }

    #[test]
    fn threads_never_exceed_the_capacity() {
        let gate = gate(8, 1_000_000);
        let peak = AtomicUsize::new(0);
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        if let Ok(_permit) = gate.enter(Priority::Normal, 3, 1, 0.0) {
                            peak.fetch_max(inside.fetch_add(3, Ordering::AcqRel) + 3, Ordering::AcqRel);
                            inside.fetch_sub(3, Ordering::AcqRel);
                        }
                    }
                });
            }
        });
        assert!((3..=8).contains(&peak.load(Ordering::Acquire)));
        assert_eq!(gate.held(), (0, 0));
    }
}
