//! The forebay: requests gather here until they flow to the scheduler. Pure: time and the engine's state come in as
//! arguments, so a simulator runs the same code.
//!
//! ```text
//! push ─▶ gathering ─flush─▶ flushed ─release─▶ a batch for the free seats
//!            │ strategy/: timer, size        │ queue.rs: lanes by priority and tenant
//!            │ critical, longest waits,      │ class with aging, then fair.rs: who received least,
//!            │ an idle engine                │ then age; bucket.rs: the rest of the batch is alike
//! ```
//! How long can a request be passed over? By requests of its own tenant and of those with no smaller counter only if they
//! came less than `class × aging` after it (its class: 0 critical to 3 low), or, where buckets reorder requests of equal
//! class, less than its longest wait after it. After `class × aging` it competes as critical, and the oldest goes first.

mod bucket;
mod config;
mod fair;
mod limits;
mod queue;
mod strategy;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use crate::report::Wait;
use crate::request::{Priority, Request, RequestError};
use crate::units::{Micros, SeqId};

pub use config::{Config, FairnessConfig, FlushConfig};
pub use limits::{Capacity, Full, retry_after};
pub use strategy::{FlushMetrics, FlushStrategy, Gathering, StrategyKind};

use bucket::Bucket;
use fair::Fairness;
use queue::{Item, LaneId, Queue};

/// What the queue has to know of the engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Situation {
    pub now: Micros,
    pub free_seats: usize,
    /// All of them.
    pub seats: usize,
    /// Nothing is live in the engine.
    pub idle: bool,
    pub p99_ttft: Option<Micros>,
}

/// What made a group flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushCause {
    /// The engine had nothing to do.
    Idle,
    /// A critical request came.
    Critical,
    /// One had waited as long as its priority may.
    MaxWait(Priority),
    /// The strategy: large enough, or its timer.
    Size,
    Timer,
    /// Flushed before, and only now was there a seat.
    Leftover,
}

impl FlushCause {
    pub const fn name(self) -> &'static str {
        match self {
            FlushCause::Idle => "idle",
            FlushCause::Critical => "critical",
            FlushCause::MaxWait(_) => "max_wait",
            FlushCause::Size => "size",
            FlushCause::Timer => "timer",
            FlushCause::Leftover => "leftover",
        }
    }
}

/// What flows to the scheduler at once.
#[derive(Debug)]
pub struct Batch {
    pub id: u64,
    /// In the order in which they took their seats.
    pub released: Vec<Released>,
    pub strategy: StrategyKind,
    pub cause: FlushCause,
    /// Of all its prompts.
    pub tokens: usize,
    pub max_priority: Priority,
}

#[derive(Debug)]
pub struct Released {
    pub request: Request,
    pub arrived: Micros,
    pub flushed: Micros,
    /// Since it was flushed: seats that went to higher classes, and to other tenants of its own.
    pub passed_by_priority: usize,
    pub passed_by_fairness: usize,
}

/// A batch that flowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRecord {
    pub id: u64,
    pub at: Micros,
    pub size: usize,
    pub tokens: usize,
    pub max_priority: Priority,
    pub strategy: StrategyKind,
    pub cause: FlushCause,
}

#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub batches_formed: u64,
    pub requests_batched: u64,
    /// Oldest first.
    pub last: VecDeque<BatchRecord>,
}

impl Stats {
    pub fn avg_batch_size(&self) -> f64 {
        if self.batches_formed == 0 { 0.0 } else { self.requests_batched as f64 / self.batches_formed as f64 }
    }
}

/// A queued request as the operator sees it.
pub struct Queued<'a> {
    pub request: &'a Request,
    pub arrived: Micros,
    pub wait: Wait,
}

/// Batches that are remembered.
const LAST_BATCHES: usize = 32;
/// How far into a lane the next request of a bucket is looked for.
const BUCKET_REACH: usize = 64;

/// A bounded queue of requests and the gate in front of the scheduler.
#[derive(Debug)]
pub struct Intake {
    config: Config,
    strategy: Box<dyn FlushStrategy>,
    queue: Queue,
    fairness: Fairness,
    /// Released and not ended: whose they are.
    seated: BTreeMap<SeqId, Arc<str>>,
    /// Seats given out, by class.
    seated_by_class: [u64; 4],
    /// What flushed the group that waits for seats.
    cause: Option<FlushCause>,
    next_batch: u64,
    stats: Stats,
}

impl Intake {
    pub fn new(config: Config) -> Intake {
        Intake {
            strategy: strategy::selected(&config.flush),
            config,
            queue: Queue::default(),
            fairness: Fairness::default(),
            seated: BTreeMap::new(),
            seated_by_class: [0; 4],
            cause: None,
            next_batch: 0,
            stats: Stats::default(),
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Another configuration. Nothing that is queued is lost; a smaller capacity only refuses newcomers.
    pub fn configure(&mut self, config: Config) {
        self.strategy = strategy::selected(&config.flush);
        self.config = config;
    }

    /// Queues all of the group, or none.
    pub fn push_group(&mut self, group: Vec<Request>, now: Micros) -> Result<(), Full> {
        let tokens = group.iter().map(|request| request.prompt().len()).sum();
        self.config.capacity.admits(self.queue.len(), self.queue.tokens(), group.len(), tokens)?;
        for request in group {
            self.fairness.queued(&request.origin().tenant);
            self.queue.push(request, now);
        }
        Ok(())
    }

    /// Takes one out; false if it is not here.
    pub fn cancel(&mut self, seq: SeqId) -> bool {
        self.take(seq).is_some()
    }

    fn take(&mut self, seq: SeqId) -> Option<Item> {
        let item = self.queue.remove(seq)?;
        self.fairness.left(&item.request.origin().tenant);
        Some(item)
    }

    /// Takes out what has waited for too long, with what its client hears: its deadline has passed, or no batch could take
    /// it within the queue's own limit.
    pub fn expire(&mut self, now: Micros) -> Vec<(Request, RequestError)> {
        let mut expired = Vec::new();
        while let Some((_, seq)) = self.queue.next_deadline().filter(|(deadline, _)| *deadline <= now) {
            let Some(Item { request, .. }) = self.take(seq) else { break };
            let error = request.timed_out();
            expired.push((request, error));
        }
        let limit = self.config.queue_timeout;
        while let Some((seq, arrived)) = self.queue.oldest().filter(|(_, arrived)| now.since(*arrived) >= limit) {
            let Some(Item { request, .. }) = self.take(seq) else { break };
            expired.push((request, RequestError::BatchTimeout { waited_ms: now.since(arrived).as_millis() }));
        }
        expired
    }

    /// The next batch: opens the gate if it is time, and fills at most the free seats with what has flowed.
    pub fn release(&mut self, situation: &Situation) -> Option<Batch> {
        if let Some(cause) = self.gate(situation) {
            let (by_class, fairness) = (self.seated_by_class, &self.fairness);
            self.queue.flush(situation.now, by_class, |tenant| fairness.seated_ever(tenant));
            self.cause = Some(cause);
        }
        let seats = situation.free_seats.min(self.config.flush.max_batch_size);
        let released = self.fill(seats, situation);
        if released.is_empty() {
            return None;
        }
        let cause = self.cause.take().unwrap_or(FlushCause::Leftover);
        Some(self.batch(released, cause, situation.now))
    }

    /// Why what gathers should flow now, if it should.
    fn gate(&self, situation: &Situation) -> Option<FlushCause> {
        let batch = self.gathering_now(situation);
        if batch.size == 0 {
            return None;
        }
        let flush = &self.config.flush;
        if flush.idle_release && situation.idle && batch.size >= flush.min_batch_size {
            return Some(FlushCause::Idle);
        }
        if flush.priorities && self.queue.oldest_gathering(Priority::Critical).is_some() {
            return Some(FlushCause::Critical);
        }
        let waited = |priority| situation.now.since(self.queue.oldest_gathering(priority).unwrap_or(situation.now));
        let due = |priority: &Priority| {
            self.queue.oldest_gathering(*priority).is_some() && waited(*priority) >= self.config.max_wait(*priority)
        };
        if let Some(priority) = Priority::ALL.into_iter().find(due) {
            return Some(FlushCause::MaxWait(priority));
        }
        let timed = batch.timeout > Micros::ZERO && batch.waited >= batch.timeout;
        let cause = if timed { FlushCause::Timer } else { FlushCause::Size };
        self.strategy.should_flush(&batch, self.queue.len()).then_some(cause)
    }

    fn gathering_now(&self, situation: &Situation) -> Gathering {
        let oldest = Priority::ALL.iter().filter_map(|priority| self.queue.oldest_gathering(*priority)).min();
        Gathering {
            size: self.queue.gathering(),
            tokens: self.queue.gathering_tokens(),
            waited: situation.now.since(oldest.unwrap_or(situation.now)),
            timeout: self.timeout(situation),
        }
    }

    /// What the strategy lets a group wait now.
    pub fn timeout(&self, situation: &Situation) -> Micros {
        self.strategy.calculate_timeout(self.queue.len(), &FlushMetrics { p99_ttft: situation.p99_ttft })
    }

    /// Gives seats to flushed requests, best first.
    fn fill(&mut self, seats: usize, situation: &Situation) -> Vec<Released> {
        let mut released = Vec::new();
        if seats == 0 {
            return released;
        }
        let mut contest = Contest::new(self.queue.heads().map(|head| self.rank(head, situation.now)));
        let mut bucket = None;
        while released.len() < seats {
            let capped = |lane: &LaneId| self.fairness.at_cap(&lane.1, situation.seats, &self.config.fairness);
            let counter = |lane: &LaneId| self.fairness.counter(&lane.1);
            let Some(lane) = contest.next(capped, counter) else { break };
            let Some(seq) = self.choose(&lane, bucket, situation.now) else { continue };
            let Some(seated) = self.seat(seq, situation.now) else { continue };
            bucket = bucket.or(self.config.flush.bucketing.then(|| Bucket::of(seated.request.estimated_tokens())));
            released.push(seated);
            if let Some((number, item)) = self.queue.head(&lane) {
                contest.back(self.rank((&lane, number, item), situation.now));
            }
        }
        released
    }

    fn rank(&self, (lane, number, item): (&LaneId, u64, &Item), now: Micros) -> Rank {
        Rank {
            class: self.config.class(lane.0, now.since(item.arrived)),
            counter: self.fairness.counter(&lane.1),
            number,
            lane: lane.clone(),
        }
    }

    /// The lane's head, or one of its class that is alike those already chosen; never past one that is overdue.
    fn choose(&self, lane: &LaneId, bucket: Option<Bucket>, now: Micros) -> Option<SeqId> {
        let (_, head) = self.queue.head(lane)?;
        let overdue = now.since(head.arrived) >= self.config.max_wait(lane.0);
        let class = self.config.class(lane.0, now.since(head.arrived));
        let equal = |item: &Item| self.config.class(lane.0, now.since(item.arrived)) == class;
        let alike = bucket.filter(|_| !overdue).and_then(|bucket| self.queue.alike(lane, BUCKET_REACH, bucket, equal));
        Some(alike.unwrap_or(head.request.id()))
    }

    fn seat(&mut self, seq: SeqId, now: Micros) -> Option<Released> {
        let item = self.queue.remove(seq)?;
        let (passed_by_priority, passed_by_fairness) = self.passed(&item, now);
        let tenant = item.request.origin().tenant.clone();
        self.seated_by_class[self.config.class(item.request.priority(), now.since(item.arrived))] += 1;
        self.fairness.seated(&tenant, item.request.prompt().len(), &self.config.fairness);
        self.seated.insert(seq, tenant);
        Some(Released {
            flushed: item.flushed.unwrap_or(now),
            arrived: item.arrived,
            request: item.request,
            passed_by_priority,
            passed_by_fairness,
        })
    }

    /// Seats that went, since the item was flushed, to higher classes and to other tenants of its own.
    fn passed(&self, item: &Item, now: Micros) -> (usize, usize) {
        let class = self.config.class(item.request.priority(), now.since(item.arrived));
        let since = |class: usize| self.seated_by_class[class].saturating_sub(item.before.by_class[class]);
        let own = self.fairness.seated_ever(&item.request.origin().tenant).saturating_sub(item.before.own_tenant);
        let higher: u64 = (0..class).map(since).sum();
        (higher as usize, since(class).saturating_sub(own) as usize)
    }

    fn batch(&mut self, released: Vec<Released>, cause: FlushCause, now: Micros) -> Batch {
        let id = self.next_batch;
        self.next_batch += 1;
        let tokens = released.iter().map(|released| released.request.prompt().len()).sum();
        let max_priority = released.iter().map(|released| released.request.priority()).min().unwrap_or_default();
        let (size, strategy) = (released.len(), self.config.flush.strategy);
        self.stats.batches_formed += 1;
        self.stats.requests_batched += size as u64;
        if self.stats.last.len() == LAST_BATCHES {
            self.stats.last.pop_front();
        }
        self.stats.last.push_back(BatchRecord { id, at: now, size, tokens, max_priority, strategy, cause });
        Batch { id, released, strategy, cause, tokens, max_priority }
    }

    /// When [`Intake::release`] or [`Intake::expire`] would do something next if nothing else happens; `None` if never.
    pub fn wake_at(&self, situation: &Situation) -> Option<Micros> {
        let flush = if self.gate(situation).is_some() { Some(situation.now) } else { self.flush_at(situation) };
        let seats = situation.free_seats > 0 && self.queue.heads().next().is_some();
        [self.expires_at(), flush, seats.then_some(situation.now)].into_iter().flatten().min()
    }

    /// When [`Intake::expire`] would take something out; all that matters while nothing may be released.
    pub fn expires_at(&self) -> Option<Micros> {
        let deadline = self.queue.next_deadline().map(|(deadline, _)| deadline);
        let oldest = self.queue.oldest().map(|(_, arrived)| arrived + self.config.queue_timeout);
        deadline.into_iter().chain(oldest).min()
    }

    /// When a timer will open the gate.
    fn flush_at(&self, situation: &Situation) -> Option<Micros> {
        let timeout = self.timeout(situation);
        let of = |priority: Priority| {
            let oldest = self.queue.oldest_gathering(priority)?;
            // A strategy without a timer waits for nothing but its size.
            let timer = if timeout > Micros::ZERO { timeout } else { Micros(u64::MAX / 2) };
            Some(oldest + self.config.max_wait(priority).min(timer))
        };
        Priority::ALL.into_iter().filter_map(of).min()
    }

    /// A released sequence has produced so many tokens.
    pub fn generated(&mut self, seq: SeqId, tokens: usize) {
        if let Some(tenant) = self.seated.get(&seq) {
            self.fairness.generated(tenant, tokens, &self.config.fairness);
        }
    }

    /// A released sequence has ended: its seat is free. Others are ignored.
    pub fn ended(&mut self, seq: SeqId) {
        if let Some(tenant) = self.seated.remove(&seq) {
            self.fairness.stood_up(&tenant);
        }
    }

    /// Takes everything out.
    pub fn drain(&mut self) -> Vec<Request> {
        let all: Vec<SeqId> = self.queue.items().map(|item| item.request.id()).collect();
        all.into_iter().filter_map(|seq| self.take(seq)).map(|item| item.request).collect()
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.len() == 0
    }

    /// Of all that are queued.
    pub fn prompt_tokens(&self) -> usize {
        self.queue.tokens()
    }

    /// By priority, highest first.
    pub fn depths(&self) -> [usize; 4] {
        self.queue.depths()
    }

    /// Requests that no flush has reached yet.
    pub fn gathering(&self) -> usize {
        self.queue.gathering()
    }

    /// Everything queued, by priority, tenant and age, and what it waits for.
    pub fn queued(&self, now: Micros) -> impl Iterator<Item = Queued<'_>> {
        self.queue.items().map(move |item| Queued {
            request: &item.request,
            arrived: item.arrived,
            wait: match (item.flushed, self.passed(item, now)) {
                (None, _) => Wait::FlushTimer,
                (Some(_), (1.., _)) => Wait::LowerPriority,
                (Some(_), (0, 1..)) => Wait::FairShare,
                (Some(_), (0, 0)) => Wait::Seats,
            },
        })
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    pub fn reset_stats(&mut self) {
        self.stats = Stats::default();
    }
}

/// A lane's claim to the next seat; the smallest wins.
#[derive(Clone, Debug, PartialEq)]
struct Rank {
    class: usize,
    counter: f64,
    number: u64,
    lane: LaneId,
}

impl Eq for Rank {}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Rank) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Rank) -> std::cmp::Ordering {
        let by_counter = || self.counter.total_cmp(&other.counter);
        // Numbers are unique, so that equal ranks are the same request.
        self.class.cmp(&other.class).then_with(by_counter).then(self.number.cmp(&other.number))
    }
}

/// Who gets the next seat, lane against lane.
struct Contest {
    best: BinaryHeap<Reverse<Rank>>,
}

impl Contest {
    fn new(ranks: impl Iterator<Item = Rank>) -> Contest {
        Contest { best: ranks.map(Reverse).collect() }
    }

    fn back(&mut self, rank: Rank) {
        self.best.push(Reverse(rank));
    }

    /// The winner's lane, taken out. A tenant at its cap is passed over for others of the same class; when there are none,
    /// a seat is not left empty for principle's sake. Counters grew since a lane entered: it re-enters with today's.
    fn next(&mut self, capped: impl Fn(&LaneId) -> bool, counter: impl Fn(&LaneId) -> f64) -> Option<LaneId> {
        let mut passed_over: Vec<Rank> = Vec::new();
        let winner = loop {
            let Some(Reverse(rank)) = self.best.pop() else { break None };
            let now = counter(&rank.lane);
            if now != rank.counter {
                self.back(Rank { counter: now, ..rank });
                continue;
            }
            if passed_over.first().is_some_and(|first| first.class < rank.class) {
                self.back(rank);
                break None;
            }
            if !capped(&rank.lane) {
                break Some(rank.lane);
            }
            passed_over.push(rank);
        };
        let mut passed_over = passed_over.into_iter();
        let winner = winner.or_else(|| passed_over.next().map(|rank| rank.lane));
        passed_over.for_each(|rank| self.back(rank));
        winner
    }
}

#[cfg(test)]
mod tests;
