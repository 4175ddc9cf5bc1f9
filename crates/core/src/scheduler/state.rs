//! The scheduler between two calls: who is live, what is learnt, what is in force.
//!
//! It is driven in a circle: `plan`, `batch`, the step itself, `commit`. Between a commit and the next plan sequences are
//! submitted and aborted, and the configuration changes.

use crate::kv::{Block, BlockPool};
use crate::request::{Event, FinishReason, Request, RequestError};
use crate::step::{BatchChunk, Guidance, Outcome, SequenceFault, StepBatch, StepOutput};
use crate::units::{Micros, SeqId};

use super::budget::Draft;
use super::chunk::Chunk;
use super::config::Config;
use super::cost::{StepCost, StepLoad};
use super::plan::{Found, StepPlan};
use super::planner::Planner;
use super::policy::PolicyExecutor;
use super::policy::thermal::Level;
use super::queues::Queues;
use super::sequence::{Advance, Waiting};
use super::speculate::add_guesses;

#[derive(Debug)]
pub struct Scheduler {
    pub(super) config: Config,
    pub(super) policy: PolicyExecutor,
    pub(super) cost: StepCost,
    /// The same with a long memory; nothing is planned by it.
    pub(super) lasting_cost: StepCost,
    pub(super) heat: Level,
    pub(super) queues: Queues,
    /// Orders batches while they are alone: what it remembers of them is nothing to the others.
    background: PolicyExecutor,
    arrivals: u64,
    pub(super) preemptions_total: u64,
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
            queues: Queues::default(),
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

    /// To the tail of its class in the waiting queue.
    pub fn submit(&mut self, request: Request) {
        let waiting = Waiting::new(request, self.arrivals);
        self.arrivals += 1;
        self.queues.join(waiting);
    }

    /// The next step, blocks taken for it; `None` when nothing is live or the heat forbids any step. Each plan must be
    /// committed.
    pub fn plan(&mut self, pool: &mut BlockPool, now: Micros) -> Option<StepPlan> {
        if self.heat == Level::Emergency || self.queues.is_empty() {
            return None;
        }
        let mut draft = Draft::new(self.config.step_tokens(), self.config.sequences_per_step(self.heat));
        draft.whole_prompts = self.config.whole_prompts;
        let planner = Planner {
            config: self.config,
            heat: self.heat,
            policy: &mut self.policy,
            background: &mut self.background,
            cost: &self.cost,
            queues: &mut self.queues,
            pinned: &mut self.pinned,
            pool: &mut *pool,
            now,
            draft,
            aside: Queues::default(),
        };
        let mut draft = planner.plan();
        self.preemptions_total += draft.plan.preempted.len() as u64;
        add_guesses(&mut draft, &self.queues, &self.config, &self.cost, pool.block_size());
        draft.plan.predicted = self.predict(&draft.plan.load);
        draft.plan.limit = draft.limit;
        (!draft.plan.chunks.is_empty()).then_some(draft.plan)
    }

    /// The plan in physical terms.
    pub fn batch(&self, plan: &StepPlan, pool: &BlockPool) -> StepBatch {
        let mut batch = StepBatch::default();
        for chunk in &plan.chunks {
            let Some(running) = self.queues.find(chunk.seq) else { continue };
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
        let Some(running) = self.queues.find_mut(seq) else { return };
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
        // What a grammar forces is always right, and says nothing about the guesses.
        if chunk.proposed > 0 && running.forced.is_empty() {
            running.acceptance.note(chunk.proposed as usize, accepted as usize, running.generated());
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
            if !chunk.decode && chunk.sample {
                running.publish_rest(pool);
            }
        }
        if let Some(end) = end {
            let failed = matches!(end, Event::Failed(_));
            events.push((seq, end));
            self.queues
                .running
                .extract_if(.., |running| running.id() == seq)
                .for_each(|running| running.leave(failed, pool));
        }
    }

    /// Takes a sequence out of whichever queue holds it and frees its blocks. False if it is in none.
    pub fn abort(&mut self, seq: SeqId, pool: &mut BlockPool) -> bool {
        if let Some(at) = self.queues.running.iter().position(|r| r.id() == seq) {
            self.queues.running.remove(at).leave(false, pool);
            return true;
        }
        let before = self.queues.waiting.len();
        self.queues.waiting.retain(|waiting| waiting.id() != seq);
        self.queues.waiting.len() < before
    }
}
