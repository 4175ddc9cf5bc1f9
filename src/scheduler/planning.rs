//! How a step is planned.
//!
//! ```text
//! policy's order ─▶ decodes ─▶ prompts under way ─▶ admissions ─▶ decodes that found no token before ─▶ batches
//! ```
//! Decodes take their blocks first and by age, whoever comes first in the budget: an old sequence must find those whose
//! blocks it may take still without a chunk.

use std::cmp::Reverse;
use std::collections::HashSet;

use crate::kv::BlockPool;
use crate::report::Wait;
use crate::units::{Micros, SeqId};

use super::Scheduler;
use super::budget::{Draft, MIN_CHUNK};
use super::cost::StepLoad;
use super::plan::StepPlan;
use super::policy::thermal::Level;
use super::policy::{PolicyKind, SchedulingPlan};
use super::sequence::{Running, Waiting};

/// Steps after which a running sequence that was passed over comes first, whatever the policy prefers.
const PATIENCE: u32 = 8;

impl Scheduler {
    /// The next step, blocks taken for it; `None` when nothing is live or the heat forbids any step. Each plan must be
    /// committed.
    ///
    /// Every running sequence decodes that finds room; the policy says who comes first, and each comes within bounded
    /// time. While some decode, prefills are cut so that the step stays within `max_stall`. Admissions stop at the first
    /// that does not fit.
    pub fn plan(&mut self, pool: &mut BlockPool, now: Micros) -> Option<StepPlan> {
        if self.heat == Level::Emergency || (self.running.is_empty() && self.waiting.is_empty()) {
            return None;
        }
        self.running.iter_mut().filter(|r| r.is_decoding()).for_each(|r| _ = r.token_at.get_or_insert(now));
        let mut draft = Draft::new(self.config.max_num_batched_tokens, self.sequences_per_step());
        let yields = self.set_aside();
        let starved = self.starved_prompt(draft.tokens);
        let slots = draft.slots_beside(starved.map(|(_, tokens)| tokens));
        let turn = self.turn(slots);
        draft.limit = self.time_limit(slots);

        let decodes = self.first_decodes(&turn, slots, &draft, now);
        self.extend_decodes(&decodes, &mut draft, pool);
        draft.to_come = self.decodes_to_come(&draft);
        let prompts = starved.map(|(seq, _)| seq).into_iter().chain(turn.prefill_ids.iter().copied());
        self.extend_prompts(prompts, &mut draft, pool);
        let mut prompts_wait =
            if turn.prefill_ids.is_empty() { Some(Wait::DecodeBurst) } else { self.admit(&mut draft, pool) };
        self.extend_late_decodes(&turn, &mut draft, pool);
        self.extend_oldest_if_nobody(&mut draft, pool);
        self.speculate(&mut draft, pool);
        if yields {
            self.bring_back();
            prompts_wait = prompts_wait.or(self.fill(&mut draft, pool));
            self.extend_oldest_if_nobody(&mut draft, pool);
        }
        let plan = self.settle(draft, prompts_wait);
        (!plan.chunks.is_empty()).then_some(plan)
    }

    /// Heat halves the batch; else everyone running may be in it, also while surplus seats drain.
    fn sequences_per_step(&self) -> usize {
        match self.heat {
            Level::Nominal | Level::Fair => usize::MAX,
            Level::Serious | Level::Critical | Level::Emergency => (self.config.max_num_seqs / 2).max(1),
        }
    }

    /// The prompt under way that was passed over for longest, if for too long and longer than any decode, and the tokens to
    /// be kept for it: no more than half of what there are, if there are two.
    fn starved_prompt(&self, tokens: usize) -> Option<(SeqId, usize)> {
        let longest = self.running.iter().max_by_key(|r| (r.passed_over, r.is_decoding(), Reverse(r.arrival)))?;
        let starved = longest.passed_over >= PATIENCE && !longest.is_decoding();
        starved.then(|| (longest.id(), longest.remaining().min(MIN_CHUNK).min(tokens.div_ceil(2))))
    }

    fn turn(&mut self, slots: usize) -> SchedulingPlan {
        let sessions: Vec<_> =
            self.running.iter().map(Running::session).chain(self.waiting.iter().map(Waiting::session)).collect();
        let policy = if self.only_batches() { &mut self.aside.policy } else { &mut self.policy };
        policy.tick(&sessions, slots)
    }

    /// What the step may take so that none that decodes waits longer than `max_stall`, also when they need several steps
    /// to have each its turn.
    fn time_limit(&self, slots: usize) -> Option<Micros> {
        let decoding = self.running.iter().filter(|r| r.is_decoding()).count();
        let turns = decoding.div_ceil(slots.max(1));
        self.config.max_stall.filter(|_| turns > 0).map(|stall| Micros(stall.0 / turns as u64))
    }

    /// Those that decode before any prompt takes tokens.
    fn first_decodes(&self, turn: &SchedulingPlan, slots: usize, draft: &Draft, now: Micros) -> Vec<SeqId> {
        if self.policy.kind() == PolicyKind::Fair {
            // Its rotation is what keeps everyone going; exceptions would only put it out of step.
            return turn.decode_ids.clone();
        }
        let prompts = self.prompt_demand(draft);
        let (ahead, ahead_tokens) = match self.policy.kind() {
            PolicyKind::Fair => (0, 0),
            PolicyKind::LatencyFirst => (prompts.prefills, prompts.prefill_tokens),
            PolicyKind::ThroughputFirst if turn.prefill_ids.is_empty() => (0, 0),
            // The burst is over, but a batch that stands still while prompts are computed is no throughput: they share.
            PolicyKind::ThroughputFirst => {
                let half = |all: usize| all.div_ceil(2);
                (prompts.prefills.min(half(draft.sequences)), prompts.prefill_tokens.min(half(draft.tokens)))
            }
        };
        let mut chosen = self.overdue_decodes(prompts, draft, now);
        chosen.truncate(slots);
        let room = slots.min(draft.tokens.saturating_sub(ahead_tokens)).min(draft.sequences.saturating_sub(ahead));
        let others = turn.decode_ids.iter().filter(|seq| !chosen.contains(seq)).copied();
        let others: Vec<SeqId> = others.take(room.saturating_sub(chosen.len())).collect();
        [chosen, others].concat()
    }

    /// The prompts that would go on if nobody decoded.
    fn prompt_demand(&self, draft: &Draft) -> StepLoad {
        let under_way = self.running.iter().map(|r| (r.computed as usize, r.prefill_remaining()));
        let seats = self.seats().saturating_sub(self.running.len());
        let admissible = self.waiting.iter().take(seats).map(|w| (0, w.known()));
        let mut tokens = draft.tokens;
        let mut demand = StepLoad::default();
        for (computed, remaining) in under_way.chain(admissible).filter(|(_, remaining)| *remaining > 0) {
            let chunk = remaining.min(tokens);
            if chunk == 0 || demand.prefills == draft.sequences {
                break;
            }
            tokens -= chunk;
            demand = demand + StepLoad::prefill(computed, chunk);
        }
        demand
    }

    /// Decoding sequences that were passed over for too long, or whose next token would come later than `max_stall` after
    /// the last if `prompts` went before them; longest passed over first.
    fn overdue_decodes(&self, prompts: StepLoad, draft: &Draft, now: Micros) -> Vec<SeqId> {
        // Whoever is left out now has its token at the end of the step after this one, so two steps count.
        let two_steps = draft.limit.map(|limit| {
            let load = draft.plan.load + prompts + self.decodes_to_come(draft);
            let step = self.predict(&load).unwrap_or(limit).min(limit);
            step + step
        });
        let is_late = |r: &Running| {
            let age = now.since(r.token_at.unwrap_or(now));
            two_steps.zip(self.config.max_stall).is_some_and(|(steps, stall)| age + steps > stall)
        };
        let decoding = self.running.iter().filter(|r| r.is_decoding());
        let mut overdue: Vec<&Running> = decoding.filter(|r| r.passed_over >= PATIENCE || is_late(r)).collect();
        overdue.sort_by_key(|r| (Reverse(r.passed_over), r.arrival));
        overdue.into_iter().map(Running::id).collect()
    }

    fn extend_decodes(&mut self, chosen: &[SeqId], draft: &mut Draft, pool: &mut BlockPool) {
        let chosen: HashSet<SeqId> = chosen.iter().copied().collect();
        let by_age: Vec<SeqId> = self.running.iter().map(Running::id).filter(|seq| chosen.contains(seq)).collect();
        for seq in by_age {
            self.extend(seq, 1, draft, pool);
        }
    }

    pub(super) fn unplanned_decodes(&self, draft: &Draft) -> impl Iterator<Item = &Running> {
        let planned: HashSet<SeqId> = draft.plan.chunks.iter().map(|chunk| chunk.seq).collect();
        self.running.iter().filter(move |r| r.is_decoding() && !planned.contains(&r.id()))
    }

    fn decodes_to_come(&self, draft: &Draft) -> StepLoad {
        let decodes = self.unplanned_decodes(draft).take(draft.slots());
        decodes.fold(StepLoad::default(), |sum, r| sum + StepLoad::decode(r.tokens().len()))
    }

    /// Prompts under way, in the given order.
    pub(super) fn extend_prompts(
        &mut self,
        order: impl Iterator<Item = SeqId>,
        draft: &mut Draft,
        pool: &mut BlockPool,
    ) {
        for seq in order {
            let Some(running) = self.find(seq).filter(|_| !draft.plan.holds(seq)) else { continue };
            match draft.affordable(running.computed as usize, running.remaining(), &self.cost) {
                Ok(tokens) => self.extend(seq, tokens, draft, pool),
                Err(short) => draft.plan.waits.push((seq, short)),
            }
        }
    }

    /// Decodes that the prompts left room for after all.
    fn extend_late_decodes(&mut self, turn: &SchedulingPlan, draft: &mut Draft, pool: &mut BlockPool) {
        let late: Vec<SeqId> = self.unplanned_decodes(draft).map(Running::id).collect();
        let preferred = turn.decode_ids.iter().filter(|seq| late.contains(seq));
        let others = late.iter().filter(|seq| !turn.decode_ids.contains(seq));
        let chosen: Vec<SeqId> = preferred.chain(others).take(draft.slots()).copied().collect();
        self.extend_decodes(&chosen, draft, pool);
    }

    /// When everyone who had a turn gave way, the oldest goes on: a step that plans nothing would come back for ever.
    fn extend_oldest_if_nobody(&mut self, draft: &mut Draft, pool: &mut BlockPool) {
        if let (true, Some(oldest)) = (draft.plan.chunks.is_empty(), self.running.first()) {
            self.extend(oldest.id(), draft.tokens, draft, pool);
        }
    }

    /// Names who has to wait, and counts for how long.
    fn settle(&mut self, draft: Draft, prompts_wait: Option<Wait>) -> StepPlan {
        let full = draft.short();
        let mut plan = draft.plan;
        let planned: HashSet<SeqId> = plan.chunks.iter().map(|chunk| chunk.seq).collect();
        plan.waits.retain(|(seq, _)| !planned.contains(seq));
        let told: HashSet<SeqId> = plan.waits.iter().map(|(seq, _)| *seq).collect();
        for running in &mut self.running {
            if planned.contains(&running.id()) {
                running.passed_over = 0;
                continue;
            }
            let meant_to_wait = prompts_wait == Some(Wait::DecodeBurst) && !running.is_decoding();
            running.passed_over += u32::from(!meant_to_wait);
            if !told.contains(&running.id()) {
                let cause = if meant_to_wait { Wait::DecodeBurst } else { full.unwrap_or(Wait::TokenBudget) };
                plan.waits.push((running.id(), cause));
            }
        }
        let preempted = |seq: SeqId| plan.preempted.iter().any(|preempted| preempted.seq == seq);
        let cause = |seq| if preempted(seq) { Wait::Blocks } else { prompts_wait.unwrap_or(Wait::Blocks) };
        let waiting = self.waiting.iter().map(Waiting::id).filter(|seq| !told.contains(seq));
        let waiting: Vec<(SeqId, Wait)> = waiting.map(|seq| (seq, cause(seq))).collect();
        plan.waits.extend(waiting);
        plan.predicted = self.predict(&plan.load);
        plan
    }
}
