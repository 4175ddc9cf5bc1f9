//! A circuit breaker: who lets requests through to a worker that keeps failing. Pure; time is an argument.
//!
//! ```text
//!           `failures` in a row            `open_for` has passed, and somebody asks
//! closed ──────────────────────────▶ open ─────────────────────────────────────────▶ half-open: that one is the probe
//!   ▲                                 ▲  probe fails                                       │
//!   └──────────── probe succeeds ─────┴────────────────────────────────────────────────────┘
//! ```

use crate::units::Micros;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    /// So many failures in a row open it.
    pub failures: u32,
    pub open_for: Micros,
}

impl Default for BreakerConfig {
    fn default() -> BreakerConfig {
        BreakerConfig { failures: 5, open_for: Micros::from_millis(30_000) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Closed,
    HalfOpen,
    Open,
}

impl Phase {
    pub const ALL: [Phase; 3] = [Phase::Closed, Phase::HalfOpen, Phase::Open];

    pub fn name(self) -> &'static str {
        match self {
            Phase::Closed => "closed",
            Phase::HalfOpen => "half_open",
            Phase::Open => "open",
        }
    }
}

/// How a request went, as far as its worker is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Success,
    Failure,
    /// The client erred or left: says nothing about the worker.
    Uncounted,
}

/// A request that was let through. To be given back with its verdict, once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a ticket that is never settled keeps a half-open breaker waiting for its probe"]
pub struct Ticket {
    epoch: u64,
}

#[derive(Clone, Debug)]
pub struct Breaker {
    config: BreakerConfig,
    state: State,
    /// Grows with every change of phase: what was let through before has no say any more.
    epoch: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed {
        /// In a row.
        failures: u32,
    },
    Open {
        until: Micros,
    },
    HalfOpen {
        probing: bool,
    },
}

impl Breaker {
    pub fn new(config: BreakerConfig) -> Breaker {
        Breaker { config, state: State::Closed { failures: 0 }, epoch: 0 }
    }

    pub fn phase(&self) -> Phase {
        match self.state {
            State::Closed { .. } => Phase::Closed,
            State::Open { .. } => Phase::Open,
            State::HalfOpen { .. } => Phase::HalfOpen,
        }
    }

    /// Whether [`Breaker::admit`] would let somebody through.
    pub fn admits(&self, now: Micros) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until } => now >= until,
            State::HalfOpen { probing } => !probing,
        }
    }

    /// Lets a request through, or not. Of those that ask after `open_for` exactly one is let through until its verdict.
    pub fn admit(&mut self, now: Micros) -> Option<Ticket> {
        if !self.admits(now) {
            return None;
        }
        match &mut self.state {
            State::Closed { .. } => {}
            State::Open { .. } => self.enter(State::HalfOpen { probing: true }),
            State::HalfOpen { probing } => *probing = true,
        }
        Some(Ticket { epoch: self.epoch })
    }

    /// The verdict on a request that was let through. Of one from before the last change of phase it is too late to tell.
    pub fn settle(&mut self, ticket: Ticket, verdict: Verdict, now: Micros) {
        if ticket.epoch != self.epoch {
            return;
        }
        match (&mut self.state, verdict) {
            (State::Closed { failures }, Verdict::Success) => *failures = 0,
            (State::Closed { .. }, Verdict::Failure) => self.count_failure(now),
            (State::HalfOpen { .. }, Verdict::Success) => self.enter(State::Closed { failures: 0 }),
            (State::HalfOpen { .. }, Verdict::Failure) => self.open(now),
            (State::HalfOpen { probing }, Verdict::Uncounted) => *probing = false,
            (State::Closed { .. }, Verdict::Uncounted) | (State::Open { .. }, _) => {}
        }
    }

    /// A check found the worker failing, without a request. It counts like a request's failure; an open breaker is not kept
    /// open by it, for checks never end.
    pub fn check_failed(&mut self, now: Micros) {
        match self.state {
            State::Closed { .. } => self.count_failure(now),
            State::HalfOpen { .. } => self.open(now),
            State::Open { .. } => {}
        }
    }

    /// The worker was replaced: nothing is held against the new one.
    pub fn renew(&mut self) {
        self.enter(State::Closed { failures: 0 });
    }

    /// Until a probe is let through; `None` where nothing says when.
    pub fn opens_in(&self, now: Micros) -> Option<Micros> {
        match self.state {
            State::Open { until } => Some(until.since(now)),
            State::Closed { .. } | State::HalfOpen { .. } => None,
        }
    }

    fn count_failure(&mut self, now: Micros) {
        let State::Closed { failures } = &mut self.state else { return };
        *failures += 1;
        if *failures >= self.config.failures {
            self.open(now);
        }
    }

    fn open(&mut self, now: Micros) {
        self.enter(State::Open { until: now + self.config.open_for });
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.epoch += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONFIG: BreakerConfig = BreakerConfig { failures: 5, open_for: Micros(30) };

    fn fail(breaker: &mut Breaker, times: u32, now: Micros) {
        for _ in 0..times {
            let ticket = breaker.admit(now).expect("let through");
            breaker.settle(ticket, Verdict::Failure, now);
        }
    }

    #[test]
    fn five_failures_in_a_row_open_it_and_one_probe_closes_it() {
        let mut breaker = Breaker::new(CONFIG);
        fail(&mut breaker, 4, Micros(0));
        let ticket = breaker.admit(Micros(1)).unwrap();
        breaker.settle(ticket, Verdict::Success, Micros(1));
        fail(&mut breaker, 4, Micros(2));
        assert_eq!(breaker.phase(), Phase::Closed, "a success between them");
        fail(&mut breaker, 1, Micros(3));
        assert_eq!((breaker.phase(), breaker.opens_in(Micros(13))), (Phase::Open, Some(Micros(20))));
        assert_eq!(breaker.admit(Micros(32)), None);
        let probe = breaker.admit(Micros(33)).expect("its time has come");
        assert_eq!((breaker.phase(), breaker.admit(Micros(1_000))), (Phase::HalfOpen, None));
        breaker.settle(probe, Verdict::Success, Micros(34));
        assert_eq!(breaker.phase(), Phase::Closed);
        fail(&mut breaker, 4, Micros(35));
        assert_eq!(breaker.phase(), Phase::Closed, "it counts anew");
    }

    #[test]
    fn a_failed_probe_opens_it_for_as_long_again_and_one_that_left_makes_room_for_another() {
        let mut breaker = Breaker::new(CONFIG);
        fail(&mut breaker, 5, Micros(0));
        let left = breaker.admit(Micros(30)).unwrap();
        breaker.settle(left, Verdict::Uncounted, Micros(31));
        assert_eq!(breaker.phase(), Phase::HalfOpen);
        let probe = breaker.admit(Micros(31)).expect("another");
        breaker.settle(probe, Verdict::Failure, Micros(40));
        assert_eq!((breaker.admit(Micros(69)), breaker.admits(Micros(70))), (None, true));
    }

    #[test]
    fn requests_from_before_have_no_say() {
        let mut breaker = Breaker::new(CONFIG);
        let (early, late) = (breaker.admit(Micros(0)).unwrap(), breaker.admit(Micros(0)).unwrap());
        fail(&mut breaker, 5, Micros(0));
        breaker.settle(early, Verdict::Success, Micros(1));
        assert_eq!(breaker.phase(), Phase::Open);
        let probe = breaker.admit(Micros(30)).unwrap();
        breaker.settle(late, Verdict::Failure, Micros(31));
        assert_eq!(breaker.phase(), Phase::HalfOpen, "it is not the probe");
        breaker.settle(probe, Verdict::Success, Micros(32));
        assert_eq!(breaker.phase(), Phase::Closed);
    }

    #[test]
    fn failed_checks_count_but_do_not_keep_it_open() {
        let mut breaker = Breaker::new(CONFIG);
        (0..5).for_each(|_| breaker.check_failed(Micros(0)));
        assert_eq!(breaker.phase(), Phase::Open);
        breaker.check_failed(Micros(29));
        assert!(breaker.admits(Micros(30)));
        let probe = breaker.admit(Micros(30)).unwrap();
        breaker.check_failed(Micros(31));
        assert_eq!(breaker.opens_in(Micros(31)), Some(Micros(30)), "a failed probe");
        breaker.settle(probe, Verdict::Success, Micros(32));
        assert_eq!(breaker.phase(), Phase::Open);
    }

    #[derive(Clone, Copy, Debug)]
    enum Act {
        Admit,
        /// The verdict on the nth request under way.
        Settle(usize, Verdict),
        Check,
        Wait(u64),
    }

    fn verdict() -> impl Strategy<Value = Verdict> {
        prop_oneof![1 => Just(Verdict::Success), 3 => Just(Verdict::Failure), 1 => Just(Verdict::Uncounted)]
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            4 => Just(Act::Admit),
            4 => (0usize..8, verdict()).prop_map(|(n, verdict)| Act::Settle(n, verdict)),
            1 => Just(Act::Check),
            2 => (0u64..40).prop_map(Act::Wait),
        ];
        proptest::collection::vec(act, 0..200)
    }

    proptest! {
        /// Against what the words say: nobody passes while it is open, one at a time while it is half-open, and it opens
        /// after exactly so many failures in a row.
        #[test]
        fn it_does_what_the_words_say(acts in acts()) {
            let mut breaker = Breaker::new(CONFIG);
            let mut now = Micros(0);
            let mut under_way: Vec<(Ticket, bool)> = Vec::new();
            let (mut row, mut opened) = (0, None);
            for act in acts {
                let before = breaker.phase();
                match act {
                    Act::Wait(micros) => now = now + Micros(micros),
                    Act::Admit => {
                        let probes = under_way.iter().filter(|(_, probe)| *probe).count();
                        let expected = match before {
                            Phase::Closed => true,
                            Phase::Open => opened.is_some_and(|at| now.since(at) >= CONFIG.open_for),
                            Phase::HalfOpen => probes == 0,
                        };
                        let ticket = breaker.admit(now);
                        prop_assert_eq!(ticket.is_some(), expected);
                        let probe = breaker.phase() == Phase::HalfOpen;
                        under_way.extend(ticket.map(|ticket| (ticket, probe)));
                        prop_assert!(under_way.iter().filter(|(_, probe)| *probe).count() <= 1);
                    }
                    Act::Settle(nth, verdict) if nth < under_way.len() => {
                        let (ticket, probe) = under_way.remove(nth);
                        let counts = ticket.epoch == breaker.epoch;
                        prop_assert!(!probe || counts || before != Phase::HalfOpen);
                        breaker.settle(ticket, verdict, now);
                        if counts && before == Phase::Closed {
                            row = match verdict { Verdict::Success => 0, Verdict::Failure => row + 1, Verdict::Uncounted => row };
                            prop_assert_eq!(breaker.phase() == Phase::Open, row >= CONFIG.failures);
                        }
                        if verdict == Verdict::Uncounted || !counts {
                            prop_assert_eq!(breaker.phase(), before, "it must not count");
                        }
                    }
                    Act::Settle(..) => {}
                    Act::Check => {
                        breaker.check_failed(now);
                        row += u32::from(before == Phase::Closed);
                    }
                }
                if breaker.phase() == Phase::Open && before != Phase::Open {
                    opened = Some(now);
                }
                if breaker.phase() != before {
                    row = 0;
                    // Probes of a phase that is over are ordinary latecomers.
                    under_way.iter_mut().for_each(|(ticket, probe)| *probe &= ticket.epoch == breaker.epoch);
                }
            }
        }
    }
}
