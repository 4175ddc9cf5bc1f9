//! The plan of the step after the one that runs, made while it runs.
//!
//! ```text
//! plan N ─▶ outlook, after(N) ─▶ plan_ahead: N+1 on what N should bring ─┐
//!      └──▶ step N runs ─▶ commit ─▶ outlook ──── equal? ◀───────────────┘
//!                                      yes: confirmed     no: planned anew
//! ```
//! A plan is a function of its outlook, so one that was made on an equal outlook is the plan that would be made now. Blocks
//! are the exception, and on the safe side: only those are counted that are free while the step runs, its own taken. A plan
//! that would have to take blocks away from somebody, or to ask the prefix cache, which the step fills, is not made ahead.

use crate::kv::{BlockPool, OutOfBlocks};
use crate::report::Wait;
use crate::units::{Micros, SeqId};

use super::outlook::{Outlook, Seat};
use super::plan::StepPlan;
use super::planning::{Admitted, Affordable, Decided, Planner, World};
use super::policy::thermal::Level;
use super::{Scheduler, sequence::Running};

/// A plan that holds if everything comes as expected.
#[derive(Debug)]
pub struct PlannedAhead {
    expected: Outlook,
    decided: Decided,
    /// Blocks that it takes.
    blocks: usize,
}

/// The world as far as it is known while a step runs.
struct Expected {
    free: usize,
    block_size: usize,
}

/// It depends on what the step brings, or on when it ends.
struct Unforeseen;

impl World for Expected {
    type Unknown = Unforeseen;

    fn since(&self, _: Micros) -> Result<Micros, Unforeseen> {
        Err(Unforeseen)
    }

    fn grow(&mut self, seat: &mut Seat, tokens: usize) -> Result<Result<(), OutOfBlocks>, Unforeseen> {
        let blocks = tokens.div_ceil(self.block_size).max(seat.blocks);
        // More may be free by then, and then nobody has to yield.
        self.free = self.free.checked_sub(blocks - seat.blocks).ok_or(Unforeseen)?;
        seat.blocks = blocks;
        Ok(Ok(()))
    }

    fn preempt(&mut self, _: SeqId) -> Result<(), Unforeseen> {
        Err(Unforeseen)
    }

    fn admit(&mut self, _: usize, _: Affordable) -> Result<Result<Admitted, Wait>, Unforeseen> {
        Err(Unforeseen)
    }
}

impl Outlook {
    /// The plan that an outlook like this will have; `None` where nothing would be computed, or it cannot be known yet.
    pub fn plan_ahead(self) -> Option<PlannedAhead> {
        if self.seats.is_empty() || self.heat == Level::Emergency {
            return None;
        }
        let held = |outlook: &Outlook| outlook.seats.iter().map(|seat| seat.blocks).sum::<usize>();
        let world = Expected { free: self.free.0, block_size: self.block_size };
        let decided = Planner::decide(self.clone(), world).ok()?;
        let blocks = held(&decided.outlook) - held(&self);
        (!decided.draft.plan.chunks.is_empty()).then_some(PlannedAhead { expected: self, decided, blocks })
    }
}

impl Scheduler {
    /// Takes the blocks of a plan that was made ahead, if what it was made on has come true. The plan is then the one that
    /// [`Scheduler::plan`] would make; else nothing has changed.
    pub fn confirm(&mut self, ahead: PlannedAhead, pool: &mut BlockPool, now: Micros) -> Option<StepPlan> {
        let PlannedAhead { expected, decided, blocks } = ahead;
        if blocks > pool.free() || expected != self.outlook(pool) {
            return None;
        }
        for chunk in &decided.draft.plan.chunks {
            let running: &mut Running = self.find_mut(chunk.seq).expect("it is in the outlook");
            running.table.grow(chunk.tokens.end as usize, pool).expect("blocks were counted");
        }
        self.keep(decided, pool, now)
    }
}
