//! What travels into the step and back: the scheduler, the block pool and an executor. Pure.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use forebay_core::kv::{BlockPool, Change, Edit};
use forebay_core::report::{BlockUse, Decision, Miss, POSITIONS, SequenceView, Snapshot, StepFacts, StepReport};
use forebay_core::request::{CLASSES, Event, Request, RequestError};
use forebay_core::scheduler::thermal::Level;
use forebay_core::scheduler::{self, Backlog, Found, Scheduler, StepCost, StepLoad, StepPlan};
use forebay_core::step::{BatchChunk, Outcome, SequenceFault, StepBatch, StepOutput};
use forebay_core::units::{Micros, SeqId};

use super::executor::{ExecuteError, Executor};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub scheduler: scheduler::Config,
    pub num_blocks: usize,
    /// Tokens per block.
    pub block_size: usize,
    /// Decode steps per blocking call; 1 hears commands after each.
    pub multi_step_count: usize,
}

/// Decides and computes. Moved by value into `spawn_blocking`, so nothing can touch it while a step runs.
pub struct Core<E> {
    config: Config,
    scheduler: Scheduler,
    pool: BlockPool,
    executor: E,
    /// Admitted and not ended.
    live: BTreeSet<SeqId>,
    steps_total: u64,
    /// Of schedulers that were given up; see [`Core::start_over`].
    preemptions_before: u64,
    thermal: Level,
    /// What the last call computed, until its duration is known.
    load: StepLoad,
    reran: bool,
    /// The same with its duration, until the next step is planned.
    lesson: Option<(StepLoad, Micros)>,
    /// How long the model computed in the call under way.
    computed: Option<Micros>,
    /// Whether somebody asks what the cache holds.
    telling: bool,
}

/// The core at a glance, for those who stay home while it is away.
#[derive(Clone, Debug, Default)]
pub struct CoreView {
    pub snapshot: Snapshot,
    pub seats: usize,
    /// By class: how many more sequences of it could run, if those gave way whose seat it may take.
    pub seats_for: [usize; CLASSES],
    /// How long those that decode may wait for their next token.
    pub stall_limit: Option<Micros>,
    /// Live sequences that are no batch's.
    pub urgent: usize,
    pub backlog: Backlog,
    pub sequences: Vec<SequenceView>,
    pub earliest_deadline: Option<Micros>,
    pub cost: StepCost,
    /// Of long memory.
    pub lasting_cost: StepCost,
    /// Tokens per block.
    pub block_size: usize,
}

impl<E: Executor> Core<E> {
    pub fn new(config: Config, executor: E) -> Core<E> {
        Core {
            config,
            scheduler: Scheduler::new(config.scheduler),
            pool: BlockPool::new(config.num_blocks, config.block_size),
            executor,
            live: BTreeSet::new(),
            steps_total: 0,
            preemptions_before: 0,
            thermal: Level::Nominal,
            load: StepLoad::default(),
            reran: false,
            lesson: None,
            computed: None,
            telling: false,
        }
    }

    /// Keeps what the prefix cache comes to hold and loses until [`Core::cache_changes`] takes it.
    pub fn telling(mut self) -> Core<E> {
        self.telling = true;
        self.pool.record();
        self
    }

    /// What the cache came to hold and lost since this was last asked.
    pub fn cache_changes(&mut self) -> Vec<Change> {
        self.pool.changes()
    }

    /// The same for whoever missed some: all that it holds.
    pub fn cache_contents(&mut self) -> Vec<Change> {
        self.pool.contents()
    }

    /// What was done to the prefix cache since this was last asked, for a mirror of it.
    pub fn cache_edits(&mut self) -> Vec<Edit> {
        self.pool.edits()
    }

    /// Other limits or another policy, from the next plan on.
    pub fn configure(&mut self, config: scheduler::Config) {
        self.config.scheduler = config;
        self.scheduler.configure(config);
    }

    pub fn set_thermal(&mut self, level: Level) {
        self.thermal = level;
        self.scheduler.set_thermal(level);
    }

    /// Ends the sequences whose deadline has passed; their clients are to hear the errors.
    pub fn expire(&mut self, now: Micros) -> Vec<(SeqId, RequestError)> {
        let overdue = self.scheduler.overdue(now);
        overdue.iter().for_each(|(seq, _)| self.abort(*seq));
        overdue
    }

    /// The last call took so long. The cost model learns from it once the next step is planned, unless a step had to be run
    /// again.
    pub fn observe(&mut self, elapsed: Micros) {
        let load = std::mem::take(&mut self.load);
        self.lesson = (!std::mem::take(&mut self.reran)).then_some((load, elapsed));
    }

    pub fn admit(&mut self, requests: Vec<Request>) {
        for request in requests {
            self.live.insert(request.id());
            self.executor.admit(&request);
            self.scheduler.submit(request);
        }
    }

    /// How many tokens of the request's prompt the prefix cache has now.
    pub fn cached_tokens(&self, request: &Request) -> usize {
        self.scheduler.cached_tokens(request, &self.pool)
    }

    /// Ends a sequence without telling anyone; its blocks are free again.
    pub fn abort(&mut self, seq: SeqId) {
        if self.live.remove(&seq) {
            self.scheduler.abort(seq, &mut self.pool);
            self.executor.forget(seq);
        }
    }

    /// Ends everything, as [`Core::abort`] does.
    pub fn abort_all(&mut self) {
        for seq in self.live.clone() {
            self.abort(seq);
        }
    }

    pub fn is_idle(&self) -> bool {
        self.live.is_empty()
    }

    pub fn plan(&mut self, now: Micros) -> Option<StepPlan> {
        let plan = self.scheduler.plan(&mut self.pool, now);
        self.learn();
        plan
    }

    fn learn(&mut self) {
        if let Some((load, elapsed)) = self.lesson.take() {
            self.scheduler.observe(&load, elapsed);
        }
    }

    /// Runs the planned step, and up to `multi_step_count - 1` more while they only extend completions.
    ///
    /// Always comes back: a panic inside is caught, and costs the sequences that it can be attributed to, or else those
    /// of the step.
    pub fn execute(mut self, plan: StepPlan, mut now: Micros) -> (Core<E>, StepReport) {
        let mut report = StepReport::default();
        let mut next = Some(plan);
        let mut steps = 0;
        while let Some(plan) = next.take() {
            steps += 1;
            // The clock stays outside: later steps begin when those before them should have ended.
            now = now + plan.predicted.unwrap_or(Micros::ZERO);
            let again = steps < self.config.multi_step_count && plan.is_decode_only() && self.scheduler.waiting() == 0;
            let whole = catch_unwind(AssertUnwindSafe(|| self.step(plan, &mut report)));
            if whole.is_err() {
                self.start_over(&mut report);
                break;
            }
            if again {
                next = self.plan(now);
            }
        }
        self.forget_ended(&report);
        report.computed = self.computed.take();
        report.after = self.snapshot();
        (self, report)
    }

    fn step(&mut self, plan: StepPlan, report: &mut StepReport) {
        report.pending_out = report.events.len();
        decisions(&plan, &mut report.decisions);
        report.decoded.extend(plan.chunks.iter().filter(|chunk| chunk.decode).map(|chunk| chunk.seq));
        self.load = self.load + plan.load;
        let batch = self.scheduler.batch(&plan, &self.pool);
        let (output, rerun) = match self.try_run(&batch) {
            Ok(output) => (output, None),
            Err(error) => (self.run_one_by_one(&batch), Some(error.to_string())),
        };
        self.reran |= rerun.is_some();
        let looked_up = |found: &&Found| found.first && !matches!(found.miss, Some(Miss::Off | Miss::Declined));
        let prefix_queries = plan.found.iter().filter(looked_up).map(|found| found.known_tokens).sum();
        let prefix_hits = plan.found.iter().filter(looked_up).map(|found| found.cached_tokens).sum();
        self.steps_total += 1;
        report.steps.push(StepFacts {
            sequences: plan.chunks.len(),
            prefill_tokens: plan.prefill_tokens(),
            decode_tokens: plan.decode_tokens(),
            preempted: plan.preempted.len(),
            prefix_queries,
            prefix_hits,
            proposed: plan.chunks.iter().map(|chunk| chunk.proposed as usize).sum(),
            drafts: plan.chunks.iter().filter(|chunk| chunk.proposed > 0).count(),
            accepted_at: accepted_at(&output),
            constrained: output.guidance.iter().map(|(_, guidance)| guidance.drawn).sum(),
            choices: output.guidance.iter().map(|(_, guidance)| guidance.choices).sum(),
            accepted: output.outcomes.len().saturating_sub(plan.chunks.iter().filter(|chunk| chunk.sample).count()),
            predicted: plan.predicted,
            limit: plan.limit,
            rerun,
        });
        report.events.extend(self.scheduler.commit(plan, &output, &mut self.pool));
    }

    /// The executor's step, its panics turned into errors. Running a step again is safe: K and V written twice are the
    /// same, and no token was drawn.
    fn try_run(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecuteError> {
        let output = catch_unwind(AssertUnwindSafe(|| self.executor.run(batch)))
            .unwrap_or_else(|_| Err(ExecuteError::Failed("the step panicked".into())));
        self.computed = self.computed.into_iter().chain(self.executor.computed()).reduce(|sum, more| sum + more);
        output
    }

    /// A step failed as a whole: each sequence runs alone, so that only the culprit fails.
    fn run_one_by_one(&mut self, batch: &StepBatch) -> StepOutput {
        let mut all = StepOutput::default();
        for chunk in &batch.chunks {
            match self.try_run(&alone(batch, chunk)) {
                Ok(output) => {
                    all.outcomes.extend(output.outcomes);
                    all.guidance.extend(output.guidance);
                }
                Err(ExecuteError::Failed(_)) => {
                    all.outcomes.push((chunk.seq, Outcome::Failed(SequenceFault::Forward)));
                }
                Err(ExecuteError::OutOfMemory(_)) => {
                    all.outcomes.push((chunk.seq, Outcome::Failed(SequenceFault::OutOfMemory)));
                }
            }
        }
        all
    }

    /// The scheduler itself broke, which is a bug of ours: everything it held fails, and a new one begins. The queue at
    /// home is untouched.
    fn start_over(&mut self, report: &mut StepReport) {
        self.preemptions_before += self.scheduler.preemptions_total();
        let broken = std::mem::replace(&mut self.scheduler, Scheduler::new(self.config.scheduler));
        self.scheduler.set_thermal(self.thermal);
        let pool = std::mem::replace(&mut self.pool, BlockPool::new(self.config.num_blocks, self.config.block_size));
        if self.telling {
            self.pool.record();
        }
        // Their block tables no longer add up; dropping them would trip over that, and they hold no memory to speak of.
        std::mem::forget((broken, pool));
        let ended: BTreeSet<SeqId> = ended(report).collect();
        let failed = self.live.difference(&ended).map(|&seq| (seq, Event::Failed(RequestError::StepFailed)));
        report.events.extend(failed.collect::<Vec<_>>());
    }

    fn forget_ended(&mut self, report: &StepReport) {
        for seq in ended(report) {
            self.live.remove(&seq);
            self.executor.forget(seq);
        }
    }

    pub fn view(&self) -> CoreView {
        let sequences = self.scheduler.sequences(&self.pool);
        CoreView {
            snapshot: self.snapshot(),
            seats: self.scheduler.seats(),
            seats_for: self.scheduler.seats_for(),
            stall_limit: self.scheduler.stall_limit(),
            urgent: self.scheduler.urgent(),
            backlog: self.scheduler.backlog(&self.pool),
            earliest_deadline: sequences.iter().filter_map(|view| view.deadline).min(),
            sequences,
            cost: self.scheduler.cost().clone(),
            lasting_cost: self.scheduler.lasting_cost().clone(),
            block_size: self.config.block_size,
        }
    }

    /// What each block is used for.
    pub fn block_uses(&self) -> Vec<BlockUse> {
        self.pool.uses()
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            waiting: self.scheduler.waiting(),
            running: self.scheduler.running(),
            blocks_total: self.pool.total(),
            blocks_used: self.pool.used(),
            blocks_cached: self.pool.findable(),
            preemptions_total: self.preemptions_before + self.scheduler.preemptions_total(),
            steps_total: self.steps_total,
            ..Snapshot::default()
        }
    }
}

/// Tokens of a sequence after its first in a step were guesses: by their place.
fn accepted_at(output: &StepOutput) -> [u32; POSITIONS] {
    let mut counts = [0; POSITIONS];
    let mut place = 0;
    for pair in output.outcomes.windows(2) {
        // A sequence's outcomes stand together.
        if pair[0].0 == pair[1].0 {
            counts[place.min(POSITIONS - 1)] += 1;
            place += 1;
        } else {
            place = 0;
        }
    }
    counts
}

/// What a plan decided, for the traces.
fn decisions(plan: &StepPlan, into: &mut Vec<(SeqId, Decision)>) {
    into.extend(plan.preempted.iter().map(|lost| (lost.seq, Decision::Preempted { by: lost.by })));
    into.extend(plan.waits.iter().map(|&(seq, cause)| (seq, Decision::Waits(cause))));
    let admitted = |found: &Found| Decision::Admitted { cached_tokens: found.cached_tokens, miss: found.miss };
    into.extend(plan.found.iter().map(|found| (found.seq, admitted(found))));
    let prefills = plan.chunks.iter().filter(|chunk| !chunk.decode);
    into.extend(
        prefills.map(|chunk| (chunk.seq, Decision::Prefill { from: chunk.tokens.start, to: chunk.tokens.end })),
    );
}

fn ended(report: &StepReport) -> impl Iterator<Item = SeqId> + '_ {
    let last = |(seq, event): &(SeqId, Event)| match event {
        Event::Finished(_) | Event::Failed(_) => Some(*seq),
        Event::Admitted { .. } | Event::Token(_) | Event::Embedded(_) => None,
    };
    report.events.iter().filter_map(last)
}

/// The part of a batch that belongs to one chunk, with the copies into its own blocks: another's pass may have failed before
/// it made any.
fn alone(batch: &StepBatch, chunk: &BatchChunk) -> StepBatch {
    let rows = chunk.rows.clone();
    let table = &batch.tables[chunk.table.clone()];
    let copies = batch.copies.iter().filter(|(_, to)| table.contains(to)).copied().collect();
    StepBatch {
        tokens: batch.tokens[rows.clone()].to_vec(),
        positions: batch.positions[rows.clone()].to_vec(),
        slots: batch.slots[rows.clone()].to_vec(),
        tables: table.to_vec(),
        chunks: vec![BatchChunk { rows: 0..rows.len(), table: 0..chunk.table.len(), ..chunk.clone() }],
        copies,
    }
}
