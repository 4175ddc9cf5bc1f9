//! How chunks get their blocks: growth, preemption, admission.

use crate::kv::{BlockPool, BlockTable, Node, Reused};
use crate::report::{Miss, Preempted, Wait};
use crate::units::SeqId;

use super::Scheduler;
use super::budget::Draft;
use super::plan::{Found, StepPlan};
use super::sequence::{Place, Running, Waiting};

/// What was found for a sequence; `None` with the reason where nobody looked.
struct Look {
    reused: Option<Reused>,
    miss: Option<Miss>,
}

impl Look {
    fn blocks(&self) -> usize {
        self.reused.as_ref().map_or(0, |reused| reused.blocks.len())
    }

    fn give_back(&mut self, pool: &mut BlockPool) {
        self.give_back_partial(pool);
        let Some(reused) = self.reused.take() else { return };
        reused.blocks.into_iter().rev().for_each(|block| pool.give_back(block));
    }

    /// What was to be copied is computed instead.
    fn give_back_partial(&mut self, pool: &mut BlockPool) {
        let partial = self.reused.as_mut().and_then(|reused| reused.partial.take());
        partial.into_iter().for_each(|(block, _)| pool.give_back(block));
    }
}

impl Scheduler {
    /// Plans up to `tokens` of a running sequence, preempting until its blocks fit. Without effect when it is itself gone:
    /// preempted for an older one, or the victim of its own growth.
    pub(super) fn extend(&mut self, seq: SeqId, tokens: usize, draft: &mut Draft, pool: &mut BlockPool) {
        while let Some(running) = self.find_mut(seq) {
            let chunk = running.chunk(tokens);
            if running.table.grow(chunk.tokens.end as usize, pool).is_ok() {
                return draft.push(chunk);
            }
            let is_batch = running.is_batch();
            if self.evict(seq, &mut draft.plan, pool) {
                continue;
            }
            // Whoever already has its chunk in this step keeps its blocks: the step will write to them. A batch takes
            // nobody else's.
            let candidates = self.running.iter().filter(|r| !draft.plan.holds(r.id()) && (r.is_batch() || !is_batch));
            match self.config.preemption.victim(candidates, &self.running, self.policy.kind()) {
                Some(victim) => self.preempt(Preempted { seq: victim, by: seq }, &mut draft.plan, pool),
                None => return draft.plan.waits.push((seq, Wait::Blocks)),
            }
        }
    }

    fn preempt(&mut self, preempted: Preempted, plan: &mut StepPlan, pool: &mut BlockPool) {
        let Some(at) = self.running.iter().position(|r| r.id() == preempted.seq) else { return };
        let waiting = self.running.remove(at).preempt(pool);
        // Preempted sequences stand at the head in the order of their arrival, before everyone who never ran.
        let place = |w: &Waiting| (w.is_batch(), w.arrival);
        let at = self.waiting.iter().position(|w| place(w) > place(&waiting)).unwrap_or(self.waiting.len());
        self.waiting.insert(at, waiting);
        self.preemptions_total += 1;
        plan.preempted.push(preempted);
    }

    /// First come first served: stops at the first sequence that finds no seat, no budget, no time, or not enough blocks for
    /// its known tokens, and says which it was.
    pub(super) fn admit(&mut self, draft: &mut Draft, pool: &mut BlockPool) -> Option<Wait> {
        // Who was just preempted must not take the blocks back in the same step.
        let lost = |w: &Waiting| draft.plan.preempted.iter().any(|preempted| preempted.seq == w.id());
        if self.waiting.iter().any(lost) {
            return Some(Wait::Blocks);
        }
        let owed = self.blocks_owed(draft, pool);
        while let Some(seq) = self.waiting.front().map(Waiting::id) {
            if self.running.len() >= self.seats() {
                let hot = self.running.len() < self.config.max_num_seqs;
                return Some(if hot { Wait::Thermal } else { Wait::Seats });
            }
            self.evict_for_seat(seq, &mut draft.plan, pool);
            let waiting = self.waiting.front().expect("it is at the front");
            let known = waiting.known();
            let mut look = self.look_up(waiting, pool);
            // Blocks for all that is known, not only for the first chunk: half a prompt in the pool helps nobody. And for
            // the token to be drawn, or the new one would be the first victim of its own first decode.
            let needed = pool.blocks_for(known + 1) - look.blocks();
            while needed + owed > pool.free() && self.evict(seq, &mut draft.plan, pool) {}
            if needed + owed > pool.free() {
                // The source of a copy is held beside them: a sequence that needs the whole pool would wait for ever.
                look.give_back_partial(pool);
            }
            let cached = look.reused.as_ref().map_or(0, |reused| reused.tokens(pool.block_size()));
            let tokens = match draft.affordable(cached, known - cached, &self.cost) {
                Ok(tokens) => tokens,
                Err(short) => {
                    look.give_back(pool);
                    return Some(short);
                }
            };
            if needed + owed > pool.free() {
                look.give_back(pool);
                return Some(Wait::Blocks);
            }
            let waiting = self.waiting.pop_front().expect("it is at the front");
            let running = self.seat(waiting, look, &mut draft.plan, pool);
            draft.push(running.chunk(tokens));
            let at = self.running.partition_point(|r| r.arrival < running.arrival);
            self.running.insert(at, running);
        }
        None
    }

    /// What the prefix cache has for a sequence, held.
    fn look_up(&self, waiting: &Waiting, pool: &mut BlockPool) -> Look {
        let request = waiting.request();
        let miss = if !self.config.prefix_caching {
            Some(Miss::Off)
        } else if !request.may_use_cache() {
            Some(Miss::Declined)
        } else {
            None
        };
        let reused = miss.is_none().then(|| pool.reuse(Node::Root(request.cache_salt().clone()), &waiting.tokens()));
        Look { reused, miss }
    }

    /// Gives a sequence its seat and its blocks, of which there are enough.
    fn seat(&mut self, waiting: Waiting, look: Look, plan: &mut StepPlan, pool: &mut BlockPool) -> Running {
        let known_tokens = waiting.known();
        let (first, seq) = (!waiting.ran, waiting.id());
        let Look { reused, mut miss } = look;
        let (mut table, mut computed, mut place) = (BlockTable::default(), 0, None);
        let mut partial = None;
        if let Some(reused) = reused {
            computed = reused.tokens(pool.block_size());
            place = Some(Place { node: reused.node, published: reused.blocks.len() });
            (table, partial) = (BlockTable::adopt(reused.blocks), reused.partial);
            miss = (computed == 0).then_some(Miss::NotFound);
        }
        let own = table.len();
        table.grow(known_tokens + 1, pool).expect("blocks were counted");
        if let Some((source, _)) = partial {
            plan.copies.push((source.id(), table.blocks()[own].id()));
            // Held until the copy is made: nobody else may be given it meanwhile.
            self.pinned.push(source);
        }
        plan.admitted.push(seq);
        plan.found.push(Found { seq, cached_tokens: computed, known_tokens, miss, first });
        waiting.admit(table, computed, place)
    }

    /// Blocks that decodes without a chunk will still ask for in this step or the next.
    fn blocks_owed(&self, draft: &Draft, pool: &BlockPool) -> usize {
        self.unplanned_decodes(draft).filter(|r| pool.blocks_for(r.tokens().len()) > r.table.len()).count()
    }
}
