//! One step: who computes what, and whose blocks it takes.

use std::collections::BTreeSet;

use super::budget::Draft;
use super::plan::StepPlan;
use super::policy::{PolicyKind, SchedulingPlan, SessionView};
use super::sequence::{Running, Waiting};
use super::thermal::Level;
use super::{BlockPool, BlockTable, Scheduler};
use crate::report::{Preempted, Wait};
use crate::units::{Micros, SeqId};

impl Scheduler {
    /// The next step, blocks taken for it; `None` when nothing is live, or nothing may run. Each plan must be committed.
    ///
    /// All who decode do so as far as the step has room. The policy says in which order, and whether prefills (those under
    /// way, then admissions in the order of the queue) come after them, before them, or later.
    pub fn plan(&mut self, pool: &mut BlockPool, now: Micros) -> Option<StepPlan> {
        if self.thermal == Level::Emergency {
            return None;
        }
        let cost = self.cost.clone();
        let mut draft = self.draft(&cost);
        let turn = self.turn(draft.tokens());
        // Blocks first: who decodes must not lose a step to a newcomer that took the last one.
        for seq in self.oldest_first(turn.decode_ids.clone()) {
            if self.make_room(seq, 1, &mut draft, pool) {
                draft.keep(seq);
            }
        }
        let ready: Vec<SeqId> = turn.decode_ids.into_iter().filter(|seq| draft.keeps(*seq)).collect();
        if self.config.policy.kind == PolicyKind::LatencyFirst {
            // Prefill wins, but not against a stream that has waited as long as it may.
            let (late, others) = ready.into_iter().partition::<Vec<_>, _>(|&seq| self.is_late(seq, &draft, now));
            self.decode(&late, &mut draft, now);
            self.prefill(&turn.prefill_ids, &mut draft, pool, now);
            self.decode(&others, &mut draft, now);
        } else {
            self.decode(&ready, &mut draft, now);
            self.prefill(&turn.prefill_ids, &mut draft, pool, now);
        }
        if draft.plan.chunks.is_empty() {
            self.rescue(&mut draft, pool, now);
        }
        self.explain(&turn.prefill_ids, &mut draft);
        let plan = draft.finish();
        (!plan.chunks.is_empty()).then_some(plan)
    }

    fn turn(&mut self, tokens: usize) -> SchedulingPlan {
        let sessions = self.sessions();
        let mut slots = self.seats().min(tokens);
        if self.config.policy.kind == PolicyKind::LatencyFirst {
            // It gives slots to prefills before decodes. Here both share the tokens and seats that the draft counts, and a
            // prompt that finds no seat must not keep anyone from decoding.
            slots += sessions.iter().filter(|session| !session.decoding).count();
        }
        self.policy.tick(&sessions, slots)
    }

    fn draft<'a>(&self, cost: &'a super::StepCost) -> Draft<'a> {
        let full = if self.thermal >= Level::Serious { Wait::Thermal } else { Wait::Seats };
        let stall = self.config.max_stall.filter(|_| self.running.iter().any(Running::decodes));
        Draft::new(self.config.max_num_batched_tokens, self.seats(), full, stall, cost)
    }

    fn sessions(&self) -> Vec<SessionView> {
        let running = self.running.iter().map(|running| SessionView {
            id: running.id(),
            decoding: running.decodes(),
            current_token: running.tokens().last().copied().filter(|_| running.decodes()),
            generated: running.generated(),
            arrival: running.arrival,
            prefill_remaining: if running.decodes() { 0 } else { running.remaining() },
        });
        let waiting = self.waiting.iter().map(|waiting| SessionView {
            id: waiting.id(),
            decoding: false,
            current_token: None,
            generated: 0,
            arrival: waiting.arrival,
            prefill_remaining: waiting.known(),
        });
        running.chain(waiting).collect()
    }

    /// The oldest of all goes first where it is among them, so that what it needs is not taken by others of its step.
    fn oldest_first(&self, mut order: Vec<SeqId>) -> Vec<SeqId> {
        let oldest = self.running.first().map(Running::id);
        if let Some(at) = order.iter().position(|seq| Some(*seq) == oldest) {
            order[..=at].rotate_right(1);
        }
        order
    }

    /// Whether a stream would wait for longer than it may if this step went by without it.
    fn is_late(&self, seq: SeqId, draft: &Draft, now: Micros) -> bool {
        let (Some(limit), Some(running)) = (self.config.max_stall, self.find(seq)) else { return false };
        let step = self.cost.predict(&draft.plan.load).unwrap_or_default().max(Micros(limit.0 / 2));
        now.since(running.last_turn) + step > limit
    }

    /// Chunks for those whose blocks are there.
    fn decode(&mut self, ready: &[SeqId], draft: &mut Draft, now: Micros) {
        for &seq in ready {
            // Preempted for a later one of the same turn.
            let Some(running) = self.running.iter_mut().find(|running| running.id() == seq) else { continue };
            match draft.allows(1, running.computed as usize, true) {
                Ok(_) => {
                    running.last_turn = now;
                    draft.push(running.chunk(1));
                }
                Err(cause) => draft.waits(seq, cause),
            }
        }
    }

    /// Chunks for the prompts under way, in the policy's order, then seats for those who wait.
    fn prefill(&mut self, order: &[SeqId], draft: &mut Draft, pool: &mut BlockPool, now: Micros) {
        for &seq in order {
            let Some(running) = self.find(seq) else { continue };
            match draft.allows(running.remaining(), running.computed as usize, false) {
                Ok(tokens) => self.push_chunk(seq, tokens, draft, pool, now),
                Err(cause) => draft.waits(seq, cause),
            }
        }
        // Who was just preempted must not take the blocks back in the same step.
        if draft.plan.preempted.is_empty() && self.waiting.iter().any(|waiting| order.contains(&waiting.id())) {
            self.admit(draft, pool, now);
        }
    }

    fn push_chunk(&mut self, seq: SeqId, tokens: usize, draft: &mut Draft, pool: &mut BlockPool, now: Micros) {
        if !self.make_room(seq, tokens, draft, pool) {
            return;
        }
        if let Some(running) = self.running.iter_mut().find(|running| running.id() == seq) {
            running.last_turn = now;
            draft.push(running.chunk(tokens));
        }
    }

    /// Those whose turn it was gave up their blocks to others who were not asked: the oldest, who never does, goes on.
    fn rescue(&mut self, draft: &mut Draft, pool: &mut BlockPool, now: Micros) {
        if let Some(oldest) = self.running.first() {
            let (seq, tokens) = (oldest.id(), oldest.remaining().min(draft.tokens()));
            self.push_chunk(seq, tokens, draft, pool, now);
        }
    }

    /// Grows the sequence's table for its next chunk, preempting until it fits. False when it is itself gone: preempted
    /// for an older one, or the victim of its own growth; or when nobody is left to give blocks.
    fn make_room(&mut self, seq: SeqId, budget: usize, draft: &mut Draft, pool: &mut BlockPool) -> bool {
        loop {
            let Some(running) = self.running.iter_mut().find(|r| r.id() == seq) else { return false };
            let tokens = running.chunk(budget).tokens.end as usize;
            if running.table.grow(tokens, pool).is_ok() {
                return true;
            }
            // Whoever already has its place in this step keeps its blocks: the step will write to them.
            let candidates = self.running.iter().filter(|r| !draft.keeps(r.id()));
            let Some(victim) = self.config.preemption.victim(candidates, &self.running) else {
                draft.waits(seq, Wait::Blocks);
                return false;
            };
            self.preempt(victim, seq, draft, pool);
        }
    }

    fn preempt(&mut self, victim: SeqId, by: SeqId, draft: &mut Draft, pool: &mut BlockPool) {
        let Some(at) = self.running.iter().position(|r| r.id() == victim) else { return };
        let (waiting, table) = self.running.remove(at).preempt();
        table.release(pool);
        // Preempted sequences stand at the head in the order of their arrival, before everyone who never ran.
        let at = self.waiting.iter().position(|w| w.arrival > waiting.arrival).unwrap_or(self.waiting.len());
        self.waiting.insert(at, waiting);
        self.preemptions_total += 1;
        draft.plan.preempted.push(Preempted { seq: victim, by });
    }

    /// FIFO: stops at the first sequence that finds no seat, no budget, or not enough blocks for its known tokens. Those
    /// behind it wait for the same.
    fn admit(&mut self, draft: &mut Draft, pool: &mut BlockPool, now: Micros) {
        while let Some(head) = self.waiting.front() {
            let running = match self.seat_for(head, draft, pool) {
                Err(cause) => return self.waiting.iter().for_each(|waiting| draft.waits(waiting.id(), cause)),
                Ok((table, tokens)) => {
                    let Some(head) = self.waiting.pop_front() else { return table.release(pool) };
                    let running = head.admit(table, now);
                    draft.plan.admitted.push(running.id());
                    draft.push(running.chunk(tokens));
                    running
                }
            };
            let at = self.running.partition_point(|r| r.arrival < running.arrival);
            self.running.insert(at, running);
        }
    }

    /// Blocks and a first chunk, or why there are none.
    fn seat_for(&self, head: &Waiting, draft: &Draft, pool: &mut BlockPool) -> Result<(BlockTable, usize), Wait> {
        if self.running.len() >= self.seats() {
            return Err(if self.thermal >= Level::Serious { Wait::Thermal } else { Wait::Seats });
        }
        let tokens = draft.allows(head.known(), 0, head.known() == 1)?;
        let mut table = BlockTable::default();
        // Blocks for all that is known, not only for the first chunk: half a prompt in the pool helps nobody. And for the
        // token to be drawn, or the new one would be the first victim of its own first decode.
        table.grow(head.known() + 1, pool).map_err(|_| Wait::Blocks)?;
        Ok((table, tokens))
    }

    /// Gives everyone who computes nothing and has no cause yet the one that is left.
    fn explain(&self, prefill_ids: &[SeqId], draft: &mut Draft) {
        let explained: BTreeSet<SeqId> = draft.plan.waits.iter().map(|(seq, _)| *seq).collect();
        let preempted = !draft.plan.preempted.is_empty();
        let slots = if self.thermal >= Level::Serious { Wait::Thermal } else { Wait::TokenBudget };
        let running = self.running.iter().map(|running| (running.id(), running.decodes(), false));
        let waiting = self.waiting.iter().map(|waiting| (waiting.id(), false, true));
        for (seq, decodes, waits) in running.chain(waiting) {
            if explained.contains(&seq) || draft.plan.holds(seq) {
                continue;
            }
            let deferred = !decodes && !prefill_ids.contains(&seq);
            let cause = match (waits && preempted, deferred) {
                (true, _) => Wait::Blocks,
                (false, true) => Wait::DecodeBurst,
                (false, false) => slots,
            };
            draft.waits(seq, cause);
        }
    }
}
