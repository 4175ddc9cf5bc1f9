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
//! `planning` makes the plan from an [`Outlook`], the scheduler in numbers: a [`policy`] says who goes first, [`StepCost`] how
//! much prefill fits beside decodes, `preempt` who yields when the pool runs dry; `background` keeps batches out of everyone's
//! way. `ahead` makes it before its step can begin.

mod ahead;
mod background;
mod blocks;
mod budget;
mod config;
mod cost;
mod outlook;
mod plan;
mod planning;
pub mod policy;
mod preempt;
mod sequence;
mod settings;
mod speculate;
mod views;

use std::collections::VecDeque;

use crate::kv::{Block, BlockPool};
use crate::request::{Event, FinishReason, Request, RequestError};
use crate::step::{BatchChunk, Guidance, Outcome, SequenceFault, StepBatch, StepOutput};
use crate::units::{Micros, SeqId};

pub use ahead::PlannedAhead;
use blocks::Actual;
pub use config::Config;
pub use cost::{StepCost, StepLoad};
pub use outlook::Outlook;
pub use plan::{Chunk, Found, StepPlan};
use planning::{Decided, Planner};
pub use policy::thermal;
pub use policy::{PolicyConfig, PolicyConfigError, PolicyExecutor, PolicyKind};
pub use preempt::Preemption;
use sequence::{Advance, Running, Waiting};
pub use settings::{settings, thermal_settings};
pub use speculate::Speculative;
use thermal::Level;
pub use views::Backlog;

#[derive(Debug)]
pub struct Scheduler {
    config: Config,
    policy: PolicyExecutor,
    cost: StepCost,
    /// The same with a long memory; nothing is planned by it.
    lasting_cost: StepCost,
    heat: Level,
    /// Admission order, batches last; of each, preempted sequences are at the head, the oldest first.
    waiting: VecDeque<Waiting>,
    /// In the order of arrival, oldest first: the oldest takes blocks before anyone else can.
    running: Vec<Running>,
    /// Orders batches while they are alone: what it remembers of them is nothing to the others.
    background: PolicyExecutor,
    arrivals: u64,
    preemptions_total: u64,
    /// Sources of the copies that the plan under way orders.
    pinned: Vec<Block>,
}

impl Scheduler {
    pub fn new(config: Config) -> Scheduler {
        config.assert_sound();
        Scheduler {
            config,
            policy: PolicyExecutor::new(config.policy),
            cost: StepCost::default(),
            lasting_cost: StepCost::lasting(),
            heat: Level::Nominal,
            waiting: VecDeque::new(),
            running: Vec::new(),
            background: PolicyExecutor::new(config.policy),
            arrivals: 0,
            preemptions_total: 0,
            pinned: Vec::new(),
        }
    }

    /// From the next plan on. Nobody is evicted: with fewer seats than sequences run, seats stay empty until enough have
    /// ended. Another policy begins without memory.
    pub fn configure(&mut self, config: Config) {
        config.assert_sound();
        if config.policy != self.config.policy {
            self.policy.set_policy(config.policy);
            self.background.set_policy(config.policy);
        }
        self.config = config;
    }

    /// From the next plan on. Serious and Critical halve the sequences of a step, who then take turns, and the seats;
    /// Emergency stops both.
    pub fn set_thermal(&mut self, level: Level) {
        self.heat = level;
    }

    /// Takes in that steps of `load` took `elapsed`.
    pub fn observe(&mut self, load: &StepLoad, elapsed: Micros) {
        self.cost.observe(load, elapsed);
        self.lasting_cost.observe(load, elapsed);
    }

    /// How long `load` will take; see [`StepCost::predict`].
    pub fn predict(&self, load: &StepLoad) -> Option<Micros> {
        self.cost.predict(load)
    }

    pub fn cost(&self) -> &StepCost {
        &self.cost
    }

    /// What steps have cost for a long time, in every kind of load: what the simulator is told.
    pub fn lasting_cost(&self) -> &StepCost {
        &self.lasting_cost
    }

    /// To the tail of its part of the waiting queue.
    pub fn submit(&mut self, request: Request) {
        let waiting = Waiting::new(request, self.arrivals);
        self.arrivals += 1;
        let at = if waiting.is_batch() { self.waiting.len() } else { self.waiting.partition_point(|w| !w.is_batch()) };
        self.waiting.insert(at, waiting);
    }

    /// The next step, blocks taken for it; `None` when nothing is live or the heat forbids any step. Each plan must be
    /// committed.
    pub fn plan(&mut self, pool: &mut BlockPool, now: Micros) -> Option<StepPlan> {
        if self.heat == Level::Emergency || (self.running.is_empty() && self.waiting.is_empty()) {
            return None;
        }
        let outlook = self.outlook(pool);
        let world = Actual {
            running: &mut self.running,
            waiting: &mut self.waiting,
            pinned: &mut self.pinned,
            pool,
            prefix_caching: self.config.prefix_caching && !self.config.whole_prompts,
            now,
        };
        let Ok(decided) = Planner::decide(outlook, world);
        self.keep(decided, pool, now)
    }

    /// Takes over what was decided, blocks taken; `None` where that is to compute nothing.
    fn keep(&mut self, decided: Decided, pool: &BlockPool, now: Micros) -> Option<StepPlan> {
        let Decided { mut draft, outlook } = decided;
        self.policy = outlook.policy;
        self.background = outlook.background;
        self.preemptions_total += draft.plan.preempted.len() as u64;
        for (running, seat) in self.running.iter_mut().zip(&outlook.seats) {
            debug_assert_eq!(running.id(), seat.seq, "the outlook follows what is decided");
            running.passed_over = seat.passed_over;
            if seat.is_decoding() {
                running.token_at.get_or_insert(now);
            }
        }
        self.speculate(&mut draft, pool);
        (!draft.plan.chunks.is_empty()).then_some(draft.plan)
    }

    /// The plan in physical terms.
    pub fn batch(&self, plan: &StepPlan, pool: &BlockPool) -> StepBatch {
        let mut batch = StepBatch::default();
        for chunk in &plan.chunks {
            let Some(running) = self.find(chunk.seq) else { continue };
            let (row, entry) = (batch.tokens.len(), batch.tables.len());
            let range = chunk.tokens.start as usize..chunk.tokens.end as usize;
            let guesses = running.guessed(chunk.proposed as usize);
            batch.tokens.extend(running.tokens()[range.start..range.end - guesses.len()].iter().chain(guesses));
            batch.positions.extend(chunk.tokens.clone());
            batch.slots.extend(chunk.tokens.clone().map(|p| running.table.slot(p, pool.block_size())));
            batch.tables.extend(running.table.ids());
            batch.chunks.push(BatchChunk {
                seq: chunk.seq,
                rows: row..batch.tokens.len(),
                table: entry..batch.tables.len(),
                sample: chunk.sample,
                proposed: guesses.len(),
            });
        }
        batch.copies = plan.copies.clone();
        batch
    }

    /// Takes in what the step brought: sequences advance, and those that ended leave, their blocks free. Returns what
    /// the clients hear, in chunk order.
    pub fn commit(&mut self, plan: StepPlan, output: &StepOutput, pool: &mut BlockPool) -> Vec<(SeqId, Event)> {
        let mut outcomes = &output.outcomes[..];
        let mut guidance = output.guidance.iter().peekable();
        self.pinned.drain(..).for_each(|block| pool.give_back(block));
        let heard = |found: &Found| (found.seq, Event::Admitted { cached_tokens: found.cached_tokens });
        let mut events: Vec<_> = plan.found.iter().filter(|found| found.first).map(heard).collect();
        for chunk in plan.chunks {
            let count = outcomes.iter().take_while(|(seq, _)| *seq == chunk.seq).count();
            let (own, others) = outcomes.split_at(count);
            outcomes = others;
            let guided = guidance.next_if(|(seq, _)| *seq == chunk.seq).map(|(_, guidance)| guidance);
            self.advance(chunk, own, guided, pool, &mut events);
        }
        events
    }

    fn advance(
        &mut self,
        chunk: Chunk,
        outcomes: &[(SeqId, Outcome)],
        guidance: Option<&Guidance>,
        pool: &mut BlockPool,
        events: &mut Vec<(SeqId, Event)>,
    ) {
        let seq = chunk.seq;
        let max_model_len = self.config.max_model_len;
        let Some(running) = self.find_mut(seq) else { return };
        if matches!(outcomes, [(_, Outcome::Late)]) {
            // As if the step had ended before its last known token, whose logits are wanted again. K and V written twice are
            // the same.
            running.computed = chunk.tokens.end - chunk.proposed - 1;
            running.publish(pool);
            return;
        }
        let drawn = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Token(_))).count() as u32;
        // Each token drawn but the last was guessed, and its keys and values are in place; the other guesses were wrong.
        let accepted = drawn.saturating_sub(1).min(chunk.proposed);
        running.computed = chunk.tokens.end - chunk.proposed + accepted;
        // What a grammar forces is no luck.
        if chunk.proposed > 0 && running.forced.is_empty() {
            running.luck.note(chunk.proposed as usize, accepted as usize, running.generated());
        }
        running.forced = guidance.map_or(Vec::new(), |guidance| guidance.forced.clone());
        let failed = outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
        let mut end = (outcomes.is_empty() && chunk.sample).then_some(Event::Failed(RequestError::StepFailed));
        for (_, outcome) in outcomes {
            end = match outcome {
                Outcome::Failed(SequenceFault::Forward) => Some(Event::Failed(RequestError::StepFailed)),
                Outcome::Failed(SequenceFault::OutOfMemory) => Some(Event::Failed(RequestError::OutOfMemory)),
                Outcome::Failed(SequenceFault::NonFiniteLogits) => Some(Event::Failed(RequestError::NonFiniteLogits)),
                Outcome::Failed(SequenceFault::Grammar(message)) => {
                    Some(Event::Failed(RequestError::Grammar { message: message.clone() }))
                }
                Outcome::Complete => Some(Event::Finished(FinishReason::Stop)),
                Outcome::Embedded(vector) => {
                    events.push((seq, Event::Embedded(vector.clone())));
                    Some(Event::Finished(FinishReason::Stop))
                }
                // Never beside another outcome.
                Outcome::Late => None,
                Outcome::Token(sampled) => {
                    events.push((seq, Event::Token(sampled.clone())));
                    match running.emit(sampled.token, max_model_len) {
                        Advance::Continues => None,
                        Advance::Ends(reason) => Some(Event::Finished(reason)),
                    }
                }
            };
            if end.is_some() {
                break;
            }
        }
        // Complete at the very last token it may have is complete.
        let over = matches!(end, None | Some(Event::Finished(FinishReason::Length)));
        if over && guidance.is_some_and(|guidance| guidance.complete) {
            end = Some(Event::Finished(FinishReason::Stop));
        }
        // A failed step may have left anything in its blocks.
        if !failed && (!outcomes.is_empty() || !chunk.sample) {
            running.publish(pool);
        }
        if let Some(end) = end {
            let failed = matches!(end, Event::Failed(_));
            events.push((seq, end));
            self.running.extract_if(.., |running| running.id() == seq).for_each(|running| running.leave(failed, pool));
        }
    }

    /// Takes a sequence out of whichever queue holds it and frees its blocks. False if it is in none.
    pub fn abort(&mut self, seq: SeqId, pool: &mut BlockPool) -> bool {
        if let Some(at) = self.running.iter().position(|r| r.id() == seq) {
            self.running.remove(at).leave(false, pool);
            return true;
        }
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.id() != seq);
        self.waiting.len() < before
    }

    fn find(&self, seq: SeqId) -> Option<&Running> {
        self.running.iter().find(|running| running.id() == seq)
    }

    fn find_mut(&mut self, seq: SeqId) -> Option<&mut Running> {
        self.running.iter_mut().find(|running| running.id() == seq)
    }
}

#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod background_tests;
#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod guided_tests;
#[cfg(test)]
mod policy_tests;
#[cfg(test)]
mod stall_tests;
#[cfg(test)]
mod tests;
