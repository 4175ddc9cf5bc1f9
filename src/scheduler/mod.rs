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
//!
//! `planning.rs` builds a step: `policy/` orders, `budget.rs` counts tokens, sequences and predicted time (`cost.rs`),
//! `preempt.rs` chooses victims, `thermal.rs` says what the temperature allows.

mod budget;
mod cost;
mod plan;
mod planning;
pub mod policy;
mod preempt;
mod sequence;
pub mod thermal;

use std::collections::VecDeque;

use crate::kv::{BlockPool, BlockTable};
use crate::report::SequenceView;
use crate::request::{Event, Request, RequestError};
use crate::step::{BatchChunk, Outcome, SequenceFault, StepBatch, StepOutput};
use crate::units::{Micros, SeqId};

use policy::{PolicyConfig, PolicyExecutor};
use thermal::Level;

pub use cost::{StepCost, StepLoad};
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
    pub policy: PolicyConfig,
    /// While sequences decode, a step's prefills are cut so that it takes no longer, as predicted; `None` is no limit.
    pub max_stall: Option<Micros>,
}

/// What is still to be computed, for predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Known and not computed, of sequences that wait or prefill.
    pub prefill_tokens: usize,
    pub decoding: usize,
    /// Tokens that those attend to.
    pub context_tokens: usize,
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
    policy: PolicyExecutor,
    cost: StepCost,
    thermal: Level,
}

impl Scheduler {
    pub fn new(config: Config) -> Scheduler {
        assert!(config.max_num_seqs > 0 && config.max_num_batched_tokens > 0, "a step needs a seat and a token");
        Scheduler {
            config,
            waiting: VecDeque::new(),
            running: Vec::new(),
            arrivals: 0,
            preemptions_total: 0,
            policy: PolicyExecutor::new(config.policy),
            cost: StepCost::default(),
            thermal: Level::Nominal,
        }
    }

    /// Other limits or another policy, from the next plan on. Who runs goes on running: with fewer seats than sequences,
    /// seats are not given out again until enough are free.
    pub fn configure(&mut self, config: Config) {
        assert!(config.max_num_seqs > 0 && config.max_num_batched_tokens > 0, "a step needs a seat and a token");
        if config.policy != self.config.policy {
            self.policy.set_policy(config.policy);
        }
        self.config = config;
    }

    /// From [`Level::Serious`] on the batch is halved; in an emergency nothing is planned.
    pub fn set_thermal(&mut self, level: Level) {
        self.thermal = level;
    }

    /// A step of this load took so long.
    pub fn observe(&mut self, load: &StepLoad, elapsed: Micros) {
        self.cost.observe(load, elapsed);
    }

    pub fn cost(&self) -> &StepCost {
        &self.cost
    }

    /// To the tail of the waiting queue.
    pub fn submit(&mut self, request: Request) {
        self.waiting.push_back(Waiting::new(request, self.arrivals));
        self.arrivals += 1;
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

    /// Seats, as many as the temperature allows.
    pub fn seats(&self) -> usize {
        self.thermal.batch(self.config.max_num_seqs)
    }

    /// How many more sequences could run if there were blocks.
    pub fn free_seats(&self) -> usize {
        self.seats().saturating_sub(self.running.len() + self.waiting.len())
    }

    /// Live sequences whose deadline has passed, and what their clients are to hear.
    pub fn overdue(&self, now: Micros) -> Vec<(SeqId, RequestError)> {
        let overdue = self.requests().filter(|request| request.is_overdue(now));
        overdue.map(|request| (request.id(), request.timed_out())).collect()
    }

    fn requests(&self) -> impl Iterator<Item = &Request> {
        self.running.iter().map(Running::request).chain(self.waiting.iter().map(Waiting::request))
    }

    /// All live sequences: who runs, oldest first, then who waits.
    pub fn sequences(&self) -> Vec<SequenceView> {
        self.running.iter().map(Running::view).chain(self.waiting.iter().map(Waiting::view)).collect()
    }

    pub fn backlog(&self) -> Backlog {
        let mut backlog = Backlog::default();
        for running in &self.running {
            if running.decodes() {
                backlog.decoding += 1;
                backlog.context_tokens += running.tokens().len();
            } else {
                backlog.prefill_tokens += running.remaining();
            }
        }
        backlog.prefill_tokens += self.waiting.iter().map(Waiting::known).sum::<usize>();
        backlog
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
