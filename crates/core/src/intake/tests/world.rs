//! Random calls, and a plain account of what they did to an intake.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::strategy::Strategy;

use super::*;

/// Something that happens to an intake. Numbers that choose among live things wrap around.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Push { tenant: u8, priority: Priority, prompt: usize, max_tokens: i64, choices: usize, timeout_ms: Option<i64> },
    Cancel(usize),
    Advance(u64),
    Release { idle: bool },
    Generated(usize, usize),
    Ended(usize),
    Configure(usize),
    Drain,
}

fn push(tenants: u8) -> impl Strategy<Value = Op> {
    let sizes = (prop_oneof![1..40usize, 100..700usize], prop_oneof![1..50i64, 300..5_000i64]);
    let priority = prop::sample::select(Priority::ALL.to_vec());
    let timeout = prop_oneof![4 => Just(None), 1 => (1..400i64).prop_map(Some)];
    (0..tenants, priority, sizes, 1..4usize, timeout).prop_map(|(tenant, priority, sizes, choices, timeout_ms)| {
        let (prompt, max_tokens) = sizes;
        Op::Push { tenant, priority, prompt, max_tokens, choices, timeout_ms }
    })
}

/// Without changes of configuration.
pub(super) fn op(tenants: u8) -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => push(tenants),
        1 => (0..100usize).prop_map(Op::Cancel),
        4 => prop_oneof![0..2_000u64, 0..90_000u64, 0..3_000_000u64].prop_map(Op::Advance),
        6 => any::<bool>().prop_map(|idle| Op::Release { idle }),
        2 => (0..100usize, 1..200usize).prop_map(|(at, tokens)| Op::Generated(at, tokens)),
        5 => (0..100usize).prop_map(Op::Ended),
    ]
}

pub(super) fn op_or_configure() -> impl Strategy<Value = Op> {
    prop_oneof![12 => op(3), 2 => (0..CONFIGS).prop_map(Op::Configure), 1 => Just(Op::Drain)]
}

pub(super) const CONFIGS: usize = 15;

/// Every strategy, three times, the rest varied.
pub(super) fn config_number(number: usize) -> Config {
    config(|c| {
        c.flush.strategy = StrategyKind::ALL[number % StrategyKind::ALL.len()];
        c.flush.idle_release = !number.is_multiple_of(3);
        c.flush.priorities = !number.is_multiple_of(5);
        c.flush.bucketing = number.is_multiple_of(2);
        c.flush.max_batch_size = [3, 8, 32][number / 5];
        c.flush.queue_depth_high = 20;
        c.aging = Micros([7_000, 300_000, 1_000_000][number / 5]);
        c.capacity = Capacity { requests: 60 - number, tokens: 5_000 };
        c.queue_timeout = Micros::from_millis(10_000 * (1 + number as u64 % 3));
        c.fairness.max_seat_share = [0.1, 0.5, 1.0][number % 3];
    })
}

pub(super) const SEATS: usize = 6;

/// An intake, a twin that hears the same, and a plain account of what happened.
pub(super) struct World {
    pub intake: Intake,
    twin: Intake,
    pub now: Micros,
    served: Micros,
    next_seq: u64,
    p99_ttft: Option<Micros>,
    pub queued: BTreeMap<SeqId, Ask>,
    pub seated: Vec<SeqId>,
    /// Who left the queue, in that order.
    pub gone: Vec<SeqId>,
    /// Ids grow with arrivals.
    released: Vec<SeqId>,
    /// More prompts are seated than the next step can compute, of every class.
    pub full_step: bool,
}

impl World {
    pub fn new(config: Config) -> World {
        World {
            intake: Intake::new(config),
            twin: Intake::new(config),
            now: Micros::ZERO,
            served: Micros::ZERO,
            next_seq: 0,
            p99_ttft: None,
            queued: BTreeMap::new(),
            seated: Vec::new(),
            gone: Vec::new(),
            released: Vec::new(),
            full_step: false,
        }
    }

    pub fn situation(&self, idle: bool) -> Situation {
        Situation {
            now: self.now,
            seats_for: [SEATS - self.seated.len(); CLASSES],
            seats: SEATS,
            idle,
            step_tokens: 1_000_000,
            prefill: [if self.full_step { 2_000_000 } else { 0 }; CLASSES],
            served: self.now,
            p99_ttft: self.p99_ttft,
            ..Situation::default()
        }
    }

    /// The service clock as of the last release.
    pub fn intake_served(&self) -> Micros {
        self.served
    }

    pub fn group(&mut self, op: &Op) -> Vec<Ask> {
        let Op::Push { tenant, priority, prompt, max_tokens, choices, timeout_ms } = *op else { return Vec::new() };
        let ask = |seq| Ask {
            seq,
            tenant: format!("t{tenant}"),
            priority,
            prompt,
            max_tokens,
            received: self.now,
            timeout_ms,
        };
        let group: Vec<Ask> = (self.next_seq..self.next_seq + choices as u64).map(ask).collect();
        self.next_seq += choices as u64;
        group
    }

    pub fn push(&mut self, group: Vec<Ask>) -> bool {
        let tokens: usize = group.iter().map(|ask| ask.prompt).sum();
        let used: usize = self.queued.values().map(|ask| ask.prompt).sum();
        let requests: Vec<Request> = group.iter().map(Ask::build).collect();
        let class = group.iter().map(|ask| self.intake.config().class(ask.priority)).max().unwrap_or_default();
        let fits = self.intake.config().capacity.for_class(class).admits(self.queued.len(), used, group.len(), tokens);
        assert_eq!(self.intake.push_group(requests.clone(), self.now, whole), fits);
        assert_eq!(self.twin.push_group(requests, self.now, whole), fits);
        if fits.is_ok() {
            self.queued.extend(group.into_iter().map(|ask| (SeqId(ask.seq), ask)));
        }
        fits.is_ok()
    }

    /// It left the queue, as it came, and once: whoever left is not queued.
    fn left(&mut self, request: &Request) {
        let ask = self.queued.remove(&request.id()).expect("it was queued and had not left");
        assert_eq!(request, &ask.build(), "it is what was pushed");
        self.gone.push(request.id());
    }

    pub fn release(&mut self, idle: bool) -> Option<Batch> {
        let situation = self.situation(idle);
        self.served = self.now;
        let batch = self.intake.release(&situation, |_| 0);
        assert_eq!(batch, self.twin.release(&situation, |_| 0), "the same calls have the same results");
        let released = batch.iter().flat_map(|batch| &batch.released);
        for one in released {
            self.left(&one.request);
            self.seated.push(one.request.id());
            assert!(one.arrived <= one.flushed && one.flushed <= self.now);
            let later = self.released.iter().filter(|seq| **seq > one.request.id()).count();
            assert_eq!(one.passed_by_priority + one.passed_by_fairness, later);
            self.released.push(one.request.id());
        }
        if let Some(batch) = &batch {
            assert!((1..=self.intake.config().flush.max_batch_size).contains(&batch.released.len()));
            assert_eq!(batch.tokens, batch.released.iter().map(|one| one.request.prompt().len()).sum::<usize>());
            assert!(self.seated.len() <= SEATS);
        }
        batch
    }

    fn expire(&mut self) -> usize {
        let expired = self.intake.expire(self.now);
        assert_eq!(expired, self.twin.expire(self.now));
        for (request, error) in &expired {
            match error {
                RequestError::Timeout { .. } => assert!(request.is_overdue(self.now)),
                RequestError::BatchTimeout { .. } => assert!(!request.is_overdue(self.now)),
                other => panic!("{other:?}"),
            }
            self.left(request);
        }
        expired.len()
    }

    /// What a caller does when it wakes. Whether anything changed.
    fn wake(&mut self, idle: bool) -> bool {
        let gathering = self.intake.gathering();
        let expired = self.expire() > 0;
        expired || self.release(idle).is_some() || self.intake.gathering() != gathering
    }

    /// Goes from wake-up to wake-up: nothing happens just before one, something at each.
    pub fn advance(&mut self, by: u64, idle: bool) {
        let end = Micros(self.now.0 + by);
        while let Some(at) = self.intake.wake_at(&self.situation(idle)).filter(|at| *at <= end) {
            assert!(at >= self.now);
            if at.0 > self.now.0 + 1 {
                self.now = Micros(at.0 - 1);
                assert!(!self.wake(idle), "something happened before the wake-up at {at:?}");
                assert_eq!(self.intake.wake_at(&self.situation(idle)), Some(at));
            }
            self.now = at;
            assert!(self.wake(idle), "nothing happened at the wake-up at {at:?}");
        }
        self.now = end;
    }

    /// Time passes without a release, which the caller wants to watch.
    pub fn leap(&mut self, by: u64) {
        self.now = Micros(self.now.0 + by);
        self.expire();
    }

    pub fn gathering(&self) -> Vec<SeqId> {
        let gathers = self.intake.queued().filter(|queued| queued.wait == Wait::FlushTimer);
        gathers.map(|queued| queued.request.id()).collect()
    }

    pub fn generate(&mut self, at: usize, tokens: usize) {
        let seq = self.seated[at % self.seated.len()];
        self.intake.generated(seq, tokens);
        self.twin.generated(seq, tokens);
        self.p99_ttft = Some(Micros::from_millis(5 * tokens as u64));
    }

    pub fn end(&mut self, at: usize) {
        let seq = self.seated.remove(at % self.seated.len());
        self.intake.ended(seq);
        self.twin.ended(seq);
    }

    pub fn apply(&mut self, op: &Op) {
        match *op {
            Op::Push { .. } => {
                let group = self.group(op);
                self.push(group);
            }
            Op::Cancel(at) => {
                let seq = SeqId(at as u64 * self.next_seq.max(1) / 100);
                let known = self.queued.remove(&seq).is_some();
                assert_eq!((self.intake.cancel(seq), self.twin.cancel(seq)), (known, known));
                self.gone.extend(known.then_some(seq));
            }
            Op::Advance(by) => self.advance(by, by.is_multiple_of(2)),
            Op::Release { idle } => drop(self.release(idle)),
            // Of unknown sequences nothing follows.
            Op::Generated(at, tokens) if self.seated.is_empty() => self.intake.generated(SeqId(at as u64), tokens),
            Op::Ended(at) if self.seated.is_empty() => self.intake.ended(SeqId(at as u64)),
            Op::Generated(at, tokens) => self.generate(at, tokens),
            Op::Ended(at) => self.end(at),
            Op::Configure(number) => {
                self.intake.configure(config_number(number));
                self.twin.configure(config_number(number));
            }
            Op::Drain => {
                let drained = self.intake.drain();
                assert_eq!(drained, self.twin.drain());
                drained.iter().for_each(|request| self.left(request));
            }
        }
        self.check();
    }

    /// Pushed is queued or gone, and the counts agree.
    fn check(&self) {
        let ids: BTreeSet<SeqId> = self.intake.queued().map(|queued| queued.request.id()).collect();
        assert!(ids.iter().eq(self.queued.keys()));
        assert_eq!((self.intake.len(), self.intake.is_empty()), (ids.len(), ids.is_empty()));
        assert_eq!(self.intake.prompt_tokens(), self.queued.values().map(|ask| ask.prompt).sum::<usize>());
        let depth = |priority| self.queued.values().filter(|ask| ask.priority == priority).count();
        assert_eq!(self.intake.depths(), Priority::ALL.map(depth));
        assert_eq!(self.intake.gathering(), self.gathering().len());
        assert_eq!(self.intake.wake_at(&self.situation(false)).is_none(), ids.is_empty());
    }
}
