//! What is known of each worker, and who takes the next request: breakers, loads, caches, balancer in one place. Pure.

use super::balance::{self, Balancer, Draw, Load};
use super::breaker::{Breaker, BreakerConfig, Phase, Ticket, Verdict};
use super::busy::Busy;
use super::prefix::{Chain, Seen};
use crate::units::Micros;

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Idle,
    Busy,
    /// Dead, hung, or failing: it gets no requests.
    Unhealthy,
}

impl Status {
    pub const ALL: [Status; 3] = [Status::Idle, Status::Busy, Status::Unhealthy];

    pub fn name(self) -> &'static str {
        match self {
            Status::Idle => "idle",
            Status::Busy => "busy",
            Status::Unhealthy => "unhealthy",
        }
    }
}

/// A request that looks for a worker.
pub struct Want<'a> {
    pub sequences: usize,
    pub chain: &'a Chain,
    /// Who may take it at all.
    pub among: &'a dyn Fn(usize) -> bool,
    /// Uniform.
    pub dice: u64,
}

/// Nobody takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Those who could are failing; the first is tried again after this.
    Open { retry_after: Option<Micros> },
    /// Those who could are not there.
    Down,
}

/// A worker at a glance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Glance {
    pub status: Status,
    pub phase: Phase,
    /// Sequences under way.
    pub pending: usize,
    /// The part of its time, lately, in which there were any: 0 to 1.
    pub utilisation: f64,
    /// Requests that succeeded, failed, and do not count.
    pub verdicts: [u64; 3],
}

pub struct Board {
    balancer: Balancer,
    places: Vec<Place>,
    /// Choices so far.
    turn: usize,
    changes: Vec<(usize, Phase)>,
}

struct Place {
    breaker: Breaker,
    up: bool,
    pending: usize,
    busy: Busy,
    seen: Seen,
    verdicts: [u64; 3],
}

impl Board {
    /// Nobody is up yet.
    pub fn new(workers: usize, balancer: Balancer, breaker: BreakerConfig, now: Micros) -> Board {
        let place = |_| Place {
            breaker: Breaker::new(breaker),
            up: false,
            pending: 0,
            busy: Busy::new(now),
            seen: Seen::default(),
            verdicts: [0; 3],
        };
        Board { balancer, places: (0..workers).map(place).collect(), turn: 0, changes: Vec::new() }
    }

    pub fn balancer(&self) -> Balancer {
        self.balancer
    }

    /// Chooses by another balancer from the next request on, and returns the one before. Loads, caches and turns stay.
    pub fn set_balancer(&mut self, balancer: Balancer) -> Balancer {
        std::mem::replace(&mut self.balancer, balancer)
    }

    /// Finds a worker; the request is under way there until [`Board::give_back`].
    pub fn take(&mut self, want: &Want, now: Micros) -> Result<(usize, Ticket), Refusal> {
        let fit = |(worker, place): (usize, &Place)| {
            let could = (want.among)(worker) && place.up && place.breaker.admits(now);
            could.then(|| Load { worker, pending: place.pending, cached: place.seen.matched(want.chain) })
        };
        let loads: Vec<Load> = self.places.iter().enumerate().filter_map(fit).collect();
        let draw = Draw { turn: self.turn, dice: want.dice };
        let chosen = balance::choose(self.balancer, &loads, self.places.len(), draw);
        let worker = chosen.ok_or_else(|| self.refusal(want, now))?;
        self.turn += 1;
        let ticket = self.on_breaker(worker, |breaker| breaker.admit(now)).ok_or(Refusal::Down)?;
        let place = &mut self.places[worker];
        place.busy.until(now, place.pending > 0);
        place.pending += want.sequences;
        place.seen.note(want.chain);
        Ok((worker, ticket))
    }

    fn refusal(&self, want: &Want, now: Micros) -> Refusal {
        let wanted = |(worker, place)| (want.among)(worker).then_some(place);
        let barred: Vec<&Place> =
            self.places.iter().enumerate().filter_map(wanted).filter(|place| !place.breaker.admits(now)).collect();
        if barred.is_empty() {
            return Refusal::Down;
        }
        Refusal::Open { retry_after: barred.iter().filter_map(|place| place.breaker.opens_in(now)).min() }
    }

    /// The verdict on a request; more may follow, of which the first counts.
    pub fn settle(&mut self, worker: usize, ticket: Ticket, verdict: Verdict, now: Micros) {
        self.places[worker].verdicts[verdict as usize] += 1;
        self.on_breaker(worker, |breaker| breaker.settle(ticket, verdict, now));
    }

    /// Takes back a choice that was only a question; [`Board::give_back`] is still to come.
    pub fn withdraw(&mut self, worker: usize, ticket: Ticket, now: Micros) {
        self.turn = self.turn.wrapping_sub(1);
        self.on_breaker(worker, |breaker| breaker.settle(ticket, Verdict::Uncounted, now));
    }

    /// So many sequences are no longer under way.
    pub fn give_back(&mut self, worker: usize, sequences: usize, now: Micros) {
        let place = &mut self.places[worker];
        place.busy.until(now, place.pending > 0);
        place.pending = place.pending.saturating_sub(sequences);
    }

    /// It is there, or not.
    pub fn set_up(&mut self, worker: usize, up: bool) {
        self.places[worker].up = up;
    }

    /// A check that failed counts like a request. Where that opens the breaker, or it was open, no request is sent to try the
    /// worker until a check has passed.
    pub fn check_failed(&mut self, worker: usize, now: Micros) {
        self.on_breaker(worker, |breaker| breaker.check_failed(now));
        if self.places[worker].breaker.phase() != Phase::Closed {
            self.set_up(worker, false);
        }
    }

    /// Another took its place: it knows nothing, and has done nothing wrong.
    pub fn renew(&mut self, worker: usize) {
        self.places[worker].seen.forget();
        self.on_breaker(worker, Breaker::renew);
    }

    pub fn pending(&self) -> usize {
        self.places.iter().map(|place| place.pending).sum()
    }

    /// Whether any worker is there whose breaker would let somebody through.
    pub fn is_ready(&self, now: Micros) -> bool {
        self.places.iter().any(|place| place.up && place.breaker.admits(now))
    }

    pub fn glances(&mut self, now: Micros) -> Vec<Glance> {
        self.places.iter_mut().map(|place| place.glance(now)).collect()
    }

    /// Breakers that changed since the last call, and what to.
    pub fn take_changes(&mut self) -> Vec<(usize, Phase)> {
        std::mem::take(&mut self.changes)
    }

    fn on_breaker<T>(&mut self, worker: usize, act: impl FnOnce(&mut Breaker) -> T) -> T {
        let breaker = &mut self.places[worker].breaker;
        let before = breaker.phase();
        let done = act(breaker);
        if breaker.phase() != before {
            self.changes.push((worker, breaker.phase()));
        }
        done
    }
}

impl Place {
    fn glance(&mut self, now: Micros) -> Glance {
        self.busy.until(now, self.pending > 0);
        let barred = self.breaker.phase() == Phase::Open && !self.breaker.admits(now);
        let status = match self.pending {
            _ if !self.up || barred => Status::Unhealthy,
            0 => Status::Idle,
            _ => Status::Busy,
        };
        Glance {
            status,
            phase: self.breaker.phase(),
            pending: self.pending,
            utilisation: self.busy.share(),
            verdicts: self.verdicts,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BREAKER: BreakerConfig = BreakerConfig { failures: 2, open_for: Micros(100) };

    fn board(workers: usize, balancer: Balancer) -> Board {
        let mut board = Board::new(workers, balancer, BREAKER, Micros::ZERO);
        (0..workers).for_each(|worker| board.set_up(worker, true));
        board
    }

    fn take(board: &mut Board, among: &dyn Fn(usize) -> bool, now: Micros) -> Result<(usize, Ticket), Refusal> {
        board.take(&Want { sequences: 1, chain: &Chain::default(), among, dice: 0 }, now)
    }

    fn fail(board: &mut Board, worker: usize, now: Micros) {
        for _ in 0..2 {
            let (taken, ticket) = take(board, &|other| other == worker, now).unwrap();
            board.settle(taken, ticket, Verdict::Failure, now);
            board.give_back(taken, 1, now);
        }
    }

    #[test]
    fn refusals_say_what_is_wrong_and_for_how_long() {
        let mut board = board(3, Balancer::RoundRobin);
        let all = |_| true;
        assert_eq!(take(&mut board, &|_| false, Micros(0)).err(), Some(Refusal::Down));
        fail(&mut board, 0, Micros(0));
        fail(&mut board, 1, Micros(10));
        board.set_up(2, false);
        assert_eq!(take(&mut board, &all, Micros(20)).err(), Some(Refusal::Open { retry_after: Some(Micros(80)) }));
        assert_eq!(take(&mut board, &|worker| worker == 2, Micros(20)).err(), Some(Refusal::Down));
        let (probed, probe) = take(&mut board, &all, Micros(100)).unwrap();
        assert_eq!(probed, 0);
        assert_eq!(
            take(&mut board, &all, Micros(105)).err(),
            Some(Refusal::Open { retry_after: Some(Micros(5)) }),
            "one probe is enough"
        );
        board.settle(0, probe, Verdict::Success, Micros(106));
        assert_eq!(
            board.take_changes(),
            [(0, Phase::Open), (1, Phase::Open), (0, Phase::HalfOpen), (0, Phase::Closed)]
        );
    }

    #[test]
    fn a_worker_is_idle_busy_or_unhealthy() {
        let mut board = board(2, Balancer::LeastLoaded);
        let statuses = |board: &mut Board, now| board.glances(now).iter().map(|g| g.status).collect::<Vec<_>>();
        let (worker, ticket) = take(&mut board, &|_| true, Micros(0)).unwrap();
        assert_eq!((worker, statuses(&mut board, Micros(1))), (0, vec![Status::Busy, Status::Idle]));
        board.settle(worker, ticket, Verdict::Success, Micros(2));
        board.give_back(worker, 1, Micros(2));
        fail(&mut board, 1, Micros(2));
        assert_eq!(statuses(&mut board, Micros(3)), [Status::Idle, Status::Unhealthy]);
        board.renew(1);
        board.check_failed(0, Micros(4));
        assert_eq!(statuses(&mut board, Micros(4)), [Status::Idle, Status::Idle], "one check is no proof");
        board.check_failed(0, Micros(4));
        assert_eq!(statuses(&mut board, Micros(4)), [Status::Unhealthy, Status::Idle]);
        assert_eq!(board.glances(Micros(5))[1].verdicts, [0, 2, 0]);
        assert_eq!(
            statuses(&mut board, Micros(104))[0],
            Status::Unhealthy,
            "its time has come, but no check has passed"
        );
    }

    #[test]
    fn who_has_seen_a_beginning_gets_it_again_until_it_is_replaced() {
        let mut board = board(3, Balancer::PrefixAware);
        let chain = Chain::of_tokens("", &[7; 64]);
        let mut turn = || {
            let (worker, _) =
                board.take(&Want { sequences: 1, chain: &chain, among: &|_| true, dice: 0 }, Micros(0)).unwrap();
            board.give_back(worker, 1, Micros(0));
            if board.turn == 3 {
                board.renew(worker);
            }
            worker
        };
        assert_eq!([turn(), turn(), turn(), turn()], [0, 0, 0, 0]);
    }

    #[test]
    fn another_balancer_counts_from_the_next_choice_on_and_knows_what_the_one_before_saw() {
        let mut board = board(3, Balancer::PrefixAware);
        let chain = Chain::of_tokens("", &[7; 64]);
        let next = |board: &mut Board| {
            let want = Want { sequences: 1, chain: &chain, among: &|_| true, dice: 0 };
            let (worker, _) = board.take(&want, Micros(0)).unwrap();
            board.give_back(worker, 1, Micros(0));
            worker
        };
        assert_eq!([next(&mut board), next(&mut board)], [0, 0], "its cache");
        assert_eq!(board.set_balancer(Balancer::RoundRobin), Balancer::PrefixAware);
        assert_eq!([next(&mut board), next(&mut board), next(&mut board)], [2, 0, 1], "in turn");
        assert_eq!(board.set_balancer(Balancer::LeastLoaded), Balancer::RoundRobin);
        let want = Want { sequences: 5, chain: &chain, among: &|_| true, dice: 0 };
        let (loaded, _) = board.take(&want, Micros(0)).unwrap();
        let others = [next(&mut board), next(&mut board), next(&mut board)];
        assert!(!others.contains(&loaded), "{loaded} has more under way than {others:?}");
        assert_eq!(board.balancer(), Balancer::LeastLoaded);
    }

    proptest! {
        /// What is taken and given back leaves nothing behind, and nobody who is down or barred is chosen.
        #[test]
        fn loads_add_up(acts in proptest::collection::vec((0usize..4, 0usize..4, 1usize..5, 0u64..60), 0..100)) {
            for balancer in Balancer::ALL {
                let mut board = board(4, balancer);
                let (mut now, mut out) = (Micros(0), Vec::new());
                for &(act, which, sequences, wait) in &acts {
                    now = now + Micros(wait);
                    match act {
                        0 => board.set_up(which, wait % 2 == 0),
                        1 if which < out.len() => {
                            let (worker, ticket, sequences): (usize, Ticket, usize) = out.swap_remove(which);
                            let verdict = [Verdict::Success, Verdict::Failure, Verdict::Uncounted][wait as usize % 3];
                            board.settle(worker, ticket, verdict, now);
                            board.give_back(worker, sequences, now);
                        }
                        _ => {
                            let want = Want { sequences, chain: &Chain::default(), among: &|_| true, dice: wait };
                            let fit: Vec<bool> = board.places.iter().map(|p| p.up && p.breaker.admits(now)).collect();
                            match board.take(&want, now) {
                                Ok((worker, ticket)) => {
                                    prop_assert!(fit[worker]);
                                    out.push((worker, ticket, sequences));
                                }
                                Err(_) => prop_assert!(!fit.contains(&true)),
                            }
                        }
                    }
                    prop_assert_eq!(board.pending(), out.iter().map(|(_, _, n)| n).sum::<usize>());
                }
            }
        }
    }
}
