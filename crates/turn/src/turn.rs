//! One turn of the engine, pure: the queue and its orders meet the core between two steps.
//!
//! The live loop (`forebay-engine`), the simulator and the replay of a decision log (`forebay-sim`) drive the same [`Turn`].
//! They differ in who says what time it is and who computes the step.

use std::collections::HashMap;

use forebay_core::intake::{Batch, FlushCause, Released};
use forebay_core::report::{Decision, StepReport};
use forebay_core::request::{Event, Request, RequestError};
use forebay_core::scheduler::StepPlan;
use forebay_core::scheduler::thermal::{Change as ThermalChange, Level, Reading, Thresholds};
use forebay_core::units::{Micros, SeqId};

use super::control::{ChangeSet, Changed, Tuning};
use super::core::Core;
use super::executor::Executor;
use super::inbox::Inbox;
use super::window::{SAMPLES, Window};

/// One engine but for its core: the queue, the orders that wait for the core, and what the next release depends on.
///
/// The [`Core`] is not inside. It moves by value into the step, and its owner lends it to the methods that need it at home;
/// so whatever is called while a step runs cannot touch what the step computes with.
///
/// Methods come in three kinds. None of them blocks, reads a clock or sends anything; what they return is for the driver to
/// send, trace and count.
///
/// - `on_*` take what happened: a command ([`Turn::on_submit`], [`Turn::on_abort`], [`Turn::on_change`], …), the core at home
///   between two steps ([`Turn::on_home`]), the beginning of a step ([`Turn::on_step`]) and its end ([`Turn::on_report`]).
/// - `next_*` say what to do: what to compute ([`Turn::next_plan`]), when to look again without a command
///   ([`Turn::next_wake`]).
/// - `take_*` give effects away: the last step's report ([`Turn::take_report`]), for the clients to hear.
///
/// ```text
///   ┌─▶ on_home(&mut core) ─▶ next_plan(&mut core) ─┬─ Some ─▶ on_step(&plan)
///   │                                               │             │  the core is away: core.execute(plan)
///   ├◀─ until next_wake, or a command ◀──────── None┘             ▼
///   └◀────────────────────────────────────────────── on_report(&mut core, report, elapsed)
/// ```
/// A driver goes around this circle. Commands may come between any two of its calls, also while the core is away.
/// [`Turn::take_report`] is called after each `on_report` and before the next: at once, or while the next step runs, so that
/// clients hear of a step beside the one after it; and, where nothing is left to compute, before the driver sleeps.
#[derive(Debug)]
pub struct Turn {
    inbox: Inbox,
    /// When each sequence came that has had no token yet.
    awaited: HashMap<SeqId, Micros>,
    /// The newest times to a first token: what a release aims at, and what statistics show.
    ttft: Window,
    /// What the last step brought, until it is taken.
    undelivered: Option<StepReport>,
}

/// What happened between two steps. The fields are in the order in which clients hear of them.
#[derive(Debug, Default)]
pub struct Settlement {
    /// What the last step brought, if it was not taken and some sequence's deadline has passed since: what that sequence had
    /// in time comes before its end.
    pub report: Option<StepReport>,
    /// Sequences that ended by their deadline or the queue's, and why.
    pub ended: Vec<(SeqId, RequestError)>,
    /// The batch that left the queue for the scheduler.
    pub release: Option<Release>,
}

/// A batch that left the queue.
#[derive(Debug)]
pub struct Release {
    /// [`Batch::id`].
    pub batch: u64,
    pub cause: FlushCause,
    /// In the order in which they were handed to the scheduler.
    pub sequences: Vec<ReleasedSequence>,
}

/// A sequence of a [`Release`].
#[derive(Debug)]
pub struct ReleasedSequence {
    pub seq: SeqId,
    /// From its arrival in the queue until now.
    pub waited: Micros,
    /// The same in detail, for its trace.
    pub decision: Decision,
}

impl Turn {
    /// An open engine with an empty queue; `tuning` is also what memory was sized for.
    pub fn new(tuning: Tuning, thresholds: Thresholds) -> Turn {
        Turn {
            inbox: Inbox::new(tuning, thresholds),
            awaited: HashMap::new(),
            ttft: Window::new(SAMPLES),
            undelivered: None,
        }
    }

    /// The queue and the core's last known state, for whoever only reads.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// The newest times to a first token.
    pub fn ttft(&self) -> &Window {
        &self.ttft
    }

    /// Queues the whole group or none of it. Returns how long from now its first token is expected to take, where that is
    /// known.
    pub fn on_submit(&mut self, group: Vec<Request>, now: Micros) -> Result<Option<Micros>, RequestError> {
        let ids: Vec<SeqId> = group.iter().map(Request::id).collect();
        let predicted = self.inbox.submit(group, now, self.ttft.recent_p99())?;
        self.awaited.extend(ids.into_iter().map(|seq| (seq, now)));
        Ok(predicted)
    }

    /// Ends a sequence wherever it is: at once where it is queued, else when the core is home. Unknown ones are ignored.
    pub fn on_abort(&mut self, seq: SeqId) {
        self.inbox.abort(seq);
        self.end(seq);
    }

    /// No step starts until [`Turn::on_resume`]; requests are still queued.
    pub fn on_pause(&mut self) {
        self.inbox.pause();
    }

    pub fn on_resume(&mut self) {
        self.inbox.resume();
    }

    /// Refuses requests from now on, and hands out those that were queued, to be refused as well. Running ones finish.
    pub fn on_drain(&mut self) -> Vec<SeqId> {
        let queued: Vec<SeqId> = self.inbox.drain().iter().map(Request::id).collect();
        queued.iter().for_each(|&seq| self.end(seq));
        queued
    }

    /// Another strategy, policy or limit: all of the changes or none. The queue obeys at once, the core when it is home.
    pub fn on_change(&mut self, set: &ChangeSet) -> Result<Vec<Changed>, RequestError> {
        self.inbox.change(set)
    }

    /// What the sensor says. Returns the change of level, if it makes one.
    pub fn on_temperature(&mut self, reading: Reading, now: Micros) -> Option<ThermalChange> {
        self.inbox.temperature(reading, now)
    }

    /// The operator's level instead of the sensor's, or with `None` the sensor's again. Returns the level before.
    pub fn on_thermal_order(&mut self, level: Option<Level>, now: Micros) -> Level {
        self.inbox.force_thermal(level, now)
    }

    /// Statistics begin anew, and with them what a release knows about times to a first token.
    pub fn on_reset_stats(&mut self) {
        self.inbox.reset_stats();
        self.ttft.clear();
    }

    /// The core leaves to compute `plan`.
    pub fn on_step(&mut self, plan: &StepPlan, now: Micros) {
        self.inbox.step_begins(plan, now);
    }

    /// The core is back after `elapsed`. Accounts for what the next release depends on: seats that are free, and tokens that
    /// their owners have had. The report waits for [`Turn::take_report`].
    pub fn on_report<E: Executor>(&mut self, core: &mut Core<E>, report: StepReport, elapsed: Micros) {
        debug_assert!(self.undelivered.is_none(), "each report is taken before the next one comes");
        core.observe(elapsed);
        self.inbox.step_ended(&report.events, core.cache_edits(), elapsed);
        for (seq, event) in &report.events {
            match event {
                Event::Token(_) => self.inbox.generated(*seq),
                Event::Finished(_) | Event::Failed(_) => self.inbox.ended(*seq),
                Event::Admitted { .. } | Event::Embedded(_) => {}
            }
        }
        self.undelivered = Some(report);
    }

    /// What the last step brought, if it was not taken yet; the clients hear of it at `now`.
    pub fn take_report(&mut self, now: Micros) -> Option<StepReport> {
        let report = self.undelivered.take()?;
        for (seq, event) in &report.events {
            if let Event::Admitted { .. } = event {
                continue;
            }
            let came = self.awaited.remove(seq);
            if let (Some(came), Event::Token(_) | Event::Embedded(_)) = (came, event) {
                self.ttft.push(now.since(came));
            }
        }
        Some(report)
    }

    /// The core is home: it obeys the orders that waited for it, overdue sequences end, and a batch takes the free seats if
    /// the strategy releases one.
    pub fn on_home<E: Executor>(&mut self, core: &mut Core<E>, now: Micros) -> Settlement {
        let orders = self.inbox.take_orders();
        orders.aborts.into_iter().for_each(|seq| core.abort(seq));
        orders.scheduler.into_iter().for_each(|config| core.configure(config));
        orders.thermal.into_iter().for_each(|level| core.set_thermal(level));
        let mut settlement = Settlement { ended: core.expire(now), ..Settlement::default() };
        if !settlement.ended.is_empty() {
            settlement.report = self.take_report(now);
        }
        let expired = self.inbox.expire(now);
        settlement.ended.extend(expired.into_iter().map(|(request, error)| (request.id(), error)));
        for (seq, _) in &settlement.ended {
            self.inbox.expired(*seq);
            self.awaited.remove(seq);
        }
        self.inbox.note(core.view());
        if let Some(batch) = self.inbox.release(now, self.ttft.recent_p99(), |request| core.cached_tokens(request)) {
            let (release, requests) = seated(batch, now);
            core.admit(requests);
            self.inbox.note(core.view());
            settlement.release = Some(release);
        }
        settlement
    }

    /// The next step; `None` while there is nothing to compute, or while none may start.
    pub fn next_plan<E: Executor>(&mut self, core: &mut Core<E>, now: Micros) -> Option<StepPlan> {
        let plan = if self.inbox.may_step() { core.plan(now) } else { None };
        if plan.is_none() {
            self.inbox.rests();
        }
        plan
    }

    /// When something happens without a command or a step, as of the last settlement.
    pub fn next_wake(&self, now: Micros) -> Option<Micros> {
        self.inbox.wake_at(now, self.ttft.recent_p99())
    }

    fn end(&mut self, seq: SeqId) {
        self.awaited.remove(&seq);
        self.inbox.ended(seq);
    }
}

/// A batch as it is told, and its requests for the scheduler.
fn seated(batch: Batch, now: Micros) -> (Release, Vec<Request>) {
    let size = batch.released.len();
    let mut requests = Vec::with_capacity(size);
    let mut sequences = Vec::with_capacity(size);
    for released in batch.released {
        let Released { request, arrived, flushed, passed_by_priority, passed_by_fairness, overtaken_by } = released;
        let decision = Decision::Released {
            batch: batch.id,
            size,
            strategy: batch.strategy.name(),
            cause: batch.cause.name(),
            gathered: flushed.since(arrived),
            seatless: now.since(flushed),
            passed_by_priority,
            passed_by_fairness,
            overtaken_by,
        };
        sequences.push(ReleasedSequence { seq: request.id(), waited: now.since(arrived), decision });
        requests.push(request);
    }
    (Release { batch: batch.id, cause: batch.cause, sequences }, requests)
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
