//! A step while it is planned, and how a running sequence gets its part of it: blocks, if need be those of somebody else.
//!
//! What is decided is done at once: sequences move between the queues and blocks change hands while the plan is made.

use crate::kv::{Block, BlockPool};
use crate::report::{Preempted, Wait};
use crate::request::Priority;
use crate::units::{Micros, SeqId};

use super::budget::Draft;
use super::config::Config;
use super::cost::StepCost;
use super::policy::thermal::Level;
use super::policy::{PolicyExecutor, Room, SchedulingPlan, SessionView};
use super::preempt::may_take;
use super::queues::Queues;
use super::sequence::{Running, Waiting};

/// All that a plan depends on, and the plan so far.
pub(super) struct Planner<'a> {
    pub config: Config,
    pub heat: Level,
    pub policy: &'a mut PolicyExecutor,
    /// Orders batches while they are alone.
    pub background: &'a mut PolicyExecutor,
    pub cost: &'a StepCost,
    pub queues: &'a mut Queues,
    /// Sources of the copies that the plan orders.
    pub pinned: &'a mut Vec<Block>,
    pub pool: &'a mut BlockPool,
    pub now: Micros,
    pub draft: Draft,
    /// Batches, out of sight while everyone else is planned.
    pub aside: Queues,
}

impl Planner<'_> {
    /// The policy's proposal for this step.
    pub fn turn(&mut self, slots: usize) -> SchedulingPlan {
        let room = Room { slots, seats: self.open_seats(), step_tokens: self.config.step_tokens() };
        let running = self.queues.running.iter().map(Running::session);
        let sessions: Vec<SessionView> = running.chain(self.queues.waiting.iter().map(Waiting::session)).collect();
        let policy = if self.queues.only_batches() { &mut *self.background } else { &mut *self.policy };
        policy.tick(&sessions, room, &self.config.slo, self.now)
    }

    /// Seats that may be taken, as hot as it is. More may be: then none is given away.
    pub fn open_seats(&self) -> usize {
        self.config.open_seats(self.heat)
    }

    /// Prompts under way, in the given order.
    pub fn extend_prompts(&mut self, order: impl Iterator<Item = SeqId>) {
        for seq in order {
            if self.draft.plan.holds(seq) {
                continue;
            }
            let Some(running) = self.queues.find(seq) else { continue };
            match self.draft.affordable(running.computed as usize, running.remaining(), self.cost) {
                Ok(tokens) => self.extend(seq, tokens),
                Err(short) => self.draft.plan.waits.push((seq, short)),
            }
        }
    }

    /// When everyone who had a turn gave way, the oldest goes on: a step that plans nothing would come back for ever.
    pub fn extend_oldest_if_nobody(&mut self) {
        if let (true, Some(oldest)) = (self.draft.plan.chunks.is_empty(), self.queues.running.first()) {
            self.extend(oldest.id(), self.draft.tokens);
        }
    }

    /// Plans up to `tokens` of a running sequence, preempting until its blocks fit. Without effect when it is itself gone:
    /// preempted for an older one, or the victim of its own growth.
    pub fn extend(&mut self, seq: SeqId, tokens: usize) {
        while let Some(running) = self.queues.find_mut(seq) {
            let chunk = running.chunk(tokens);
            if running.table.grow(chunk.tokens.end as usize, self.pool).is_ok() {
                self.draft.push(chunk);
                return;
            }
            let is_batch = running.is_batch();
            if self.evict(seq) {
                continue;
            }
            // Whoever already has its chunk in this step keeps its blocks: the step will write to them. A batch takes
            // nobody else's.
            let running = &self.queues.running;
            let may_yield = |other: &&Running| !self.draft.plan.holds(other.id()) && (other.is_batch() || !is_batch);
            let candidates = running.iter().filter(may_yield);
            match self.config.preemption.victim(candidates, running, self.policy.kind()) {
                Some(victim) => {
                    self.queues.preempt(victim, self.pool);
                    self.draft.plan.preempted.push(Preempted { seq: victim, by: seq });
                }
                None => {
                    self.draft.plan.waits.push((seq, Wait::Blocks));
                    return;
                }
            }
        }
    }

    /// The newest batch that is aside gives its blocks and its seat to `by`. False if there is none.
    pub fn evict(&mut self, by: SeqId) -> bool {
        let Some(newest) = self.aside.running.pop() else { return false };
        let seq = newest.id();
        self.aside.join(newest.preempt(self.pool));
        self.draft.plan.preempted.push(Preempted { seq, by });
        true
    }

    /// Batches leave until there is a seat, or none is left aside.
    pub fn evict_for_seat(&mut self, by: SeqId) {
        while self.queues.running.len() + self.aside.running.len() >= self.open_seats() && self.evict(by) {}
    }

    /// Before anything is planned, those that wait and are more urgent than some that run get the seats and the blocks of the
    /// newest of the lowest class, as far as a step can begin with them.
    pub fn make_way(&mut self) {
        let (mut tokens, mut seats) = (self.draft.tokens, 0);
        let mut blocks = 0;
        let urgent = self.queues.waiting.iter().take_while(|waiting| waiting.request().priority() <= Priority::High);
        let urgent: Vec<(SeqId, Priority, usize)> =
            urgent.map(|waiting| (waiting.id(), waiting.request().priority(), waiting.known())).collect();
        for (seq, priority, known) in urgent {
            seats += 1;
            blocks += self.pool.blocks_for(known + 1);
            // Batches give way later, one by one, as somebody takes their place.
            let kept = |planner: &Self| planner.aside.running.iter().map(|batch| batch.table.len()).sum::<usize>();
            while (self.queues.running.len() + seats > self.open_seats() || self.pool.free() + kept(self) < blocks)
                && self.queues.running.len() > 1
                && self.displace(priority, seq)
            {}
            tokens = tokens.saturating_sub(known);
            if tokens == 0 {
                return;
            }
        }
    }

    /// The newest sequence of the lowest class gives its seat and its blocks to `by`, if `by`'s class may take them.
    fn displace(&mut self, class: Priority, by: SeqId) -> bool {
        let Some(last) = self.queues.running.last() else { return false };
        let (seq, holder) = (last.id(), last.request().priority());
        if !may_take(class, holder) {
            return false;
        }
        self.queues.preempt(seq, self.pool);
        self.draft.plan.preempted.push(Preempted { seq, by });
        true
    }
}
