//! The engine loop without clients: the same calls of [`Inbox`] and [`Core`], in the same order, as `engine/home.rs` and
//! `engine/run.rs` make. Whoever drives it says what time it is: a virtual clock ([`super::simulate`]) or a live loop's tape
//! ([`super::replay`]).

use std::collections::HashMap;

use forebay_core::intake::Batch;
use forebay_core::report::StepReport;
use forebay_core::request::{Event, Request, RequestError};
use forebay_core::scheduler::StepPlan;
use forebay_core::scheduler::thermal::Thresholds;
use forebay_core::units::{Micros, SeqId};
use forebay_turn::control::Tuning;
use forebay_turn::core::{Config, Core};
use forebay_turn::executor::Executor;
use forebay_turn::inbox::Inbox;
use forebay_turn::window::Window;

/// As many samples as the live loop keeps.
const SAMPLES: usize = forebay_turn::window::SAMPLES;

pub struct Driver<E: Executor> {
    inbox: Inbox,
    /// Away only inside [`Driver::execute`].
    core: Option<Core<E>>,
    /// When the sequences came that have no token yet.
    untold: HashMap<SeqId, Micros>,
    ttft: Window,
    /// Of a step that is not over.
    away: Option<StepReport>,
    /// Of one that is, and of which nobody has heard.
    undelivered: Option<StepReport>,
}

/// What a turn did before its step.
#[derive(Debug, Default)]
pub struct Settled {
    pub batch: Option<Batch>,
    /// Ended by their deadline or the queue's.
    pub expired: Vec<SeqId>,
}

impl<E: Executor> Driver<E> {
    pub fn new(tuning: Tuning, config: Config, executor: E) -> Driver<E> {
        Driver {
            inbox: Inbox::new(tuning, Thresholds::default()),
            core: Some(Core::new(config, executor)),
            untold: HashMap::new(),
            ttft: Window::new(SAMPLES),
            away: None,
            undelivered: None,
        }
    }

    pub fn inbox(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    pub fn core(&self) -> &Core<E> {
        self.core.as_ref().expect(HOME)
    }

    /// All or none, as a client's request would be.
    pub fn submit(&mut self, group: Vec<Request>, now: Micros) -> Result<(), RequestError> {
        let ids: Vec<SeqId> = group.iter().map(Request::id).collect();
        self.inbox.submit(group, now)?;
        self.untold.extend(ids.into_iter().map(|seq| (seq, now)));
        Ok(())
    }

    pub fn abort(&mut self, seq: SeqId) {
        self.inbox.abort(seq);
        self.end(seq);
    }

    /// The core is home: see `Home::settle`.
    pub fn settle(&mut self, now: Micros) -> Settled {
        let core = self.core.as_mut().expect(HOME);
        let orders = self.inbox.take_orders();
        orders.aborts.into_iter().for_each(|seq| core.abort(seq));
        orders.scheduler.into_iter().for_each(|config| core.configure(config));
        orders.thermal.into_iter().for_each(|level| core.set_thermal(level));
        let mut settled = Settled::default();
        settled.expired.extend(core.expire(now).into_iter().map(|(seq, _)| seq));
        settled.expired.extend(self.inbox.expire(now).into_iter().map(|(request, _)| request.id()));
        for &seq in &settled.expired {
            self.untold.remove(&seq);
            self.inbox.ended(seq);
        }
        self.inbox.note(core.view());
        settled.batch = self.inbox.release(now, self.ttft.recent_p99());
        if let Some(batch) = &settled.batch {
            core.admit(batch.released.iter().map(|released| released.request.clone()).collect());
            self.inbox.note(core.view());
        }
        settled
    }

    pub fn plan(&mut self, now: Micros) -> Option<StepPlan> {
        if self.inbox.may_step() { self.core.as_mut().expect(HOME).plan(now) } else { None }
    }

    /// The planned step. Whatever it takes, commands may be heard before [`Driver::returned`].
    pub fn execute(&mut self, plan: StepPlan, now: Micros) -> StepReport {
        self.inbox.leaves(now, plan.predicted);
        let (core, report) = self.core.take().expect(HOME).execute(plan, now);
        self.core = Some(core);
        report
    }

    /// The step is over after `elapsed`, and its events are delivered.
    pub fn returned(&mut self, report: &StepReport, elapsed: Micros, now: Micros) {
        self.account(report, elapsed);
        self.delivered(report, now);
    }

    /// What the next batch depends on.
    fn account(&mut self, report: &StepReport, elapsed: Micros) {
        self.core.as_mut().expect(HOME).observe(elapsed);
        for (seq, event) in &report.events {
            match event {
                Event::Token(_) => self.inbox.generated(*seq),
                Event::Finished(_) | Event::Failed(_) => self.inbox.ended(*seq),
                Event::Admitted { .. } | Event::Embedded(_) => {}
            }
        }
    }

    fn delivered(&mut self, report: &StepReport, now: Micros) {
        for (seq, event) in &report.events {
            if let Event::Admitted { .. } = event {
                continue;
            }
            let came = self.untold.remove(seq);
            if let (Some(came), Event::Token(_) | Event::Embedded(_)) = (came, event) {
                self.ttft.push(now.since(came));
            }
        }
    }

    /// [`Driver::execute`] whose report waits for [`Driver::step_over`], and its events for [`Driver::deliver`].
    pub fn begin_step(&mut self, plan: StepPlan, now: Micros) {
        self.away = Some(self.execute(plan, now));
    }

    /// The step that was begun is over, if one was.
    pub fn step_over(&mut self, elapsed: Micros) {
        if let Some(report) = self.away.take() {
            self.account(&report, elapsed);
            self.undelivered = Some(report);
        }
    }

    /// What the step before brought is told, if it was not.
    pub fn deliver(&mut self, now: Micros) {
        if let Some(report) = self.undelivered.take() {
            self.delivered(&report, now);
        }
    }

    /// When something happens without an arrival or a step; as of the last [`Driver::settle`].
    pub fn wake_at(&self, now: Micros) -> Option<Micros> {
        self.inbox.wake_at(now, self.ttft.recent_p99())
    }

    fn end(&mut self, seq: SeqId) {
        self.untold.remove(&seq);
        self.inbox.ended(seq);
    }
}

impl<E: Executor> Drop for Driver<E> {
    /// A run that ends in its middle leaves sequences behind, whose blocks must be given back.
    fn drop(&mut self) {
        if let Some(core) = &mut self.core {
            core.abort_all();
        }
    }
}

const HOME: &str = "the core is away only while it computes";
