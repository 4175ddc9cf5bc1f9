//! Limits, policies and heat that change under load: nothing is lost, and every output equals its solo run.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;

use super::policy::thermal::Level;
use super::sequence::Running;
use super::tests::*;
use super::*;
use crate::kv::BlockPool;
use crate::report::Wait;
use crate::request::{Event, Priority};
use crate::slo::Slo;
use crate::step::StepBatch;
use crate::units::{Micros, SeqId, TokenId};

/// What an operator or the weather does between two steps.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Configure(Config),
    Heat(Level),
}

/// A scheduler with its pool and model, checked from all sides in every step.
pub(super) struct Rig {
    pub scheduler: Scheduler,
    pub pool: BlockPool,
    pub model: PagedModel,
    now: Micros,
    /// Steps since the oldest running sequence computed anything, and who that is.
    oldest: (Option<SeqId>, usize),
    pub outputs: HashMap<u64, Vec<TokenId>>,
    pub ended: BTreeSet<u64>,
}

impl Rig {
    pub fn new(config: Config, num_blocks: usize, block_size: usize) -> Rig {
        Rig {
            scheduler: Scheduler::new(config),
            pool: BlockPool::new(num_blocks, block_size),
            model: PagedModel { slots: vec![None; num_blocks * block_size], block_size },
            now: Micros::ZERO,
            oldest: (None, 0),
            outputs: HashMap::new(),
            ended: BTreeSet::new(),
        }
    }

    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Configure(config) => self.scheduler.configure(config),
            Change::Heat(level) => self.scheduler.set_thermal(level),
        }
    }

    /// Returns what was planned, in logical and in physical terms.
    pub fn step(&mut self) -> Option<(StepPlan, StepBatch)> {
        let running = &self.scheduler.queues.running;
        let batches_yield = self.scheduler.urgent() > 0;
        let oldest = running.iter().find(|r| !(batches_yield && r.is_batch())).map(Running::id);
        let seats_before = self.scheduler.running().max(self.scheduler.seats());
        let Some(plan) = self.scheduler.plan(&mut self.pool, self.now) else {
            let live = self.scheduler.running() + self.scheduler.waiting();
            assert!(live == 0 || self.scheduler.heat == Level::Emergency, "live sequences but no plan");
            return None;
        };
        assert!(self.scheduler.running() <= seats_before);
        let batch = self.scheduler.batch(&plan, &self.pool);
        self.check_plan(&plan, &batch);
        self.check_progress(&plan, oldest);
        let took = Micros(1_000 + 10 * plan.load.prefill_tokens as u64 + 40 * plan.load.decode_tokens as u64);
        self.now = self.now + took;
        self.scheduler.observe(&plan.load, took);
        let output = self.model.run(&batch);
        for (seq, event) in self.scheduler.commit(plan.clone(), &output, &mut self.pool) {
            match event {
                Event::Token(sampled) => self.outputs.entry(seq.0).or_default().push(sampled.token),
                Event::Admitted { .. } => {}
                Event::Embedded(_) => panic!("nobody asked for it"),
                Event::Finished(_) | Event::Failed(_) => assert!(self.ended.insert(seq.0), "{seq} ended twice"),
            }
        }
        self.pool.check(self.scheduler.tables());
        Some((plan, batch))
    }

    /// Steps until nothing is live.
    pub fn finish(&mut self) {
        while self.scheduler.running() + self.scheduler.waiting() > 0 {
            self.step();
        }
        assert_eq!(self.pool.used(), 0);
    }

    fn check_plan(&self, plan: &StepPlan, batch: &StepBatch) {
        let config = &self.scheduler.config;
        assert!(batch.tokens.len() <= config.max_num_batched_tokens, "{plan:?}");
        if (Level::Serious..=Level::Critical).contains(&self.scheduler.heat) {
            assert!(plan.chunks.len() <= (config.max_num_seqs / 2).max(1), "{plan:?}");
        }
        assert_eq!(plan.load.steps, 1);
        assert_eq!(plan.load.prefill_tokens + plan.load.decode_tokens, batch.tokens.len());
        assert_eq!(plan.load.context_tokens, batch.positions.iter().map(|&p| p as usize + 1).sum::<usize>());
        assert_eq!(plan.load.prefills, plan.chunks.iter().filter(|chunk| !chunk.decode).count());
        for preempted in &plan.preempted {
            assert!(!plan.holds(preempted.seq) && !plan.admitted.contains(&preempted.seq), "{plan:?}");
        }
        let computing = plan.chunks.iter().map(|chunk| chunk.seq);
        let mut told: Vec<SeqId> = computing.chain(plan.waits.iter().map(|(seq, _)| *seq)).collect();
        let mut live: Vec<SeqId> = self.scheduler.sequences(&self.pool).iter().map(|view| view.seq).collect();
        told.sort_unstable();
        live.sort_unstable();
        assert_eq!(told, live, "each live sequence computes or is told why not, once: {plan:?}");
    }

    fn check_progress(&mut self, plan: &StepPlan, oldest: Option<SeqId>) {
        let Some(oldest) = oldest else { return };
        assert!(plan.preempted.iter().all(|preempted| preempted.seq != oldest), "the oldest was preempted: {plan:?}");
        let known = self.oldest.0 == Some(oldest);
        let idle = if plan.holds(oldest) { 0 } else { 1 + if known { self.oldest.1 } else { 0 } };
        self.oldest = (Some(oldest), idle);
        // 8 steps of patience, and at most 16 others who lost theirs before; twice, for a change in between.
        assert!(idle <= 48, "{oldest} was passed over {idle} times: {plan:?}");
    }
}

fn any_level() -> impl Strategy<Value = Level> {
    (0usize..Level::ALL.len()).prop_map(|level| Level::ALL[level])
}

prop_compose! {
    pub(super) fn any_config()(
        kind in 0usize..3, burst in 1usize..10, max_batch in 1usize..5, max_num_seqs in 1usize..8, max_num_batched_tokens in 1usize..40,
        preemption in any_preemption(), prefix_caching: bool, guessing: bool, stall_micros in prop_oneof![Just(None), (1u64..5_000).prop_map(Some)],
    ) -> Config {
        let kind = PolicyKind::ALL[kind];
        let policy = PolicyConfig { kind, decode_burst_budget: burst, min_batch: 1, max_batch };
        Config { max_num_seqs, max_num_batched_tokens, max_model_len: 50, preemption, policy, max_stall: stall_micros.map(Micros), prefix_caching, speculative: guesses(guessing), whole_prompts: false, slo: Slo::DEFAULT }
    }
}

pub(super) fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![3 => any_config().prop_map(Change::Configure), 1 => any_level().prop_map(Change::Heat)]
}

proptest! {
    #[test]
    fn whatever_changes_everything_finishes_and_equals_solo(
        jobs in prop::collection::vec(any_job(), 1..16), first in any_config(), changes in prop::collection::vec((1usize..6, any_change()), 0..25),
        spare in 0usize..12, block_size in prop_oneof![Just(1usize), Just(4), Just(16)],
    ) {
        let mut rig = Rig::new(first, 50usize.div_ceil(block_size) + spare, block_size);
        let mut due = 0;
        let mut changes = changes.into_iter().map(|(after, change)| { due += after; (due, change) }).peekable();
        for turn in 0..40_000 {
            while let Some((_, change)) = changes.next_if(|(due, _)| *due <= turn) {
                rig.apply(change);
            }
            if changes.peek().is_none() {
                rig.apply(Change::Heat(Level::Nominal));
            }
            for (seq, job) in jobs.iter().enumerate() {
                if job.arrival == turn {
                    rig.scheduler.submit(request(seq as u64, job));
                }
                if job.abort == Some(turn) && rig.scheduler.abort(SeqId(seq as u64), &mut rig.pool) {
                    rig.ended.insert(seq as u64);
                }
            }
            rig.step();
            if turn >= 30 && rig.ended.len() == jobs.len() {
                break;
            }
        }
        prop_assert_eq!(rig.ended.len(), jobs.len(), "all end");
        prop_assert_eq!((rig.pool.used(), rig.scheduler.running(), rig.scheduler.waiting()), (0, 0, 0));
        for (seq, job) in jobs.iter().enumerate() {
            let (output, expected) = (rig.outputs.remove(&(seq as u64)).unwrap_or_default(), solo(seq as u64, job));
            prop_assert!(expected.starts_with(&output), "sequence {} went another way", seq);
            if job.abort.is_none_or(|at| at < job.arrival) {
                prop_assert_eq!(output, expected);
            }
        }
    }
}

#[test]
fn fewer_seats_drain_and_more_fill() {
    let mut rig = Rig::new(Config { max_num_seqs: 4, ..ROOMY }, 32, 4);
    (0..6).for_each(|seq| rig.scheduler.submit(request(seq, &job(3, 6 + seq as usize, 0))));
    rig.step();
    assert_eq!((rig.scheduler.running(), rig.scheduler.waiting()), (4, 2));
    rig.apply(Change::Configure(Config { max_num_seqs: 1, ..ROOMY }));
    let running: Vec<usize> = (0..10)
        .map(|_| {
            rig.step();
            rig.scheduler.running()
        })
        .collect();
    // All four go on in every step; the two that wait get no seat before three have ended, and the first of them the fourth's.
    assert_eq!(running, [4, 4, 4, 4, 3, 2, 1, 0, 1, 1]);
    assert_eq!((rig.scheduler.seats(), rig.scheduler.seats_for()[Priority::Normal.index()]), (1, 0));
    rig.apply(Change::Configure(ROOMY));
    assert_eq!(rig.scheduler.seats_for()[Priority::Normal.index()], 6);
    rig.step();
    assert_eq!(rig.scheduler.running(), 2);
    rig.finish();
}

#[test]
fn heat_halves_the_step_and_emergency_pauses_it() {
    let mut rig = Rig::new(Config { max_num_seqs: 4, ..ROOMY }, 32, 4);
    (0..5).for_each(|seq| rig.scheduler.submit(request(seq, &job(3, 9, 0))));
    rig.step();
    rig.apply(Change::Heat(Level::Serious));
    assert_eq!((rig.scheduler.seats(), rig.scheduler.seats_for()[Priority::Normal.index()]), (2, 0));
    let mut trace = Vec::new();
    for _ in 0..3 {
        let plan = rig.scheduler.plan(&mut rig.pool, Micros::ZERO).expect("live");
        let thermal = plan.waits.iter().filter(|(_, wait)| *wait == Wait::Thermal).count();
        trace.push(format!("{} ({thermal} wait)", describe(&plan)));
        let output = rig.model.run(&rig.scheduler.batch(&plan, &rig.pool));
        rig.scheduler.commit(plan, &output, &mut rig.pool);
    }
    // The one without a seat waits for the heat, too: of the four seats two are closed.
    assert_eq!(trace, ["a+1 b+1 (2 wait)", "c+1 d+1 (2 wait)", "a+1 b+1 (2 wait)"]);
    rig.apply(Change::Heat(Level::Emergency));
    assert_eq!(rig.scheduler.plan(&mut rig.pool, Micros::ZERO), None);
    assert_eq!((rig.scheduler.running(), rig.scheduler.seats()), (4, 0), "paused, not lost");
    rig.apply(Change::Heat(Level::Fair));
    let plan = rig.scheduler.plan(&mut rig.pool, Micros::ZERO).expect("live");
    assert_eq!(describe(&plan), "a+1 b+1 c+1 d+1");
    let output = rig.model.run(&rig.scheduler.batch(&plan, &rig.pool));
    rig.scheduler.commit(plan, &output, &mut rig.pool);
    rig.finish();
}
