//! How chunks get their blocks: growth, preemption, admission. The world as it is, for [`super::planning`].

use std::collections::VecDeque;
use std::convert::Infallible;

use crate::kv::{Block, BlockPool, BlockTable, Node, OutOfBlocks, Reused};
use crate::report::{Miss, Wait};
use crate::units::{Micros, SeqId};

use super::outlook::Seat;
use super::plan::Found;
use super::planning::{Admitted, Affordable, World};
use super::sequence::{Place, Running, Waiting};

/// A scheduler's sequences and the pool: what is decided is done at once.
pub(super) struct Actual<'a> {
    pub running: &'a mut Vec<Running>,
    pub waiting: &'a mut VecDeque<Waiting>,
    pub pinned: &'a mut Vec<Block>,
    pub pool: &'a mut BlockPool,
    pub prefix_caching: bool,
    pub now: Micros,
}

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

impl World for Actual<'_> {
    type Unknown = Infallible;

    fn since(&self, at: Micros) -> Result<Micros, Infallible> {
        Ok(self.now.since(at))
    }

    fn grow(&mut self, seat: &mut Seat, tokens: usize) -> Result<Result<(), OutOfBlocks>, Infallible> {
        let running = self.running.iter_mut().find(|running| running.id() == seat.seq);
        let table = &mut running.expect("who has a seat runs").table;
        let grown = table.grow(tokens, self.pool);
        seat.blocks = table.len();
        Ok(grown)
    }

    fn preempt(&mut self, seq: SeqId) -> Result<(), Infallible> {
        let at = self.running.iter().position(|running| running.id() == seq).expect("who has a seat runs");
        let waiting = self.running.remove(at).preempt(self.pool);
        // Where [`super::outlook::Queued::join`] puts it.
        let place = |w: &Waiting| (w.is_batch(), w.arrival);
        let at = self.waiting.iter().position(|w| place(w) > place(&waiting)).unwrap_or(self.waiting.len());
        self.waiting.insert(at, waiting);
        Ok(())
    }

    fn admit(&mut self, owed: usize, affordable: Affordable) -> Result<Result<Admitted, Wait>, Infallible> {
        let Some(waiting) = self.waiting.pop_front() else { return Ok(Err(Wait::Blocks)) };
        Ok(match self.room_for(&waiting, owed, affordable) {
            Ok((look, tokens)) => Ok(self.seat(waiting, look, tokens)),
            Err(wait) => {
                self.waiting.push_front(waiting);
                Err(wait)
            }
        })
    }
}

impl Actual<'_> {
    /// What is cached of a sequence that can be seated, held, and how many tokens it computes first.
    fn room_for(&mut self, waiting: &Waiting, owed: usize, affordable: Affordable) -> Result<(Look, usize), Wait> {
        let mut look = self.look_up(waiting);
        // Blocks for all that is known, not only for the first chunk: half a prompt in the pool helps nobody. And for
        // the token to be drawn, or the new one would be the first victim of its own first decode.
        let needed = self.pool.blocks_for(waiting.known() + 1) - look.blocks();
        if needed + owed > self.pool.free() {
            // The source of a copy is held beside them: a sequence that needs the whole pool would wait for ever.
            look.give_back_partial(self.pool);
        }
        let cached = look.reused.as_ref().map_or(0, |reused| reused.tokens(self.pool.block_size()));
        let tokens = affordable(cached).and_then(|tokens| match needed + owed > self.pool.free() {
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

    /// What the prefix cache has for a sequence, held.
    fn look_up(&mut self, waiting: &Waiting) -> Look {
        let request = waiting.request();
        let miss = if !self.prefix_caching {
            Some(Miss::Off)
        } else if !request.may_use_cache() {
            Some(Miss::Declined)
        } else {
            None
        };
        let root = || Node::Root(request.cache_salt().clone());
        let reused = miss.is_none().then(|| self.pool.reuse(root(), &waiting.tokens()));
        Look { reused, miss }
    }

    /// Gives a sequence its seat and its blocks, of which there are enough.
    fn seat(&mut self, waiting: Waiting, look: Look, tokens: usize) -> Admitted {
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
        let copy = partial.map(|(source, _)| {
            let copy = (source.id(), table.blocks()[own].id());
            // Held until the copy is made: nobody else may be given it meanwhile.
            self.pinned.push(source);
            copy
        });
        let running = waiting.admit(table, computed, place);
        let seat = running.seat();
        let at = self.running.partition_point(|other| other.arrival < running.arrival);
        self.running.insert(at, running);
        Admitted { seat, tokens, found: Found { seq, cached_tokens: computed, known_tokens, miss, first }, copy }
    }
}
