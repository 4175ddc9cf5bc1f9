//! Virtual time: arrivals are heard when they come, also during a step; a step lasts as long as the cost model says.

use super::arrival::Arrival;
use std::ops::Range;

use super::cost::{Capacity, CostModel};
use super::executor::{SimExecutor, Stopwatch};
use super::measure::{Depth, End, Measured, Record};
use super::workload::Workload;
use forebay_core::intake;
use forebay_core::report::StepReport;
use forebay_core::request::{Event, Limits, Origin, Parameters, Request, RequestError};
use forebay_core::scheduler;
use forebay_core::scheduler::thermal::Thresholds;
use forebay_core::units::{Micros, SeqId, TokenId};
use forebay_turn::control::Tuning;
use forebay_turn::core::{self, Core};
use forebay_turn::turn::Turn;

/// The engine that is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    pub intake: intake::Config,
    pub scheduler: scheduler::Config,
    pub block_size: usize,
    /// `None`: as many as all seats can use.
    pub num_blocks: Option<usize>,
    pub cost: CostModel,
}

impl Setup {
    pub fn capacity(&self) -> Capacity {
        Capacity { seats: self.scheduler.max_num_seqs, step_tokens: self.scheduler.max_num_batched_tokens }
    }

    /// The same for sequences of up to `longest` tokens, if it is not long enough for them already.
    pub fn for_lengths(&self, longest: u32) -> Setup {
        let mut setup = self.clone();
        setup.scheduler.max_model_len = setup.scheduler.max_model_len.max(longest as usize + 1);
        setup
    }

    /// Blocks of the pool: at least as many as the longest sequence has.
    pub fn blocks(&self) -> usize {
        let for_one = self.scheduler.max_model_len.div_ceil(self.block_size);
        self.num_blocks.unwrap_or(for_one * self.scheduler.max_num_seqs).max(for_one)
    }

    fn core(&self) -> core::Config {
        core::Config {
            scheduler: self.scheduler,
            num_blocks: self.blocks(),
            block_size: self.block_size,
            multi_step_count: 1,
        }
    }
}

/// Depths that are kept of a run, at most: a chart shows no more.
const DEPTHS: usize = 512;
/// Turns without a step or an arrival after which the loop must have gone wrong.
const IDLE_TURNS: usize = 1_000_000;

/// Runs `arrivals`, which are sorted, to the end of the last request. `progress` hears how many requests have ended, now
/// and then.
pub fn simulate(
    setup: &Setup,
    classes: &[String],
    arrivals: &[Arrival],
    seed: u64,
    progress: &mut dyn FnMut(usize),
) -> Measured {
    let (mut run, mut core) = Run::new(setup, classes, arrivals, seed);
    let mut idle_turns = 0;
    while !run.is_over() {
        core = run.turn(core);
        idle_turns = if run.moved { 0 } else { idle_turns + 1 };
        assert!(idle_turns < IDLE_TURNS, "the engine has work and does none at {:?}", run.now);
        if run.ended - run.told >= 64 {
            run.told = run.ended;
            progress(run.ended);
        }
    }
    progress(run.ended);
    run.measured.duration = run.now;
    run.measured
}

/// A run of `workload` for each seed, counted as one. `progress` hears how many requests have ended in the run under way.
pub fn simulate_all(
    setup: &Setup,
    workload: &Workload,
    seeds: Range<u64>,
    progress: &mut dyn FnMut(usize),
) -> Measured {
    let classes = workload.classes();
    let mut all = Measured::new(classes.clone());
    seeds.for_each(|seed| all.append(simulate(setup, &classes, &workload.arrivals(seed), seed, progress)));
    all
}

struct Run<'a> {
    arrivals: &'a [Arrival],
    turn: Turn,
    stopwatch: Stopwatch,
    gap: Micros,
    limits: Limits,
    now: Micros,
    /// The next of `arrivals` to be heard.
    next: usize,
    ended: usize,
    told: usize,
    /// The last turn heard or computed something.
    moved: bool,
    depth_every: Micros,
    measured: Measured,
}

impl<'a> Run<'a> {
    fn new(setup: &Setup, classes: &[String], arrivals: &'a [Arrival], seed: u64) -> (Run<'a>, Core<SimExecutor>) {
        let stopwatch = Stopwatch::default();
        let executor = SimExecutor::new(setup.cost, seed, stopwatch.clone());
        let tuning = Tuning { intake: setup.intake, scheduler: setup.scheduler };
        let mut measured = Measured::new(classes.to_vec());
        measured.records = arrivals.iter().map(record).collect();
        let run = Run {
            arrivals,
            turn: Turn::new(tuning, Thresholds::default()),
            stopwatch,
            gap: Micros(setup.cost.gap_us.round() as u64),
            limits: Limits::new(setup.scheduler.max_model_len as u32, TokenId::MAX, 1),
            now: Micros::ZERO,
            next: 0,
            ended: 0,
            told: 0,
            moved: false,
            depth_every: Micros(1_000),
            measured,
        };
        (run, Core::new(setup.core(), executor))
    }

    fn is_over(&self) -> bool {
        self.next == self.arrivals.len() && self.ended == self.arrivals.len()
    }

    /// Once around the circle of [`Turn`], as the live loop goes: what arrives while a step runs is heard before it ends.
    fn turn(&mut self, mut core: Core<SimExecutor>) -> Core<SimExecutor> {
        self.moved = false;
        self.hear(self.now);
        for (seq, _) in self.turn.on_home(&mut core, self.now).ended {
            self.end(seq, End::Failed, self.now);
        }
        self.note_depth();
        let Some(plan) = self.turn.next_plan(&mut core, self.now) else {
            self.sleep();
            return core;
        };
        self.moved = true;
        self.turn.on_step(&plan, self.now);
        let (mut core, report) = core.execute(plan, self.now);
        let elapsed = self.stopwatch.take();
        let over = self.now + self.gap + elapsed;
        self.hear(over);
        self.now = over;
        self.turn.on_report(&mut core, report, elapsed);
        if let Some(report) = self.turn.take_report(over) {
            self.deliver(&report);
        }
        core
    }

    /// Until the next arrival or timer.
    fn sleep(&mut self) {
        let arrival = self.arrivals.get(self.next).map(|arrival| arrival.at);
        // A timer that is due already must not stop time.
        let timer = self.turn.next_wake(self.now).map(|at| at.max(self.now + Micros(1)));
        match arrival.into_iter().chain(timer).min() {
            Some(next) => self.now = self.now.max(next),
            None => assert!(self.is_over(), "nothing runs, nothing is due, and requests are open"),
        }
    }

    /// Everything that arrives by `until`, each at its own time.
    fn hear(&mut self, until: Micros) {
        while let Some(arrival) = self.arrivals.get(self.next).filter(|arrival| arrival.at <= until) {
            let seq = SeqId(self.next as u64);
            self.next += 1;
            self.moved = true;
            let request = request(seq, arrival, &self.limits);
            if request.and_then(|request| self.turn.on_submit(vec![request], arrival.at)).is_err() {
                self.end(seq, End::Refused, arrival.at);
            }
        }
    }

    fn deliver(&mut self, report: &StepReport) {
        for (seq, event) in &report.events {
            match event {
                Event::Token(_) => self.measured.token(seq.0 as usize, self.now),
                Event::Finished(_) => self.end(*seq, End::Completed, self.now),
                Event::Failed(_) => self.end(*seq, End::Failed, self.now),
                Event::Admitted { .. } | Event::Embedded(_) => {}
            }
        }
    }

    fn end(&mut self, seq: SeqId, how: End, now: Micros) {
        self.ended += 1;
        self.measured.end(seq.0 as usize, how, now);
    }

    /// Every so often; twice as rarely whenever there are too many.
    fn note_depth(&mut self) {
        let depths = &mut self.measured.depths;
        if depths.last().is_some_and(|last| self.now < last.at + self.depth_every) {
            return;
        }
        if depths.len() == DEPTHS {
            let mut at = 0;
            depths.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.depth_every = Micros(self.depth_every.0 * 2);
        }
        let snapshot = self.turn.inbox().snapshot();
        let (queued, running) = (snapshot.queued + snapshot.waiting, snapshot.running);
        self.measured.depths.push(Depth { at: self.now, queued, running });
    }
}

/// Of a request that has not begun.
pub(super) fn record(arrival: &Arrival) -> Record {
    Record {
        class: arrival.class,
        priority: arrival.priority,
        sent: arrival.at,
        prompt_tokens: arrival.prompt_tokens,
        output_tokens: 0,
        first_token: None,
        last: arrival.at,
        end: End::Open,
    }
}

/// The request that an arrival stands for.
pub(super) fn request(seq: SeqId, arrival: &Arrival, limits: &Limits) -> Result<Request, RequestError> {
    let asked = Parameters {
        max_tokens: Some(arrival.output_tokens.into()),
        temperature: Some(0.0),
        ignore_eos: true,
        priority: arrival.priority,
        origin: Origin { received: arrival.at, ..Origin::default() },
        ..Parameters::default()
    };
    let prompt = arrival.prompt(seq.0 as usize);
    let mut built = asked.check(limits, 0)?.into_requests(prompt, &[], limits, || seq)?;
    Ok(built.requests.remove(0))
}

#[cfg(test)]
#[path = "simulate_tests.rs"]
pub(super) mod tests;
