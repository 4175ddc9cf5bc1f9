//! One of the workers of a run: a turn and its core, and the step under way.

use super::executor::{SimExecutor, Stopwatch};
use super::setup::Setup;
use forebay_core::report::StepReport;
use forebay_core::request::{Request, RequestError};
use forebay_core::scheduler::thermal::Thresholds;
use forebay_core::units::{Micros, SeqId};
use forebay_turn::control::Tuning;
use forebay_turn::core::Core;
use forebay_turn::turn::Turn;

/// An engine under virtual time: what its owner calls in which order is what the live loop does.
pub(super) struct Worker {
    turn: Turn,
    /// Its steps are computed when they begin, and nobody hears of them before their time. `None` only within a call.
    core: Option<Core<SimExecutor>>,
    stopwatch: Stopwatch,
    gap: Micros,
    step: Option<Step>,
    /// When it looks again by itself, while no step runs.
    wake: Option<Micros>,
    /// Something happened since it last looked.
    news: bool,
}

const AT_HOME: &str = "the core is back before a call ends";

struct Step {
    over: Micros,
    took: Micros,
    report: StepReport,
}

impl Worker {
    /// `index` is its place among the workers of the run: each strays from its mean in its own way.
    pub fn new(setup: &Setup, seed: u64, index: usize) -> Worker {
        let stopwatch = Stopwatch::default();
        let seed = seed ^ (index as u64).rotate_left(40);
        let executor = SimExecutor::new(setup.cost, seed, stopwatch.clone());
        let tuning = Tuning { intake: setup.intake, scheduler: setup.scheduler };
        Worker {
            turn: Turn::new(tuning, Thresholds::default()),
            core: Some(Core::new(setup.core(), executor)),
            stopwatch,
            gap: Micros(setup.cost.gap_us.round() as u64),
            step: None,
            wake: None,
            news: true,
        }
    }

    /// When something happens here without a request: the end of a step, or a timer.
    pub fn next(&self) -> Option<Micros> {
        match &self.step {
            Some(step) => Some(step.over),
            None => self.wake,
        }
    }

    /// Returns how long until its first token, if that can be predicted.
    pub fn submit(&mut self, request: Request, now: Micros) -> Result<Option<Micros>, RequestError> {
        self.news = true;
        self.turn.on_submit(vec![request], now)
    }

    /// The report of the step that is over by now, and how long it took.
    pub fn finish(&mut self, now: Micros) -> Option<(StepReport, Micros)> {
        let step = self.step.take_if(|step| step.over <= now)?;
        self.news = true;
        let core = self.core.as_mut().expect(AT_HOME);
        self.turn.on_report(core, step.report, step.took);
        Some((self.turn.take_report(now)?, step.took))
    }

    /// Looks what to do, if no step runs and there is a reason to look; begins a step if there is work. Returns who ended without a
    /// step.
    pub fn look(&mut self, now: Micros) -> Vec<SeqId> {
        let due = self.wake.is_some_and(|wake| wake <= now);
        if self.step.is_some() || !(self.news || due) {
            return Vec::new();
        }
        self.news = false;
        let mut core = self.core.take().expect(AT_HOME);
        let ended = self.turn.on_home(&mut core, now).ended;
        match self.turn.next_plan(&mut core, now) {
            Some(plan) => {
                self.turn.on_step(&plan, now);
                let (core, report) = core.execute(plan, now);
                let took = self.stopwatch.take();
                self.step = Some(Step { over: now + self.gap + took, took, report });
                (self.core, self.wake) = (Some(core), None);
            }
            None => {
                // A timer that is due already must not stop time.
                self.wake = self.turn.next_wake(now).map(|at| at.max(now + Micros(1)));
                self.core = Some(core);
            }
        }
        ended.into_iter().map(|(seq, _)| seq).collect()
    }

    /// It is gone, and all of `under_way` with it.
    pub fn die(self, under_way: &[usize]) {
        let mut core = self.core.expect(AT_HOME);
        under_way.iter().for_each(|id| core.abort(SeqId(*id as u64)));
    }

    /// Sequences that wait, and that run.
    pub fn depth(&self) -> (usize, usize) {
        let snapshot = self.turn.inbox().snapshot();
        (snapshot.queued + snapshot.waiting, snapshot.running)
    }

    /// Sequences that gave their blocks away so far.
    pub fn preemptions(&self) -> u64 {
        self.turn.inbox().snapshot().preemptions_total
    }
}
