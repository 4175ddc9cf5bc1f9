//! How a step is planned.
//!
//! ```text
//! seats for the urgent ─▶ policy's order ─▶ decodes ─▶ by class: prompts under way, admissions ─▶ decodes left over ─▶ batches
//! ```
//! Decodes take their blocks first, by class and age, whoever comes first in the budget: an old sequence must find those whose
//! blocks it may take still without a chunk.

use std::cmp::Reverse;
use std::collections::HashSet;

use crate::report::Wait;
use crate::request::Priority;
use crate::units::{Micros, SeqId};

use super::budget::{Draft, MIN_CHUNK};
use super::cost::StepLoad;
use super::planner::Planner;
use super::policy::{PolicyKind, SchedulingPlan};
use super::sequence::{Running, Waiting};

/// Steps after which a running sequence that was passed over comes first, whatever the policy prefers.
const PATIENCE: u32 = 8;

/// A prompt that was passed over for too long.
#[derive(Clone, Copy)]
struct Starved {
    seq: SeqId,
    /// What is kept for it of a step: no more than half of what there is, if there are two.
    tokens: usize,
}

impl Planner<'_> {
    /// Every running sequence decodes that finds room; the policy says who comes first, and each comes within bounded
    /// time. While some decode, prefills are cut so that the step stays within `max_stall`. Admissions stop at the first
    /// that does not fit.
    pub fn plan(mut self) -> Draft {
        self.aside = self.queues.set_batches_aside();
        let yields = !self.aside.is_empty();
        let mut prompts_wait = self.fill();
        if yields {
            prompts_wait = prompts_wait.or(self.fill_with_batches());
        }
        self.settle(prompts_wait);
        self.draft
    }

    /// Returns why prompts that were not planned have to wait, if there is one reason for all.
    fn fill(&mut self) -> Option<Wait> {
        self.make_way();
        let starved = self.starved_prompt();
        let kept = starved.map(|starved| starved.tokens).max(self.kept_for_urgent());
        let slots = self.draft.slots_beside(kept);
        let turn = self.turn(slots);
        self.draft.limit = self.time_limit(slots);

        let decodes = self.first_decodes(&turn, slots);
        self.extend_decodes(&decodes);
        self.draft.to_come = self.decodes_to_come();
        starved.into_iter().for_each(|starved| self.extend_starved(starved));
        let prompts_wait = self.prompts(&turn);
        self.extend_late_decodes(&turn);
        self.extend_oldest_if_nobody();
        prompts_wait
    }

    /// Class by class: prompts under way in the policy's order, then those that wait.
    fn prompts(&mut self, turn: &SchedulingPlan) -> Option<Wait> {
        if turn.prefill_ids.is_empty() && self.queues.waiting.iter().all(|w| w.request().priority() != Priority::Batch)
        {
            let waits = self.queues.running.iter().any(|r| !r.is_decoding()) || !self.queues.waiting.is_empty();
            return waits.then_some(Wait::DecodeBurst);
        }
        let mut wait = None;
        for class in Priority::ALL {
            let of_class =
                |seq: &&SeqId| self.queues.find(**seq).is_some_and(|running| running.request().priority() == class);
            let under_way: Vec<SeqId> = turn.prefill_ids.iter().filter(of_class).copied().collect();
            self.extend_prompts(under_way.into_iter());
            wait = self.admit(class);
        }
        wait
    }

    /// Tokens that prompts above class normal would compute in this step, up to half of what there are.
    fn kept_for_urgent(&self) -> Option<usize> {
        let running = self.queues.running.iter().map(|r| (r.request().priority(), r.prefill_remaining()));
        let waiting = self.queues.waiting.iter().map(|w| (w.request().priority(), w.known()));
        let tokens: usize = running.chain(waiting).filter(|(class, _)| *class <= Priority::High).map(|(_, t)| t).sum();
        (tokens > 0).then(|| tokens.min(self.draft.tokens.div_ceil(2)))
    }

    /// The prompt that was passed over for longest, if for too long and longer than any decode: one under way, or the
    /// first of a class that has none under way and waits for room in a step, which would else wait for as long as prompts of more
    /// urgent classes come.
    fn starved_prompt(&self) -> Option<Starved> {
        let running = self.queues.running.iter().map(|running| {
            (running.passed_over, running.is_decoding(), Reverse(running.arrival), running.id(), running.remaining())
        });
        let waiting =
            self.queues.waiting.iter().filter(|waiting| !self.computes_prompt_of(waiting.request().priority()));
        let waiting = waiting.map(|w| (w.passed_over, false, Reverse(w.arrival), w.id(), w.known()));
        let (passed_over, is_decoding, _, seq, remaining) = running.chain(waiting).max()?;
        let starved = passed_over >= PATIENCE && !is_decoding;
        starved.then(|| Starved { seq, tokens: remaining.min(MIN_CHUNK).min(self.draft.tokens.div_ceil(2)) })
    }

    fn computes_prompt_of(&self, class: Priority) -> bool {
        self.queues.running.iter().any(|running| !running.is_decoding() && running.request().priority() == class)
    }

    fn extend_starved(&mut self, Starved { seq, tokens }: Starved) {
        match self.queues.waiting.iter().position(|waiting| waiting.id() == seq) {
            Some(at) => self.admit_alone(at, tokens),
            None => self.extend_prompts(std::iter::once(seq)),
        }
    }

    /// What the step may take so that none that decodes waits longer than `max_stall`, also when they need several steps
    /// to have each its turn.
    fn time_limit(&self, slots: usize) -> Option<Micros> {
        let turns = self.queues.decoding().count().div_ceil(slots.max(1));
        self.stall_limit().filter(|_| turns > 0).map(|stall| Micros(stall.0 / turns as u64))
    }

    fn stall_limit(&self) -> Option<Micros> {
        self.queues.stall_limit(&self.config)
    }

    /// Those that decode before any prompt takes tokens.
    fn first_decodes(&self, turn: &SchedulingPlan, slots: usize) -> Vec<SeqId> {
        if matches!(self.policy.kind(), PolicyKind::Fair | PolicyKind::Slo) {
            // Its rotation is what keeps everyone going; exceptions would only put it out of step.
            return turn.decode_ids.clone();
        }
        let draft = &self.draft;
        let prompts = self.prompt_demand();
        let (ahead, ahead_tokens) = match self.policy.kind() {
            PolicyKind::Fair | PolicyKind::Slo => (0, 0),
            PolicyKind::LatencyFirst => (prompts.prefills, prompts.prefill_tokens),
            PolicyKind::ThroughputFirst if turn.prefill_ids.is_empty() => (0, 0),
            // The burst is over, but a batch that stands still while prompts are computed is no throughput: they share.
            PolicyKind::ThroughputFirst => {
                let half = |all: usize| all.div_ceil(2);
                (prompts.prefills.min(half(draft.sequences)), prompts.prefill_tokens.min(half(draft.tokens)))
            }
        };
        let mut chosen = self.overdue_decodes(prompts);
        chosen.truncate(slots);
        let room = slots.min(draft.tokens.saturating_sub(ahead_tokens)).min(draft.sequences.saturating_sub(ahead));
        let others = turn.decode_ids.iter().filter(|seq| !chosen.contains(seq)).copied();
        let others: Vec<SeqId> = others.take(room.saturating_sub(chosen.len())).collect();
        [chosen, others].concat()
    }

    /// The prompts that would go on if nobody decoded.
    fn prompt_demand(&self) -> StepLoad {
        let running = self.queues.running.iter();
        let under_way = running.map(|running| (running.computed as usize, running.prefill_remaining()));
        let seats = self.open_seats().saturating_sub(self.queues.running.len());
        let admissible = self.queues.waiting.iter().take(seats).map(|waiting| (0, waiting.known()));
        let mut tokens = self.draft.tokens;
        let mut demand = StepLoad::default();
        for (computed, remaining) in under_way.chain(admissible).filter(|(_, remaining)| *remaining > 0) {
            let chunk = remaining.min(tokens);
            if chunk == 0 || demand.prefills == self.draft.sequences {
                break;
            }
            tokens -= chunk;
            demand = demand + StepLoad::prefill(computed, chunk);
        }
        demand
    }

    /// Decoding sequences that were passed over for too long, or whose next token would come later than the limit on stalls after
    /// the last if `prompts` went before them; longest passed over first.
    fn overdue_decodes(&self, prompts: StepLoad) -> Vec<SeqId> {
        // Whoever is left out now has its token at the end of the step after this one, so two steps count.
        let two_steps = self.draft.limit.map(|limit| {
            let load = self.draft.plan.load + prompts + self.decodes_to_come();
            let step = self.cost.predict(&load).unwrap_or(limit).min(limit);
            step + step
        });
        let lateness = two_steps.zip(self.stall_limit());
        let is_late = |running: &Running| {
            lateness.is_some_and(|(steps, stall)| {
                // Without a time the token is new: this is the first plan after it.
                let age = running.token_at.map_or(Micros::ZERO, |at| self.now.since(at));
                age + steps > stall
            })
        };
        let decoding = self.queues.decoding();
        let mut overdue: Vec<&Running> =
            decoding.filter(|running| is_late(running) || running.passed_over >= PATIENCE).collect();
        overdue.sort_by_key(|running| (Reverse(running.passed_over), running.arrival));
        overdue.into_iter().map(Running::id).collect()
    }

    fn extend_decodes(&mut self, chosen: &[SeqId]) {
        let chosen: HashSet<SeqId> = chosen.iter().copied().collect();
        let by_age = self.queues.running.iter().map(Running::id).filter(|seq| chosen.contains(seq));
        for seq in by_age.collect::<Vec<_>>() {
            self.extend(seq, 1);
        }
    }

    fn decodes_to_come(&self) -> StepLoad {
        let decodes = self.unplanned_decodes().take(self.draft.slots());
        decodes.fold(StepLoad::default(), |sum, running| sum + StepLoad::decode(running.known()))
    }

    /// Decodes that the prompts left room for after all.
    fn extend_late_decodes(&mut self, turn: &SchedulingPlan) {
        let late: Vec<SeqId> = self.unplanned_decodes().map(Running::id).collect();
        let preferred = turn.decode_ids.iter().filter(|seq| late.contains(seq));
        let others = late.iter().filter(|seq| !turn.decode_ids.contains(seq));
        let chosen: Vec<SeqId> = preferred.chain(others).take(self.draft.slots()).copied().collect();
        self.extend_decodes(&chosen);
    }

    /// Names who has to wait, and counts for how long.
    fn settle(&mut self, prompts_wait: Option<Wait>) {
        let full = self.draft.short();
        let plan = &mut self.draft.plan;
        let planned: HashSet<SeqId> = plan.chunks.iter().map(|chunk| chunk.seq).collect();
        plan.waits.retain(|(seq, _)| !planned.contains(seq));
        let told: HashSet<SeqId> = plan.waits.iter().map(|(seq, _)| *seq).collect();
        for running in &mut self.queues.running {
            if running.is_decoding() {
                running.token_at.get_or_insert(self.now);
            }
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
        let meant_to_wait = prompts_wait == Some(Wait::DecodeBurst);
        self.queues.waiting.iter_mut().for_each(|waiting| waiting.passed_over += u32::from(!meant_to_wait));
        let waiting = self.queues.waiting.iter().map(Waiting::id).filter(|seq| !told.contains(seq));
        let waiting: Vec<(SeqId, Wait)> = waiting.map(|seq| (seq, cause(seq))).collect();
        plan.waits.extend(waiting);
    }
}
