//! How a step is planned.
//!
//! ```text
//! policy's order ─▶ decodes ─▶ prompts under way ─▶ admissions ─▶ decodes that found no token before ─▶ batches
//! ```
//! Decodes take their blocks first and by age, whoever comes first in the budget: an old sequence must find those whose
//! blocks it may take still without a chunk.
//!
//! The planner reads an [`Outlook`] and asks a [`World`] for the rest: the actual one takes blocks ([`super::blocks`]), the
//! expected one only counts them ([`super::ahead`]). So there is one way to plan.

use std::cmp::Reverse;
use std::collections::HashSet;

use crate::kv::OutOfBlocks;
use crate::report::{Preempted, Wait};
use crate::units::{BlockId, Micros, SeqId};

use super::background::Aside;
use super::budget::{Draft, MIN_CHUNK};
use super::cost::StepLoad;
use super::outlook::{Outlook, Seat};
use super::plan::Found;
use super::policy::{PolicyKind, SchedulingPlan};

/// Steps after which a running sequence that was passed over comes first, whatever the policy prefers.
const PATIENCE: u32 = 8;

/// What cannot be read off an [`Outlook`].
pub(super) trait World {
    /// Why there is no answer; uninhabited where there always is one.
    type Unknown;

    /// How long ago `at` was.
    fn since(&self, at: Micros) -> Result<Micros, Self::Unknown>;

    /// Grows a sequence's table until `tokens` fit, and says so in its row. All or nothing.
    fn grow(&mut self, seat: &mut Seat, tokens: usize) -> Result<Result<(), OutOfBlocks>, Self::Unknown>;

    /// A running sequence gives its blocks back.
    fn preempt(&mut self, seq: SeqId) -> Result<(), Self::Unknown>;

    /// Gives the first of the queue blocks for all that it knows and the token to be drawn, so that `owed` are left.
    /// `affordable` says how many tokens it may compute when so many are cached. Or what it waits for, and nothing changed.
    fn admit(&mut self, owed: usize, affordable: Affordable) -> Result<Result<Admitted, Wait>, Self::Unknown>;
}

pub(super) type Affordable<'a> = &'a dyn Fn(usize) -> Result<usize, Wait>;

/// A sequence that has just got its blocks.
pub(super) struct Admitted {
    pub seat: Seat,
    pub tokens: usize,
    pub found: Found,
    pub copy: Option<(BlockId, BlockId)>,
}

/// A planned step, and what planning it changed: the policy's memory, who was passed over.
#[derive(Debug)]
pub(super) struct Decided {
    pub draft: Draft,
    pub outlook: Outlook,
}

/// A step while it is planned. `outlook` follows what was decided so far.
pub(super) struct Planner<W> {
    pub outlook: Outlook,
    pub world: W,
    pub draft: Draft,
    pub aside: Aside,
}

impl<W: World> Planner<W> {
    /// Every running sequence decodes that finds room; the policy says who comes first, and each comes within bounded
    /// time. While some decode, prefills are cut so that the step stays within `max_stall`. Admissions stop at the first
    /// that does not fit.
    pub fn decide(mut outlook: Outlook, world: W) -> Result<Decided, W::Unknown> {
        let mut draft = Draft::new(outlook.config.step_tokens(), outlook.sequences_per_step());
        draft.whole_prompts = outlook.config.whole_prompts;
        let aside = outlook.set_aside();
        let yields = !aside.is_empty();
        let mut planner = Planner { outlook, world, draft, aside };
        let mut prompts_wait = planner.fill()?;
        if yields {
            prompts_wait = prompts_wait.or(planner.fill_with_batches()?);
        }
        planner.settle(prompts_wait);
        Ok(Decided { draft: planner.draft, outlook: planner.outlook })
    }

    /// Returns why prompts that were not planned have to wait, if there is one reason for all.
    fn fill(&mut self) -> Result<Option<Wait>, W::Unknown> {
        let starved = self.starved_prompt();
        let slots = self.draft.slots_beside(starved.map(|(_, tokens)| tokens));
        let turn = self.outlook.turn(slots);
        self.draft.limit = self.time_limit(slots);

        let decodes = self.first_decodes(&turn, slots)?;
        self.extend_decodes(&decodes)?;
        self.draft.to_come = self.decodes_to_come();
        let prompts = starved.map(|(seq, _)| seq).into_iter().chain(turn.prefill_ids.iter().copied());
        self.extend_prompts(prompts)?;
        let prompts_wait = if turn.prefill_ids.is_empty() { Some(Wait::DecodeBurst) } else { self.admit()? };
        self.extend_late_decodes(&turn)?;
        self.extend_oldest_if_nobody()?;
        Ok(prompts_wait)
    }

    /// The prompt under way that was passed over for longest, if for too long and longer than any decode, and the tokens to
    /// be kept for it: no more than half of what there are, if there are two.
    fn starved_prompt(&self) -> Option<(SeqId, usize)> {
        let age = |seat: &&Seat| (seat.passed_over, seat.is_decoding(), Reverse(seat.arrival));
        let longest = self.outlook.seats.iter().max_by_key(age)?;
        let starved = longest.passed_over >= PATIENCE && !longest.is_decoding();
        starved.then(|| (longest.seq, longest.remaining().min(MIN_CHUNK).min(self.draft.tokens.div_ceil(2))))
    }

    /// What the step may take so that none that decodes waits longer than `max_stall`, also when they need several steps
    /// to have each its turn.
    fn time_limit(&self, slots: usize) -> Option<Micros> {
        let turns = self.outlook.decoding().count().div_ceil(slots.max(1));
        self.outlook.config.max_stall.filter(|_| turns > 0).map(|stall| Micros(stall.0 / turns as u64))
    }

    /// Those that decode before any prompt takes tokens.
    fn first_decodes(&self, turn: &SchedulingPlan, slots: usize) -> Result<Vec<SeqId>, W::Unknown> {
        if self.outlook.policy.kind() == PolicyKind::Fair {
            // Its rotation is what keeps everyone going; exceptions would only put it out of step.
            return Ok(turn.decode_ids.clone());
        }
        let draft = &self.draft;
        let prompts = self.prompt_demand();
        let (ahead, ahead_tokens) = match self.outlook.policy.kind() {
            PolicyKind::Fair => (0, 0),
            PolicyKind::LatencyFirst => (prompts.prefills, prompts.prefill_tokens),
            PolicyKind::ThroughputFirst if turn.prefill_ids.is_empty() => (0, 0),
            // The burst is over, but a batch that stands still while prompts are computed is no throughput: they share.
            PolicyKind::ThroughputFirst => {
                let half = |all: usize| all.div_ceil(2);
                (prompts.prefills.min(half(draft.sequences)), prompts.prefill_tokens.min(half(draft.tokens)))
            }
        };
        let mut chosen = self.overdue_decodes(prompts)?;
        chosen.truncate(slots);
        let room = slots.min(draft.tokens.saturating_sub(ahead_tokens)).min(draft.sequences.saturating_sub(ahead));
        let others = turn.decode_ids.iter().filter(|seq| !chosen.contains(seq)).copied();
        let others: Vec<SeqId> = others.take(room.saturating_sub(chosen.len())).collect();
        Ok([chosen, others].concat())
    }

    /// The prompts that would go on if nobody decoded.
    fn prompt_demand(&self) -> StepLoad {
        let outlook = &self.outlook;
        let under_way = outlook.seats.iter().map(|seat| (seat.computed, seat.prefill_remaining()));
        let seats = outlook.open_seats().saturating_sub(outlook.seats.len());
        let admissible = outlook.queue.iter().take(seats).map(|queued| (0, queued.known));
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

    /// Decoding sequences that were passed over for too long, or whose next token would come later than `max_stall` after
    /// the last if `prompts` went before them; longest passed over first.
    fn overdue_decodes(&self, prompts: StepLoad) -> Result<Vec<SeqId>, W::Unknown> {
        // Whoever is left out now has its token at the end of the step after this one, so two steps count.
        let two_steps = self.draft.limit.map(|limit| {
            let load = self.draft.plan.load + prompts + self.decodes_to_come();
            let step = self.outlook.cost.predict(&load).unwrap_or(limit).min(limit);
            step + step
        });
        let lateness = two_steps.zip(self.outlook.config.max_stall);
        let mut overdue = Vec::new();
        for seat in self.outlook.decoding() {
            let late = match lateness {
                Some((steps, stall)) => {
                    // Without a time the token is new: this is the first plan after it.
                    let age = seat.token_at.map_or(Ok(Micros::ZERO), |at| self.world.since(at))?;
                    age + steps > stall
                }
                None => false,
            };
            if late || seat.passed_over >= PATIENCE {
                overdue.push(seat);
            }
        }
        overdue.sort_by_key(|seat| (Reverse(seat.passed_over), seat.arrival));
        Ok(overdue.into_iter().map(|seat| seat.seq).collect())
    }

    fn extend_decodes(&mut self, chosen: &[SeqId]) -> Result<(), W::Unknown> {
        let chosen: HashSet<SeqId> = chosen.iter().copied().collect();
        let by_age = self.outlook.seats.iter().map(|seat| seat.seq).filter(|seq| chosen.contains(seq));
        for seq in by_age.collect::<Vec<_>>() {
            self.extend(seq, 1)?;
        }
        Ok(())
    }

    fn unplanned_decodes(&self) -> impl Iterator<Item = &Seat> {
        let planned: HashSet<SeqId> = self.draft.plan.chunks.iter().map(|chunk| chunk.seq).collect();
        self.outlook.decoding().filter(move |seat| !planned.contains(&seat.seq))
    }

    fn decodes_to_come(&self) -> StepLoad {
        let decodes = self.unplanned_decodes().take(self.draft.slots());
        decodes.fold(StepLoad::default(), |sum, seat| sum + StepLoad::decode(seat.known))
    }

    /// Prompts under way, in the given order.
    pub(super) fn extend_prompts(&mut self, order: impl Iterator<Item = SeqId>) -> Result<(), W::Unknown> {
        for seq in order {
            if self.draft.plan.holds(seq) {
                continue;
            }
            let Some(seat) = self.outlook.find_mut(seq).copied() else { continue };
            match self.draft.affordable(seat.computed, seat.remaining(), &self.outlook.cost) {
                Ok(tokens) => self.extend(seq, tokens)?,
                Err(short) => self.draft.plan.waits.push((seq, short)),
            }
        }
        Ok(())
    }

    /// Decodes that the prompts left room for after all.
    fn extend_late_decodes(&mut self, turn: &SchedulingPlan) -> Result<(), W::Unknown> {
        let late: Vec<SeqId> = self.unplanned_decodes().map(|seat| seat.seq).collect();
        let preferred = turn.decode_ids.iter().filter(|seq| late.contains(seq));
        let others = late.iter().filter(|seq| !turn.decode_ids.contains(seq));
        let chosen: Vec<SeqId> = preferred.chain(others).take(self.draft.slots()).copied().collect();
        self.extend_decodes(&chosen)
    }

    /// When everyone who had a turn gave way, the oldest goes on: a step that plans nothing would come back for ever.
    pub(super) fn extend_oldest_if_nobody(&mut self) -> Result<(), W::Unknown> {
        match (self.draft.plan.chunks.is_empty(), self.outlook.seats.first()) {
            (true, Some(oldest)) => self.extend(oldest.seq, self.draft.tokens),
            _ => Ok(()),
        }
    }

    /// Plans up to `tokens` of a running sequence, preempting until its blocks fit. Without effect when it is itself gone:
    /// preempted for an older one, or the victim of its own growth.
    pub(super) fn extend(&mut self, seq: SeqId, tokens: usize) -> Result<(), W::Unknown> {
        while let Some(seat) = self.outlook.find_mut(seq) {
            let chunk = seat.chunk(tokens);
            if self.world.grow(seat, chunk.tokens.end as usize)?.is_ok() {
                self.draft.push(chunk);
                return Ok(());
            }
            let is_batch = seat.is_batch();
            if self.evict(seq)? {
                continue;
            }
            // Whoever already has its chunk in this step keeps its blocks: the step will write to them. A batch takes
            // nobody else's.
            let seats = &self.outlook.seats;
            let may_yield = |seat: &&Seat| !self.draft.plan.holds(seat.seq) && (seat.is_batch() || !is_batch);
            let candidates = seats.iter().filter(may_yield);
            match self.outlook.config.preemption.victim(candidates, seats, self.outlook.policy.kind()) {
                Some(victim) => {
                    self.world.preempt(victim)?;
                    self.outlook.unseat(victim);
                    self.draft.plan.preempted.push(Preempted { seq: victim, by: seq });
                }
                None => {
                    self.draft.plan.waits.push((seq, Wait::Blocks));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// First come first served: stops at the first sequence that finds no seat, no budget, no time, or not enough blocks for
    /// its known tokens, and says which it was.
    pub(super) fn admit(&mut self) -> Result<Option<Wait>, W::Unknown> {
        // Who was just preempted must not take the blocks back in the same step.
        let preempted = &self.draft.plan.preempted;
        if self.outlook.queue.iter().any(|queued| preempted.iter().any(|preempted| preempted.seq == queued.seq)) {
            return Ok(Some(Wait::Blocks));
        }
        let owed = self.blocks_owed();
        while let Some(first) = self.outlook.queue.front().copied() {
            if self.outlook.seats.len() >= self.outlook.open_seats() {
                let hot = self.outlook.seats.len() < self.outlook.config.max_num_seqs;
                return Ok(Some(if hot { Wait::Thermal } else { Wait::Seats }));
            }
            if let Some(short) = self.draft.short() {
                return Ok(Some(short));
            }
            self.evict_for_seat(first.seq)?;
            let affordable = |cached| self.draft.affordable(cached, first.known - cached, &self.outlook.cost);
            match self.world.admit(owed, &affordable)? {
                Ok(admitted) => self.take_in(admitted),
                Err(Wait::Blocks) if self.evict(first.seq)? => {}
                Err(short) => return Ok(Some(short)),
            }
        }
        Ok(None)
    }

    fn take_in(&mut self, admitted: Admitted) {
        let Admitted { seat, tokens, found, copy } = admitted;
        self.draft.plan.admitted.push(seat.seq);
        self.draft.plan.found.push(found);
        self.draft.plan.copies.extend(copy);
        self.draft.push(seat.chunk(tokens));
        self.outlook.seat(seat);
    }

    /// Blocks that decodes without a chunk will still ask for in this step or the next.
    fn blocks_owed(&self) -> usize {
        self.unplanned_decodes().filter(|seat| seat.known.div_ceil(self.outlook.block_size) > seat.blocks).count()
    }

    /// Names who has to wait, and counts for how long.
    fn settle(&mut self, prompts_wait: Option<Wait>) {
        let full = self.draft.short();
        let plan = &mut self.draft.plan;
        let planned: HashSet<SeqId> = plan.chunks.iter().map(|chunk| chunk.seq).collect();
        plan.waits.retain(|(seq, _)| !planned.contains(seq));
        let told: HashSet<SeqId> = plan.waits.iter().map(|(seq, _)| *seq).collect();
        for seat in &mut self.outlook.seats {
            if planned.contains(&seat.seq) {
                seat.passed_over = 0;
                continue;
            }
            let meant_to_wait = prompts_wait == Some(Wait::DecodeBurst) && !seat.is_decoding();
            seat.passed_over += u32::from(!meant_to_wait);
            if !told.contains(&seat.seq) {
                let cause = if meant_to_wait { Wait::DecodeBurst } else { full.unwrap_or(Wait::TokenBudget) };
                plan.waits.push((seat.seq, cause));
            }
        }
        let preempted = |seq: SeqId| plan.preempted.iter().any(|preempted| preempted.seq == seq);
        let cause = |seq| if preempted(seq) { Wait::Blocks } else { prompts_wait.unwrap_or(Wait::Blocks) };
        let waiting = self.outlook.queue.iter().map(|queued| queued.seq).filter(|seq| !told.contains(seq));
        let waiting: Vec<(SeqId, Wait)> = waiting.map(|seq| (seq, cause(seq))).collect();
        plan.waits.extend(waiting);
        plan.predicted = self.outlook.cost.predict(&plan.load);
    }
}
