//! Which sequences compute how many tokens in the next step. Pure: no clock, no async, no tensors; the same calls drive the
//! live engine and the simulator.
//!
//! ```text
//! submit ─▶ waiting ─admit─▶ running ─commit─▶ finished
//!              ▲                │
//!              └──── preempt ───┘   (its blocks are freed; prompt and emitted tokens are computed again later)
//! ```
//! Being in a queue *is* the state: a `Waiting` has no block table, a
//! `Running` always has one. There is no prefill phase: a sequence has known tokens and computed
//! tokens, a step brings the second closer to the first, and who reaches the end draws.

mod plan;
mod preempt;
mod sequence;

use std::collections::VecDeque;

use crate::kv::{BlockPool, BlockTable};
use crate::request::{Event, Request, RequestError};
use crate::step::{BatchChunk, Outcome, SequenceFault, StepBatch, StepOutput};
use crate::units::{Micros, SeqId};

pub use plan::{Chunk, StepPlan};
pub use preempt::Preemption;
use sequence::{Advance, Running, Waiting};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Seats: sequences that may run at once.
    pub max_num_seqs: usize,
    /// Tokens that one step may compute.
    pub max_num_batched_tokens: usize,
    /// Prompt and completion together. One sequence of this length must fit the block pool.
    pub max_model_len: usize,
    pub preemption: Preemption,
}

#[derive(Debug)]
pub struct Scheduler {
    config: Config,
    /// Admission order; preempted sequences are at the head, the oldest first.
    waiting: VecDeque<Waiting>,
    /// In the order of arrival, oldest first: the oldest takes blocks before anyone else can.
    running: Vec<Running>,
    arrivals: u64,
    preemptions_total: u64,
}

impl Scheduler {
    pub fn new(config: Config) -> Scheduler {
        assert!(config.max_num_seqs > 0 && config.max_num_batched_tokens > 0, "a step needs a seat and a token");
        Scheduler { config, waiting: VecDeque::new(), running: Vec::new(), arrivals: 0, preemptions_total: 0 }
    }

    /// To the tail of the waiting queue.
    pub fn submit(&mut self, request: Request) {
        self.waiting.push_back(Waiting::new(request, self.arrivals));
        self.arrivals += 1;
    }

    /// The next step, blocks taken for it; `None` when nothing is live. Each plan must be committed.
    ///
    /// Decodes come first in the budget, so that a long prompt never stalls a running stream; then prefills under way;
    /// then admissions, which stop at the first that does not fit.
    pub fn plan(&mut self, pool: &mut BlockPool, _now: Micros) -> Option<StepPlan> {
        let mut plan = StepPlan::default();
        let mut budget = self.config.max_num_batched_tokens;
        self.extend_running(&mut plan, &mut budget, pool, |running| running.remaining() == 1);
        self.extend_running(&mut plan, &mut budget, pool, |running| running.remaining() > 1);
        // Who was just preempted must not take the blocks back in the same step.
        if plan.preempted.is_empty() {
            self.admit(&mut plan, &mut budget, pool);
        }
        (!plan.chunks.is_empty()).then_some(plan)
    }

    /// Gives each running sequence of one kind its chunk, preempting others when blocks run out.
    fn extend_running(
        &mut self,
        plan: &mut StepPlan,
        budget: &mut usize,
        pool: &mut BlockPool,
        kind: impl Fn(&Running) -> bool,
    ) {
        let turn: Vec<SeqId> = self.running.iter().filter(|r| kind(r)).map(Running::id).collect();
        for seq in turn {
            if *budget == 0 {
                return;
            }
            if self.make_room(seq, *budget, plan, pool) {
                let running = self.find(seq).expect("made room for it");
                *budget -= plan.push(running.chunk(*budget));
            }
        }
    }

    /// Grows the sequence's table for its next chunk, preempting until it fits. False when it is itself gone: preempted
    /// for an older one, or the victim of its own growth.
    fn make_room(&mut self, seq: SeqId, budget: usize, plan: &mut StepPlan, pool: &mut BlockPool) -> bool {
        loop {
            let Some(running) = self.running.iter_mut().find(|r| r.id() == seq) else { return false };
            let tokens = running.chunk(budget).tokens.end as usize;
            if running.table.grow(tokens, pool).is_ok() {
                return true;
            }
            // Whoever already has its chunk in this step keeps its blocks: the step will write to them.
            let candidates = self.running.iter().filter(|r| !plan.holds(r.id()));
            let Some(victim) = self.config.preemption.victim(candidates, &self.running) else { return false };
            self.preempt(victim, plan, pool);
        }
    }

    fn preempt(&mut self, victim: SeqId, plan: &mut StepPlan, pool: &mut BlockPool) {
        let Some(at) = self.running.iter().position(|r| r.id() == victim) else { return };
        let (waiting, table) = self.running.remove(at).preempt();
        table.release(pool);
        // Preempted sequences stand at the head in the order of their arrival, before everyone who never ran.
        let at = self.waiting.iter().position(|w| w.arrival > waiting.arrival).unwrap_or(self.waiting.len());
        self.waiting.insert(at, waiting);
        self.preemptions_total += 1;
        plan.preempted.push(victim);
    }

    /// FIFO: stops at the first sequence that finds no seat, no budget, or not enough blocks for its known tokens.
    fn admit(&mut self, plan: &mut StepPlan, budget: &mut usize, pool: &mut BlockPool) {
        while *budget > 0 && self.running.len() < self.config.max_num_seqs {
            let Some(waiting) = self.waiting.front() else { return };
            let mut table = BlockTable::default();
            // Blocks for all that is known, not only for the first chunk: half a prompt in the pool helps nobody. And for
            // the token to be drawn, or the new one would be the first victim of its own first decode.
            if table.grow(waiting.known() + 1, pool).is_err() {
                return;
            }
            let Some(waiting) = self.waiting.pop_front() else { return table.release(pool) };
            let running = waiting.admit(table);
            plan.admitted.push(running.id());
            *budget -= plan.push(running.chunk(*budget));
            let at = self.running.partition_point(|r| r.arrival < running.arrival);
            self.running.insert(at, running);
        }
    }

    /// The plan in physical terms.
    pub fn batch(&self, plan: &StepPlan, pool: &BlockPool) -> StepBatch {
        let mut batch = StepBatch::default();
        for chunk in &plan.chunks {
            let Some(running) = self.find(chunk.seq) else { continue };
            let (row, entry) = (batch.tokens.len(), batch.tables.len());
            let range = chunk.tokens.start as usize..chunk.tokens.end as usize;
            batch.tokens.extend_from_slice(&running.tokens()[range]);
            batch.positions.extend(chunk.tokens.clone());
            batch.slots.extend(chunk.tokens.clone().map(|p| running.table.slot(p, pool.block_size())));
            batch.tables.extend(running.table.ids());
            batch.chunks.push(BatchChunk {
                seq: chunk.seq,
                rows: row..batch.tokens.len(),
                table: entry..batch.tables.len(),
                sample: chunk.sample,
            });
        }
        batch
    }

    /// Takes in what the step brought: sequences advance, and those that ended leave, their blocks free. Returns what
    /// the clients hear, in chunk order.
    pub fn commit(&mut self, plan: StepPlan, output: &StepOutput, pool: &mut BlockPool) -> Vec<(SeqId, Event)> {
        let mut outcomes = output.outcomes.iter();
        let mut next = outcomes.next();
        let mut events = Vec::new();
        for chunk in plan.chunks {
            let outcome = next.filter(|(seq, _)| *seq == chunk.seq).map(|(_, outcome)| outcome);
            if outcome.is_some() {
                next = outcomes.next();
            }
            self.advance(chunk, outcome, pool, &mut events);
        }
        events
    }

    fn advance(
        &mut self,
        chunk: Chunk,
        outcome: Option<&Outcome>,
        pool: &mut BlockPool,
        events: &mut Vec<(SeqId, Event)>,
    ) {
        let seq = chunk.seq;
        let max_model_len = self.config.max_model_len;
        let Some(running) = self.running.iter_mut().find(|r| r.id() == seq) else { return };
        running.computed = chunk.tokens.end;
        let end = match outcome {
            None if chunk.sample => Some(Event::Failed(RequestError::StepFailed)),
            None => None,
            Some(Outcome::Failed(SequenceFault::Forward)) => Some(Event::Failed(RequestError::StepFailed)),
            Some(Outcome::Failed(SequenceFault::NonFiniteLogits)) => Some(Event::Failed(RequestError::NonFiniteLogits)),
            Some(Outcome::Token(sampled)) => {
                events.push((seq, Event::Token(sampled.clone())));
                match running.emit(sampled.token, max_model_len) {
                    Advance::Continues => None,
                    Advance::Ends(reason) => Some(Event::Finished(reason)),
                }
            }
        };
        if let Some(end) = end {
            events.push((seq, end));
            self.abort(seq, pool);
        }
    }

    /// Takes a sequence out of whichever queue holds it and frees its blocks. False if it is in none.
    pub fn abort(&mut self, seq: SeqId, pool: &mut BlockPool) -> bool {
        if let Some(at) = self.running.iter().position(|r| r.id() == seq) {
            let (_, table) = self.running.remove(at).preempt();
            table.release(pool);
            return true;
        }
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.id() != seq);
        self.waiting.len() < before
    }

    /// Sequences without blocks: new ones and preempted ones.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// How many more sequences could run if there were blocks.
    pub fn free_seats(&self) -> usize {
        self.config.max_num_seqs.saturating_sub(self.running.len() + self.waiting.len())
    }

    pub fn preemptions_total(&self) -> u64 {
        self.preemptions_total
    }

    /// For recounts in tests: every table that holds blocks.
    pub fn tables(&self) -> impl Iterator<Item = &BlockTable> + '_ {
        self.running.iter().map(|running| &running.table)
    }

    fn find(&self, seq: SeqId) -> Option<&Running> {
        self.running.iter().find(|running| running.id() == seq)
    }
}

#[cfg(test)]
mod tests;
