//! What stays with the loop while a step runs: the queue, the tuning, the orders for the core, the last known state. Pure.

use std::collections::HashMap;

use forebay_core::intake::{Batch, Intake, LaneOrder, Prices, Situation};
use forebay_core::kv::Edit;
use forebay_core::report::{Snapshot, Stage};
use forebay_core::request::{CLASSES, Event, Request, RequestError};
use forebay_core::scheduler::thermal::{Change as ThermalChange, Governor, Level, Reading, Thresholds};
use forebay_core::scheduler::{PolicyKind, StepLoad, StepPlan};
use forebay_core::units::{Micros, SeqId};

use super::control::{ChangeSet, Changed, Tuning};
use super::core::CoreView;
use super::predict::{Expected, Predictor, Scene};
use super::stats::{LiveSequence, QueueStats, ThermalStats};
use super::window::Rate;

/// Whether steps may start and requests may enter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Gate {
    #[default]
    Open,
    /// Requests are queued, no step starts.
    Paused,
    /// What runs may finish; nothing new enters.
    Draining,
}

/// What the core has to be told when it is home.
#[derive(Debug, Default)]
pub struct Orders {
    pub aborts: Vec<SeqId>,
    pub scheduler: Option<forebay_core::scheduler::Config>,
    pub thermal: Option<Level>,
}

/// The intake is itself the buffer of the loop's `select!`: a request that arrives during a step is queued, or refused, at
/// once. Only orders to the core wait for its return.
#[derive(Debug)]
pub struct Inbox {
    intake: Intake,
    gate: Gate,
    orders: Orders,
    /// As the core was when it last left or came home.
    last: CoreView,
    start: Tuning,
    tuning: Tuning,
    governor: Governor,
    celsius: Option<f64>,
    predictor: Predictor,
    /// How long the core has computed since the engine began.
    served: Micros,
    drained: Rate,
    arrived: Rate,
}

impl Inbox {
    pub fn new(tuning: Tuning, thresholds: Thresholds) -> Inbox {
        Inbox {
            intake: Intake::new(tuning.intake),
            gate: Gate::Open,
            orders: Orders::default(),
            last: CoreView::default(),
            start: tuning.clone(),
            tuning,
            governor: Governor::new(thresholds),
            celsius: None,
            predictor: Predictor::default(),
            served: Micros::ZERO,
            drained: Rate::default(),
            arrived: Rate::default(),
        }
    }

    /// Queues the whole group or none of it. Returns when its first token is expected, from now.
    pub fn submit(
        &mut self,
        group: Vec<Request>,
        now: Micros,
        p99_ttft: Option<Micros>,
    ) -> Result<Option<Micros>, RequestError> {
        if self.gate == Gate::Draining {
            return Err(RequestError::ShuttingDown);
        }
        let to_compute = self.predictor.to_compute(&group, &self.tuning);
        let first = group.first().zip(to_compute.first());
        let expected = first.and_then(|(first, own)| self.predict(first, *own, now, p99_ttft));
        let predicted = expected.map(|expected| expected.first_token);
        if let Some(first) = group.first() {
            unreachable_deadline(first, expected, now)?;
            self.unkept_promise(first, predicted)?;
        }
        let leader = group.first().map(|first| (first.id(), first.max_tokens() as usize));
        let count = group.len();
        self.predictor.arrived(group.iter().zip(to_compute.iter().copied()), now);
        let to_compute: HashMap<SeqId, usize> = group.iter().map(Request::id).zip(to_compute).collect();
        self.intake.push_group(group, now, |request| to_compute[&request.id()]).map_err(|full| {
            let retry_after_s = forebay_core::intake::retry_after(self.intake.len(), self.drained_per_s(now), 0.5);
            RequestError::QueueFull { capacity: full.capacity.requests, retry_after_s }
        })?;
        self.arrived.count(count, now);
        if let (Some((seq, max_tokens)), Some(expected)) = (leader, expected) {
            self.predictor.tell(seq, max_tokens, expected, now);
        }
        Ok(predicted)
    }

    fn predict(&self, request: &Request, to_compute: usize, now: Micros, p99_ttft: Option<Micros>) -> Option<Expected> {
        let situation = self.situation(now, p99_ttft);
        let scene = Scene { intake: &self.intake, situation: &situation, core: &self.last, tuning: &self.tuning };
        self.predictor.expected(request, to_compute, &scene)
    }

    /// Under the policy `slo`, if the operator wants it so, whoever cannot be served as promised is refused, and told when what
    /// is ahead of it will be done.
    fn unkept_promise(&self, request: &Request, predicted: Option<Micros>) -> Result<(), RequestError> {
        let scheduler = &self.tuning.scheduler;
        let refuses = scheduler.policy.kind == PolicyKind::Slo && scheduler.slo.refuses;
        let promise = scheduler.slo.promise(request.priority()).filter(|_| refuses);
        let (Some(promise), Some(predicted)) = (promise, predicted) else { return Ok(()) };
        if predicted <= promise.ttft {
            return Ok(());
        }
        let late = Micros(predicted.0 - promise.ttft.0);
        Err(RequestError::PromiseUnreachable {
            promised_ms: promise.ttft.as_millis(),
            predicted_ms: predicted.as_millis(),
            retry_after_s: late.as_secs_f64().ceil().clamp(1.0, 60.0) as u32,
        })
    }

    /// Takes a queued sequence out, or remembers to tell the core.
    pub fn abort(&mut self, seq: SeqId) {
        if !self.intake.cancel(seq) {
            self.orders.aborts.push(seq);
        }
    }

    pub fn pause(&mut self) -> bool {
        let changes = self.gate == Gate::Open;
        if changes {
            self.gate = Gate::Paused;
        }
        changes
    }

    pub fn resume(&mut self) -> bool {
        let changes = self.gate == Gate::Paused;
        if changes {
            self.gate = Gate::Open;
        }
        changes
    }

    /// Closes the door for good and hands out what was queued, to be refused. Ends a pause: what runs must finish.
    pub fn drain(&mut self) -> Vec<Request> {
        self.gate = Gate::Draining;
        self.intake.drain()
    }

    pub fn take_orders(&mut self) -> Orders {
        std::mem::take(&mut self.orders)
    }

    /// Another tuning, for the queue at once and for the core when it is home: all of the changes or none.
    pub fn change(&mut self, set: &ChangeSet) -> Result<Vec<Changed>, RequestError> {
        let (tuning, changed) = self.tuning.changed_by(&set.changes, &self.start)?;
        if tuning.scheduler != self.tuning.scheduler {
            self.orders.scheduler = Some(tuning.scheduler);
        }
        if tuning.intake != self.tuning.intake {
            self.intake.configure(tuning.intake);
        }
        self.tuning = tuning;
        if let Some(thresholds) = set.thermal {
            self.governor.set_thresholds(thresholds);
        }
        Ok(changed)
    }

    /// A reading of the sensor; what it changes is told to the core, and returned.
    pub fn temperature(&mut self, reading: Reading, now: Micros) -> Option<ThermalChange> {
        self.celsius = match reading {
            Reading::Celsius(degrees) => Some(degrees),
            Reading::Lost => None,
        };
        let change = self.governor.observe(reading, now)?;
        self.orders.thermal = Some(change.to);
        Some(change)
    }

    /// The operator's level, or the sensor's again. Returns the level before.
    pub fn force_thermal(&mut self, level: Option<Level>, now: Micros) -> Level {
        let before = self.governor.level();
        self.governor.force(level, now);
        self.orders.thermal = Some(self.governor.level());
        before
    }

    pub fn thermal_level(&self) -> Level {
        self.governor.level()
    }

    /// The next batch for the core's seats; `cached` says how many tokens of a prompt need no computing.
    pub fn release(
        &mut self,
        now: Micros,
        p99_ttft: Option<Micros>,
        cached: impl Fn(&Request) -> usize,
    ) -> Option<Batch> {
        if !self.may_step() {
            return None;
        }
        let batch = self.intake.release(&self.situation(now, p99_ttft), cached)?;
        self.drained.count(batch.released.len(), now);
        Some(batch)
    }

    fn situation(&self, now: Micros, p99_ttft: Option<Micros>) -> Situation {
        let prices = self.prices(now);
        let by_tokens = self.tuning.scheduler.max_num_batched_tokens.saturating_sub(self.last.backlog.decoding);
        Situation {
            now,
            seats_for: self.last.seats_for,
            seats: self.last.seats,
            idle: self.last.urgent == 0,
            decoding: self.last.backlog.decoding,
            prefill: self.last.backlog.prefill,
            step_tokens: prices.map_or(by_tokens, |prices| prices.step_tokens),
            served: self.served,
            order: order(self.tuning.scheduler.policy.kind),
            slo: self.tuning.scheduler.slo,
            p99_ttft,
            prices,
        }
    }

    /// The next step as it would be without anybody from the queue.
    fn prices(&self, now: Micros) -> Option<Prices> {
        let CoreView { backlog, cost, .. } = &self.last;
        // A step with a prompt can be predicted: everything below was measured.
        cost.predict(&(StepLoad::STEP + StepLoad::prefill(0, 1)))?;
        let costs = cost.coefficients();
        let decodes = costs.decode_token_us * backlog.decoding as f64;
        let decodes = decodes + costs.context_token_us * backlog.context_tokens as f64;
        let step_us = costs.step_us + decodes;
        let by_tokens = self.tuning.scheduler.max_num_batched_tokens.saturating_sub(backlog.decoding);
        // As the scheduler cuts prompts while some decode; its prediction adds a margin, which `token_us` stands for.
        let stall = self.last.stall_limit.filter(|_| backlog.decoding > 0);
        let by_time = stall.map(|stall| {
            ((stall.0 as f64 - step_us - costs.prefill_us) / costs.prefill_token_us.max(1e-3)).max(1.0) as usize
        });
        Some(Prices {
            step_us,
            token_us: costs.prefill_token_us,
            prompt_us: costs.prefill_us,
            step_tokens: by_time.map_or(by_tokens, |by_time| by_time.min(by_tokens)),
            prompts: backlog.prompts,
            tokens: backlog.prefill_tokens,
            arrivals_per_us: self.arrived.per_s(now) / 1e6,
        })
    }

    /// Requests that have waited for too long, with what their clients hear.
    pub fn expire(&mut self, now: Micros) -> Vec<(Request, RequestError)> {
        self.intake.expire(now)
    }

    /// The next time at which something happens without a command.
    pub fn wake_at(&self, now: Micros, p99_ttft: Option<Micros>) -> Option<Micros> {
        let queue = match self.may_step() {
            true => self.intake.wake_at(&self.situation(now, p99_ttft)),
            // A timer that is due changes nothing now, and would wake the loop again and again.
            false => self.intake.expires_at(),
        };
        queue.into_iter().chain(self.last.earliest_deadline).min()
    }

    pub fn generated(&mut self, seq: SeqId) {
        self.intake.generated(seq, 1);
    }

    /// Its deadline has ended it.
    pub fn expired(&mut self, seq: SeqId) {
        self.predictor.expired(seq);
        self.ended(seq);
    }

    pub fn ended(&mut self, seq: SeqId) {
        self.predictor.forget(seq);
        self.intake.ended(seq);
    }

    pub fn may_step(&self) -> bool {
        self.gate != Gate::Paused && self.governor.level() != Level::Emergency
    }

    pub fn is_paused(&self) -> bool {
        self.gate == Gate::Paused
    }

    pub fn is_draining(&self) -> bool {
        self.gate == Gate::Draining
    }

    /// The core is home, in this state.
    pub fn note(&mut self, core: CoreView) {
        self.last = core;
        self.predictor.noted();
    }

    /// The core leaves to compute `plan`.
    pub fn step_begins(&mut self, plan: &StepPlan, now: Micros) {
        self.predictor.step_begins(plan, &self.last, now);
    }

    /// The core came home from a step that took `elapsed` and brought `events`; this was done to its prefix cache meanwhile.
    pub fn step_ended(&mut self, events: &[(SeqId, Event)], edits: Vec<Edit>, elapsed: Micros) {
        self.served = self.served + elapsed;
        self.predictor.step_ended(events, &self.last, elapsed);
        self.predictor.mirror(edits);
    }

    /// There is nothing to compute.
    pub fn rests(&mut self) {
        self.predictor.rests();
    }

    pub fn drained_per_s(&self, now: Micros) -> f64 {
        self.drained.per_s(now)
    }

    /// The last known state of the core with today's queue.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            queued: self.intake.len(),
            paused: self.gate == Gate::Paused,
            draining: self.gate == Gate::Draining,
            ..self.last.snapshot.clone()
        }
    }

    /// As it was when it last left or came home.
    pub fn core(&self) -> &CoreView {
        &self.last
    }

    pub fn tuning(&self) -> (&Tuning, &Tuning) {
        (&self.tuning, &self.start)
    }

    pub fn thermal(&self) -> ThermalStats {
        ThermalStats {
            level: self.governor.level().name(),
            forced: self.governor.forced().is_some(),
            celsius: self.celsius,
        }
    }

    pub fn queue(&self, now: Micros, p99_ttft: Option<Micros>) -> QueueStats {
        let stats = self.intake.stats();
        QueueStats {
            depths: self.intake.depths(),
            gathering: self.intake.gathering(),
            prompt_tokens: self.intake.prompt_tokens(),
            timeout: self.intake.timeout(&self.situation(now, p99_ttft)),
            batches_formed: stats.batches_formed,
            requests_batched: stats.requests_batched,
            avg_batch_size: stats.avg_batch_size(),
            last_batches: stats.last.iter().map(batch).collect(),
            drained_per_s: self.drained_per_s(now),
        }
    }

    pub fn depths(&self) -> [usize; CLASSES] {
        self.intake.depths()
    }

    pub fn reset_stats(&mut self) {
        self.intake.reset_stats();
    }

    /// At most `most` live sequences, queued ones last.
    pub fn sequences(&self, now: Micros, most: usize) -> Vec<LiveSequence> {
        let age = move |origin: &forebay_core::request::Origin| now.since(origin.received);
        let seated = self.last.sequences.iter();
        let seated = seated.map(|view| LiveSequence { age: age(&view.origin), view: view.clone(), wait: None });
        let queued = self.intake.queued().map(move |queued| {
            let request = queued.request;
            LiveSequence {
                age: age(request.origin()),
                wait: Some(queued.wait),
                view: forebay_core::report::SequenceView {
                    seq: request.id(),
                    origin: request.origin().clone(),
                    priority: request.priority(),
                    stage: Stage::Queued,
                    deadline: request.deadline(),
                    prompt_tokens: request.prompt().len(),
                    max_tokens: request.max_tokens() as usize,
                    computed_tokens: 0,
                    to_compute: request.prompt().len(),
                    generated_tokens: 0,
                    blocks: 0,
                },
            }
        });
        seated.chain(queued).take(most).collect()
    }
}

/// Which request of a tenant and class leaves the queue first under a policy.
fn order(policy: PolicyKind) -> LaneOrder {
    match policy {
        PolicyKind::Fair | PolicyKind::ThroughputFirst => LaneOrder::Arrival,
        PolicyKind::LatencyFirst => LaneOrder::Shortest,
        PolicyKind::Slo => LaneOrder::Promise,
    }
}

fn batch(record: &forebay_core::intake::BatchRecord) -> super::stats::Batch {
    super::stats::Batch {
        id: record.id,
        at: record.at,
        size: record.size,
        tokens: record.tokens,
        max_priority: record.max_priority,
        strategy: record.strategy.name(),
        cause: record.cause.name(),
    }
}

/// A deadline that will pass before the last token is refused while the client can still go elsewhere.
fn unreachable_deadline(request: &Request, expected: Option<Expected>, now: Micros) -> Result<(), RequestError> {
    let last = expected.and_then(|expected| expected.last);
    let (Some(deadline), Some(last)) = (request.deadline(), last) else { return Ok(()) };
    if now + last.at_latest <= deadline {
        return Ok(());
    }
    let received = request.origin().received;
    Err(RequestError::DeadlineUnreachable {
        after_ms: deadline.since(received).as_millis(),
        predicted_ms: (now + last.at_latest).since(received).as_millis(),
    })
}
