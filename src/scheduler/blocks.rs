//! How chunks get their blocks: growth, preemption, admission.

use crate::kv::{BlockPool, BlockTable};
use crate::report::{Preempted, Wait};
use crate::units::SeqId;

use super::Scheduler;
use super::budget::Draft;
use super::plan::StepPlan;

impl Scheduler {
    /// Plans up to `tokens` of a running sequence, preempting until its blocks fit. Without effect when it is itself gone:
    /// preempted for an older one, or the victim of its own growth.
    pub(super) fn extend(&mut self, seq: SeqId, tokens: usize, draft: &mut Draft, pool: &mut BlockPool) {
        while let Some(running) = self.find_mut(seq) {
            let chunk = running.chunk(tokens);
            if running.table.grow(chunk.tokens.end as usize, pool).is_ok() {
                return draft.push(chunk);
            }
            // Whoever already has its chunk in this step keeps its blocks: the step will write to them.
            let candidates = self.running.iter().filter(|r| !draft.plan.holds(r.id()));
            match self.config.preemption.victim(candidates, &self.running, self.policy.kind()) {
                Some(victim) => self.preempt(Preempted { seq: victim, by: seq }, &mut draft.plan, pool),
                None => return draft.plan.waits.push((seq, Wait::Blocks)),
            }
        }
    }

    fn preempt(&mut self, preempted: Preempted, plan: &mut StepPlan, pool: &mut BlockPool) {
        let Some(at) = self.running.iter().position(|r| r.id() == preempted.seq) else { return };
        let (waiting, table) = self.running.remove(at).preempt();
        table.release(pool);
        // Preempted sequences stand at the head in the order of their arrival, before everyone who never ran.
        let at = self.waiting.iter().position(|w| w.arrival > waiting.arrival).unwrap_or(self.waiting.len());
        self.waiting.insert(at, waiting);
        self.preemptions_total += 1;
        plan.preempted.push(preempted);
    }

    /// First come first served: stops at the first sequence that finds no seat, no budget, no time, or not enough blocks for
    /// its known tokens, and says which it was.
    pub(super) fn admit(&mut self, draft: &mut Draft, pool: &mut BlockPool) -> Option<Wait> {
        // Who was just preempted must not take the blocks back in the same step.
        if !draft.plan.preempted.is_empty() {
            return Some(Wait::Blocks);
        }
        let owed = self.blocks_owed(draft, pool);
        while let Some(waiting) = self.waiting.front() {
            if self.running.len() >= self.seats() {
                let hot = self.running.len() < self.config.max_num_seqs;
                return Some(if hot { Wait::Thermal } else { Wait::Seats });
            }
            let tokens = match draft.affordable(0, waiting.known(), &self.cost) {
                Ok(tokens) => tokens,
                Err(short) => return Some(short),
            };
            // Blocks for all that is known, not only for the first chunk: half a prompt in the pool helps nobody. And for
            // the token to be drawn, or the new one would be the first victim of its own first decode.
            let tokens_held = waiting.known() + 1;
            let mut table = BlockTable::default();
            if pool.blocks_for(tokens_held) + owed > pool.free() || table.grow(tokens_held, pool).is_err() {
                return Some(Wait::Blocks);
            }
            let running = self.waiting.pop_front().expect("it is at the front").admit(table);
            draft.plan.admitted.push(running.id());
            draft.push(running.chunk(tokens));
            let at = self.running.partition_point(|r| r.arrival < running.arrival);
            self.running.insert(at, running);
        }
        None
    }

    /// Blocks that decodes without a chunk will still ask for in this step or the next.
    fn blocks_owed(&self, draft: &Draft, pool: &BlockPool) -> usize {
        self.unplanned_decodes(draft).filter(|r| pool.blocks_for(r.tokens().len()) > r.table.len()).count()
    }
}
