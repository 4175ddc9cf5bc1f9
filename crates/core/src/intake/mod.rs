//! The forebay: requests gather here until the scheduler has seats for them. Pure: time comes in as an argument, nothing
//! is logged, the same calls have the same results; the live engine and the simulator run the same code.
//!
//! ```text
//! push ──▶ gathering ── flush ──▶ flushed: lanes by tenant and class ── gate, seats ──▶ Batch
//!             ▲      strategy,        │   class (aged), fair share,
//!             │      idle, critical,  │   the policy's order: lanes.rs
//!       all or none  class's wait     ▼
//!       (limits.rs)  (strategy/)   stays flushed while no seat is free, the next step is full (gate.rs), or the strategy
//!                                  does not interrupt decodes yet (burst.rs); new arrivals gather behind it
//! ```
//! A request leaves once: in a batch, cancelled, expired or drained. What the room must not know: the engine's blocks and
//! steps; it hears of seats only, and how much each released sequence has generated.

mod batch;
mod bucket;
mod burst;
mod config;
mod fair;
mod gate;
mod lanes;
mod limits;
mod overtaken;
mod queue;
mod settings;
mod situation;
mod strategy;

use crate::request::{CLASSES, Priority, Request, RequestError};
use crate::units::{Micros, SeqId};

pub use batch::{Batch, BatchRecord, FlushCause, Released, Stats};
pub use bucket::Bucket;
pub use config::Config;
pub use fair::FairnessConfig;
pub use lanes::LaneOrder;
pub use limits::{Capacity, Full, retry_after};
pub use queue::{InLine, Queued};
pub use settings::settings;
pub use situation::{Prospect, Situation};
pub use strategy::{
    CostAware, Fixed, FlushConfig, FlushMetrics, FlushStrategy, Gathering, Immediate, Joining, LatencyAware, Pause,
    Prices, QueueDepth, Strategy, StrategyKind, strategy,
};

use burst::Burst;
use gate::StepGate;
use lanes::Order;
use queue::{Clocks, Queue, Terms};

/// The queue in front of the scheduler.
#[derive(Debug)]
pub struct Intake {
    config: Config,
    strategy: Strategy,
    queue: Queue,
    batches: u64,
    /// As of the last release.
    seats: usize,
    /// The service clock as of the last release.
    served: Micros,
    burst: Burst,
    stats: Stats,
}

impl Intake {
    pub fn new(config: Config) -> Intake {
        let queue = Queue::new(&config);
        let (strategy, burst, stats) = (strategy(&config.flush), Burst::default(), Stats::default());
        Intake { strategy, config, queue, batches: 0, seats: 0, served: Micros::ZERO, burst, stats }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes effect at once, also for what is queued. Nothing is lost: what exceeds a smaller capacity stays, and only
    /// newcomers are refused. Costs O(n log n).
    pub fn configure(&mut self, config: Config) {
        self.strategy = strategy(&config.flush);
        self.queue.configure(&config);
        self.config = config;
    }

    /// Queues all of the group, or none; see [`Capacity::for_class`]. Ids must be fresh. `to_compute` says how many tokens of a prompt must be computed, as far
    /// as that is known now.
    pub fn push_group(
        &mut self,
        group: Vec<Request>,
        now: Micros,
        to_compute: impl Fn(&Request) -> usize,
    ) -> Result<(), Full> {
        let tokens = group.iter().map(|request| request.prompt().len()).sum();
        let class = group.iter().map(|request| self.config.class(request.priority())).max().unwrap_or_default();
        self.config.capacity.for_class(class).admits(self.len(), self.prompt_tokens(), group.len(), tokens)?;
        for request in group {
            let to_compute = to_compute(&request);
            self.queue.push(request, to_compute, Clocks { now, served: self.served }, &self.config);
        }
        Ok(())
    }

    /// Takes one out; false if it is not here (any more).
    pub fn cancel(&mut self, seq: SeqId) -> bool {
        self.queue.cancel(seq)
    }

    /// Takes out whoever is past its deadline or has queued for `queue_timeout`, each with the error for its client.
    /// O(1) when nobody is. Belongs before [`Intake::release`], which does not look at deadlines.
    pub fn expire(&mut self, now: Micros) -> Vec<(Request, RequestError)> {
        self.queue.expire(now, &self.config)
    }

    /// Flushes what gathers if it is time, then gives seats to what is flushed: at most `max_batch_size` of them, no more than
    /// the next step can begin with, and none that would interrupt decodes before the strategy lets it. `cached` says how many
    /// tokens of a prompt need no computing. `None` if nothing was given a seat. More may be ready: ask again after a step.
    pub fn release(&mut self, situation: &Situation, cached: impl Fn(&Request) -> usize) -> Option<Batch> {
        (self.seats, self.served) = (situation.seats, self.served.max(situation.served));
        self.burst.follow(situation);
        let flush = self.flush_cause(situation).map(|cause| (cause, self.queue.flush(situation.now)));
        let mut gate = self.gate(situation);
        let terms = self.terms(situation);
        let taken = self.queue.take(&terms, &self.config, |next| gate.opens(&next, &cached));
        let max_priority = taken.iter().map(|(_, released)| released.request.priority()).min()?;
        if max_priority != Priority::Batch {
            self.burst.begin(self.queue.next_order());
        }
        let is_fresh = |first: Order| taken.iter().any(|(order, _)| *order >= first);
        let cause = flush.filter(|(_, first)| is_fresh(*first)).map_or(FlushCause::Leftover, |(cause, _)| cause);
        self.batches += 1;
        let released: Vec<Released> = taken.into_iter().map(|(_, released)| released).collect();
        let batch = Batch {
            id: self.batches,
            tokens: released.iter().map(|released| released.request.prompt().len()).sum(),
            released,
            strategy: self.config.flush.strategy,
            cause,
            max_priority,
        };
        self.stats.record(&batch, situation.now);
        Some(batch)
    }

    /// The next time at which [`Intake::release`] or [`Intake::expire`] may act without any new event; `now` if they
    /// would already. `None` when nothing is queued. Holds until the next call that changes something, or until the
    /// situation differs in more than its time. Meant for an engine at rest: one that steps asks after each step anyway.
    pub fn wake_at(&self, situation: &Situation) -> Option<Micros> {
        let expiry = self.queue.next_expiry(&self.config)?;
        if self.queue.takes(&situation.seats_for) || self.flush_cause(situation).is_some() {
            return Some(situation.now);
        }
        let timer = self.oldest_gathering().map(|oldest| after(oldest, self.timeout(situation)));
        let class = self.max_wait_end().map(|(end, _)| end);
        [timer, class].into_iter().flatten().fold(expiry, Micros::min).max(situation.now).into()
    }

    /// When [`Intake::expire`] would next take something out; all that matters while nothing may be released.
    pub fn expires_at(&self) -> Option<Micros> {
        self.queue.next_expiry(&self.config)
    }

    /// A released sequence generated this many more tokens.
    pub fn generated(&mut self, seq: SeqId, tokens: usize) {
        self.queue.generated(seq, tokens, &self.config);
    }

    /// A released sequence is over, its seat is free. To be told once for each, however it ended; of a sequence without
    /// a seat this says nothing.
    pub fn ended(&mut self, seq: SeqId) {
        self.queue.ended(seq);
    }

    /// Takes everything out, oldest first.
    pub fn drain(&mut self) -> Vec<Request> {
        self.queue.drain()
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn prompt_tokens(&self) -> usize {
        self.queue.prompt_tokens()
    }

    /// Queued requests by [`Priority::index`], as they asked to be treated.
    pub fn depths(&self) -> [usize; CLASSES] {
        self.queue.depths()
    }

    /// What is queued, in the order of arrival, as far as it keeps others waiting.
    pub fn in_line(&self) -> impl Iterator<Item = InLine> {
        self.queue.in_line()
    }

    /// Requests that are not flushed.
    pub fn gathering(&self) -> usize {
        self.queue.gathering()
    }

    /// How long a group may gather, says the strategy.
    pub fn timeout(&self, situation: &Situation) -> Micros {
        self.strategy.calculate_timeout(self.len(), &FlushMetrics { p99_ttft: situation.p99_ttft })
    }

    /// What a request of this priority that comes now would find, beside those that are in line.
    pub fn prospect(&self, priority: Priority, situation: &Situation) -> Prospect {
        let class = self.config.class(priority);
        let (now, gathering) = (situation.now, self.gathering() + 1);
        let metrics = FlushMetrics { p99_ttft: situation.p99_ttft };
        let timeout = self.strategy.calculate_timeout(self.len() + 1, &metrics);
        let own = after(now, self.config.max_wait(class));
        let timer = after(self.oldest_gathering().unwrap_or(now), timeout);
        let flush_at = self.max_wait_end().map_or(own, |(end, _)| end.min(own)).min(timer);
        let at_once = class == Priority::Critical || gathering >= self.config.flush.max_batch_size;
        Prospect {
            class,
            strategy: self.strategy,
            flush_in: if at_once { Micros::ZERO } else { flush_at.since(now) },
            under_way: self.burst.is_under_way(),
            quiet: self.burst.quiet(now),
            turns: self.queue.turns(situation.order),
            due_in: self.queue.due_in(situation.served, situation.order),
        }
    }

    /// Oldest first.
    pub fn queued(&self) -> impl Iterator<Item = Queued<'_>> {
        self.queue.iter(self.config.fairness.seat_cap(self.seats))
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Batch ids go on.
    pub fn reset_stats(&mut self) {
        self.stats = Stats::default();
    }

    /// Why the gathered group goes now, if it does.
    fn flush_cause(&self, situation: &Situation) -> Option<FlushCause> {
        let oldest = self.oldest_gathering()?;
        let group = Gathering {
            size: self.gathering(),
            tokens: self.queue.gathering_tokens(),
            waited: situation.now.since(oldest),
            timeout: self.timeout(situation),
        };
        let flush = &self.config.flush;
        if flush.idle_release && situation.idle && group.size >= flush.min_batch_size {
            return Some(FlushCause::Idle);
        }
        if self.queue.oldest_gathering(Priority::Critical).is_some() {
            return Some(FlushCause::Critical);
        }
        if let Some((_, class)) = self.max_wait_end().filter(|(end, _)| *end <= situation.now) {
            return Some(FlushCause::MaxWait(class));
        }
        let full = group.size >= flush.max_batch_size;
        let cause = if full { FlushCause::Size } else { FlushCause::Timer };
        self.strategy.should_flush(&group, self.len()).then_some(cause)
    }

    /// When a class's maximum wait ends next, and which.
    fn max_wait_end(&self) -> Option<(Micros, Priority)> {
        let end = |class: Priority| {
            let oldest = self.queue.oldest_gathering(class)?;
            Some((after(oldest, self.config.max_wait(class)), class))
        };
        Priority::ALL.into_iter().filter_map(end).min()
    }

    fn oldest_gathering(&self) -> Option<Micros> {
        Priority::ALL.into_iter().filter_map(|class| self.queue.oldest_gathering(class)).min()
    }

    fn terms(&self, situation: &Situation) -> Terms {
        Terms {
            now: situation.now,
            served: self.served,
            seats: situation.seats_for,
            most: self.config.flush.max_batch_size,
            cap: self.config.fairness.seat_cap(situation.seats),
            order: situation.order,
            door: self.burst.door().filter(|_| situation.decoding > 0 && self.strategy.closes_groups()),
            step_tokens: situation.step_tokens,
            slo: situation.slo,
            full_step: situation.prices.map_or(Micros::ZERO, |prices| prices.full_step()),
        }
    }

    fn gate(&self, situation: &Situation) -> StepGate {
        let pause = Pause {
            quiet: self.burst.quiet(situation.now),
            timeout: self.timeout(situation),
            queued: self.len(),
            tokens: self.prompt_tokens(),
            step_tokens: situation.step_tokens,
        };
        let undisturbed = situation.decoding > 0;
        StepGate {
            strategy: self.strategy,
            prices: situation.prices,
            interrupts: !undisturbed || self.burst.is_under_way() || self.strategy.interrupts(&pause),
            prefill: situation.prefill,
            step_tokens: situation.step_tokens.max(1),
        }
    }
}

/// `Micros + Micros` that stops at the end of time.
fn after(start: Micros, wait: Micros) -> Micros {
    Micros(start.0.saturating_add(wait.0))
}

#[cfg(test)]
mod tests;
