//! Batches: they run on what the others leave of a step, and give up seats and blocks to whoever wants them.
//!
//! ```text
//! set aside ─▶ everyone else plans as if there were no batches ─▶ bring back ─▶ batches fill the step
//!                    │ no seat, no block: the newest batch gives its own
//! ```
//! So a sequence that is no batch's is planned in the first step after it came, before any batch. Alone, batches are planned
//! like anyone.

use std::collections::VecDeque;

use crate::kv::BlockPool;
use crate::report::{Preempted, Wait};
use crate::units::SeqId;

use super::Scheduler;
use super::budget::Draft;
use super::cost::StepLoad;
use super::plan::StepPlan;
use super::policy::{PolicyConfig, PolicyExecutor};
use super::sequence::{Running, Waiting};

/// Batches, out of sight.
#[derive(Debug)]
pub(super) struct Aside {
    /// Orders them while they are alone: what it remembers of them is nothing to the others.
    pub policy: PolicyExecutor,
    running: Vec<Running>,
    waiting: VecDeque<Waiting>,
}

impl Aside {
    pub fn new(policy: PolicyConfig) -> Aside {
        Aside { policy: PolicyExecutor::new(policy), running: Vec::new(), waiting: VecDeque::new() }
    }
}

impl Scheduler {
    /// Whether nobody else is here.
    pub(super) fn only_batches(&self) -> bool {
        self.running.iter().all(Running::is_batch) && self.waiting.iter().all(Waiting::is_batch)
    }

    /// Whether there are both batches and others; if so, only the others are left.
    pub(super) fn set_aside(&mut self) -> bool {
        let first = self.waiting.partition_point(|w| !w.is_batch());
        let urgent = first > 0 || self.running.iter().any(|r| !r.is_batch());
        let batches = first < self.waiting.len() || self.running.iter().any(Running::is_batch);
        if urgent && batches {
            self.aside.running = self.running.extract_if(.., |r| r.is_batch()).collect();
            self.aside.waiting = self.waiting.split_off(first);
        }
        urgent && batches
    }

    pub(super) fn bring_back(&mut self) {
        self.running.append(&mut self.aside.running);
        self.running.sort_by_key(|r| r.arrival);
        self.waiting.append(&mut self.aside.waiting);
    }

    /// The newest batch gives its blocks and its seat to `by`. False if there is none aside.
    pub(super) fn evict(&mut self, by: SeqId, plan: &mut StepPlan, pool: &mut BlockPool) -> bool {
        let Some(newest) = self.aside.running.pop() else { return false };
        let seq = newest.id();
        // They go newest first, so each is older than all that went before.
        self.aside.waiting.push_front(newest.preempt(pool));
        self.preemptions_total += 1;
        plan.preempted.push(Preempted { seq, by });
        true
    }

    /// Batches leave until there is a seat, or none is left aside.
    pub(super) fn evict_for_seat(&mut self, by: SeqId, plan: &mut StepPlan, pool: &mut BlockPool) {
        while self.running.len() + self.aside.running.len() >= self.seats() && self.evict(by, plan, pool) {}
    }

    /// What the others left goes to batches, the oldest first: decodes within the time that decoding sequences may wait,
    /// prompts within what is left of it, newcomers.
    pub(super) fn fill(&mut self, draft: &mut Draft, pool: &mut BlockPool) -> Option<Wait> {
        let batches = |decoding: bool| move |r: &&Running| r.is_batch() && r.is_decoding() == decoding;
        let decodes: Vec<(SeqId, usize)> =
            self.running.iter().filter(batches(true)).map(|r| (r.id(), r.tokens().len())).collect();
        for (seq, context) in decodes {
            if draft.slots() == 0 || !self.fits_time(draft, StepLoad::decode(context)) {
                break;
            }
            self.extend(seq, 1, draft, pool);
        }
        draft.to_come = StepLoad::default();
        let prompts: Vec<SeqId> = self.running.iter().filter(batches(false)).map(Running::id).collect();
        if draft.limit.is_none() || self.fits_time(draft, StepLoad::default()) {
            self.extend_prompts(prompts.into_iter(), draft, pool);
            return self.admit(draft, pool);
        }
        Some(Wait::StallLimit)
    }

    /// Whether those that decode would not wait for too long if the step held this, too.
    fn fits_time(&self, draft: &Draft, load: StepLoad) -> bool {
        let predicted = self.predict(&(draft.plan.load + load));
        draft.limit.zip(predicted).is_none_or(|(limit, predicted)| predicted <= limit)
    }
}
