//! How waiting sequences get a seat and their blocks, those that the prefix cache has for them first.

use std::collections::HashSet;

use crate::kv::{BlockPool, BlockTable, Node, Reused};
use crate::report::{Miss, Wait};
use crate::request::Priority;
use crate::units::SeqId;

use super::plan::Found;
use super::planner::Planner;
use super::sequence::{Place, Running, Waiting};

/// Result of looking for a sequence's prompt in the prefix cache; `None` with the reason where nobody looked.
struct Look {
    reused: Option<Reused>,
    miss: Option<Miss>,
}

impl Look {
    fn blocks(&self) -> usize {
        self.reused.as_ref().map_or(0, |reused| reused.blocks.len())
    }

    fn tokens(&self, block_size: usize) -> usize {
        self.reused.as_ref().map_or(0, |reused| reused.tokens(block_size))
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

impl Planner<'_> {
    /// In the order in which they wait, as far as they are of this class or a more urgent one: stops at the first sequence that
    /// finds no seat, no budget, no time, or not enough blocks for its known tokens, and says which it was. Whoever waits for
    /// others to compute what it begins with is passed over.
    pub fn admit(&mut self, class: Priority) -> Option<Wait> {
        let owed = self.blocks_owed();
        let mut at = 0;
        while let Some(next) = self.queues.waiting.get(at).filter(|w| w.rank() <= 2 * class.index() + 1) {
            let (seq, is_batch) = (next.id(), next.is_batch());
            // Who was just preempted must not take the blocks back in the same step.
            if self.draft.plan.preempted.iter().any(|preempted| preempted.seq == seq) {
                return Some(Wait::Blocks);
            }
            if self.queues.running.len() >= self.open_seats() {
                let hot = self.queues.running.len() < self.config.max_num_seqs;
                return Some(if hot { Wait::Thermal } else { Wait::Seats });
            }
            if let Some(short) = self.draft.short() {
                return Some(short);
            }
            if self.begins_like_one_under_way(at) {
                self.waits_for(seq, Wait::SharedPrefix);
                at += 1;
                continue;
            }
            self.evict_for_seat(seq);
            match self.room_for(at, owed) {
                Ok((look, tokens)) => self.seat(at, look, tokens),
                Err(Wait::Blocks) if !is_batch && self.evict(seq) => {}
                Err(short) => return Some(short),
            }
        }
        None
    }

    /// One that was passed over for too long gets its blocks before those that wait ahead of it, if there are any for it, and
    /// computes so many tokens: it takes nobody's seat, and hardly any time from more urgent prompts.
    pub fn admit_alone(&mut self, at: usize, tokens: usize) {
        if self.queues.running.len() >= self.open_seats() || self.begins_like_one_under_way(at) {
            return;
        }
        let (seq, is_batch) = (self.queues.waiting[at].id(), self.queues.waiting[at].is_batch());
        self.evict_for_seat(seq);
        let owed = self.blocks_owed();
        loop {
            match self.room_for(at, owed) {
                Ok((look, room)) => {
                    let tokens = if self.config.whole_prompts { room } else { room.min(tokens) };
                    return self.seat(at, look, tokens);
                }
                Err(Wait::Blocks) if !is_batch && self.evict(seq) => {}
                Err(_) => return,
            }
        }
    }

    fn waits_for(&mut self, seq: SeqId, cause: Wait) {
        if self.draft.plan.waits.iter().all(|(other, _)| *other != seq) {
            self.draft.plan.waits.push((seq, cause));
        }
    }

    /// Whether a prompt of its class or above that is being computed begins as this one does, for at least a block beyond what
    /// it has computed so far: then the cache will have those tokens no later than this one would have computed them itself.
    fn begins_like_one_under_way(&self, at: usize) -> bool {
        let waiting = &self.queues.waiting[at];
        let (request, tokens) = (waiting.request(), waiting.tokens());
        if !self.config.shares_prefixes() || !request.may_use_cache() {
            return false;
        }
        let size = self.pool.block_size();
        self.queues.running.iter().any(|running| running.will_share(request, &tokens, size).is_some())
    }

    /// Decodes without a chunk so far.
    pub fn unplanned_decodes(&self) -> impl Iterator<Item = &Running> {
        let planned: HashSet<SeqId> = self.draft.plan.chunks.iter().map(|chunk| chunk.seq).collect();
        self.queues.decoding().filter(move |running| !planned.contains(&running.id()))
    }

    /// Blocks that decodes without a chunk will still ask for in this step or the next.
    fn blocks_owed(&self) -> usize {
        let size = self.pool.block_size();
        self.unplanned_decodes().filter(|running| running.known().div_ceil(size) > running.table.len()).count()
    }

    /// What is cached of one that waits, held, and how many tokens it computes first, so that `owed` blocks are left. Or what it
    /// waits for, and nothing is held.
    fn room_for(&mut self, at: usize, owed: usize) -> Result<(Look, usize), Wait> {
        let caching = self.config.shares_prefixes();
        let waiting = self.queues.waiting.get(at).ok_or(Wait::Blocks)?;
        let mut look = look_up(waiting, caching, self.pool);
        // Blocks for all that is known, not only for the first chunk: half a prompt in the pool helps nobody. And for
        // the token to be drawn, or the new one would be the first victim of its own first decode.
        let needed = self.pool.blocks_for(waiting.known() + 1) - look.blocks();
        if needed + owed > self.pool.free() {
            // The source of a copy is held beside them: a sequence that needs the whole pool would wait for ever.
            look.give_back_partial(self.pool);
        }
        let cached = look.tokens(self.pool.block_size());
        let affordable = self.draft.affordable(cached, waiting.known() - cached, self.cost);
        let tokens = affordable.and_then(|tokens| match needed + owed > self.pool.free() {
            true => Err(Wait::Blocks),
            false => Ok(tokens),
        });
        match tokens {
            Ok(tokens) => Ok((look, tokens)),
            Err(wait) => {
                look.give_back(self.pool);
                Err(wait)
            }
        }
    }

    /// Gives one that waits its seat and its blocks, of which there are enough, and plans `tokens` of it.
    fn seat(&mut self, at: usize, look: Look, tokens: usize) {
        let Some(waiting) = self.queues.waiting.remove(at) else { return };
        let pool = &mut *self.pool;
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
            self.draft.plan.copies.push((source.id(), table.blocks()[own].id()));
            // Held until the copy is made: nobody else may be given it meanwhile.
            self.pinned.push(source);
        }
        let running = waiting.admit(table, computed, place);
        self.draft.plan.admitted.push(seq);
        self.draft.plan.found.push(Found { seq, cached_tokens: computed, known_tokens, miss, first });
        self.draft.push(running.chunk(tokens));
        self.queues.seat(running);
    }
}

/// What the prefix cache has for a sequence, held.
fn look_up(waiting: &Waiting, caching: bool, pool: &mut BlockPool) -> Look {
    let request = waiting.request();
    let miss = if !caching {
        Some(Miss::Off)
    } else if !request.may_use_cache() {
        Some(Miss::Declined)
    } else {
        None
    };
    let root = || Node::Root(request.cache_salt().clone());
    let reused = miss.is_none().then(|| pool.reuse(root(), &waiting.tokens()));
    Look { reused, miss }
}
