//! What all peers have: requests that become sequences, their blocks, and steps that take as long as the cost model says.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::blocks::{Blocks, Key};
use crate::arrival::Arrival;
use crate::cost::CostModel;
use crate::dice::Dice;
use crate::measure::{End, Measured, Record};
use crate::setup::Setup;
use forebay_core::request::Priority;
use forebay_core::scheduler::StepLoad;
use forebay_core::units::Micros;

/// Decides what a step computes.
pub trait Scheduler {
    /// A request has come; they come in the order of their numbers.
    fn on_arrival(&mut self, engine: &Engine, id: usize);

    /// Which sequences the next step computes, and how many tokens of each; nothing only if nobody is there. Whoever is in the
    /// plan has blocks for these tokens.
    fn plan(&mut self, engine: &mut Engine, now: Micros) -> Vec<(usize, usize)>;

    /// A step of this plan took so long; its sequences are where it has brought them.
    fn on_step(&mut self, _engine: &Engine, _plan: &[(usize, usize)], _took: Micros, _now: Micros) {}

    /// A sequence has its last token.
    fn on_end(&mut self, id: usize);

    /// The pool that it works with.
    fn blocks(&self, size: usize, count: usize) -> Blocks {
        Blocks::new(size, count)
    }
}

/// The sequences, and what they run on.
pub struct Engine {
    /// By number of their requests.
    pub sequences: Vec<Sequence>,
    pub blocks: Blocks,
    pub seats: usize,
    pub step_tokens: usize,
}

/// A request on its way.
pub struct Sequence {
    pub priority: Priority,
    /// Of the prompt's full blocks.
    keys: Vec<Key>,
    pub prompt: usize,
    pub output: usize,
    /// Tokens whose KV is there.
    pub computed: usize,
    pub generated: usize,
    blocks: Vec<usize>,
}

impl Sequence {
    fn new(arrival: &Arrival, index: usize, block_size: usize) -> Sequence {
        let tokens = arrival.prompt(index);
        let mut hasher = DefaultHasher::new();
        let key = |block: &[u32]| {
            block.hash(&mut hasher);
            hasher.finish()
        };
        Sequence {
            priority: arrival.priority,
            keys: tokens.chunks_exact(block_size).map(key).collect(),
            prompt: tokens.len(),
            output: arrival.output_tokens as usize,
            computed: 0,
            generated: 0,
            blocks: Vec::new(),
        }
    }

    /// Tokens to compute until the next is drawn.
    pub fn missing(&self) -> usize {
        self.prompt + self.generated - self.computed
    }

    /// It computes the token that it drew last, and nothing else.
    pub fn decodes(&self) -> bool {
        self.generated > 0 && self.missing() == 1
    }
}

impl Engine {
    /// Blocks of its prompt that are cached. The last token is always computed, since something must be drawn from.
    pub fn cached(&self, id: usize) -> usize {
        self.blocks.cached(self.shareable(id))
    }

    /// The names of the blocks of its prompt that it can share.
    pub fn shareable(&self, id: usize) -> &[Key] {
        let sequence = &self.sequences[id];
        let most = (sequence.prompt + sequence.generated - 1) / self.blocks.size;
        &sequence.keys[..most.min(sequence.keys.len())]
    }

    /// Begins with what is cached.
    pub fn share(&mut self, id: usize) {
        let keys = self.shareable(id).to_vec();
        let blocks = self.blocks.share(&keys);
        let sequence = &mut self.sequences[id];
        sequence.computed = blocks.len() * self.blocks.size;
        sequence.blocks = blocks;
    }

    /// Blocks for `tokens` more; false if there are too few.
    pub fn grow(&mut self, id: usize, tokens: usize) -> bool {
        let sequence = &mut self.sequences[id];
        let needed = (sequence.computed + tokens).div_ceil(self.blocks.size).saturating_sub(sequence.blocks.len());
        match self.blocks.take(needed) {
            Some(blocks) => {
                sequence.blocks.extend(blocks);
                true
            }
            None => false,
        }
    }

    /// Others can share its prompt up to `tokens`.
    pub fn publish(&mut self, id: usize, tokens: usize) {
        let sequence = &self.sequences[id];
        let full = sequence.blocks.iter().zip(&sequence.keys).take(tokens / self.blocks.size);
        full.for_each(|(block, key)| self.blocks.publish(*block, *key));
    }

    /// Its blocks are gone, and it begins anew.
    pub fn forget(&mut self, id: usize) {
        let sequence = &mut self.sequences[id];
        sequence.computed = 0;
        self.blocks.give_back(std::mem::take(&mut sequence.blocks));
    }

    fn load(&self, plan: &[(usize, usize)]) -> StepLoad {
        let of = |(id, tokens): &(usize, usize)| {
            let sequence = &self.sequences[*id];
            match sequence.decodes() {
                true => StepLoad::decode(sequence.computed + 1),
                false => StepLoad::prefill(sequence.computed, *tokens),
            }
        };
        plan.iter().map(of).fold(StepLoad::STEP, |sum, load| sum + load)
    }
}

/// A run under virtual time, as [`crate::simulate()`] is one of ours.
pub struct Run<'a> {
    arrivals: &'a [Arrival],
    cost: CostModel,
    dice: Dice,
    engine: Engine,
    count: usize,
    measured: Measured,
    now: Micros,
    /// The next of `arrivals` to be heard.
    next: usize,
    ended: usize,
}

impl<'a> Run<'a> {
    pub fn new(setup: &Setup, classes: &[String], arrivals: &'a [Arrival], seed: u64) -> Run<'a> {
        let mut measured = Measured::new(classes.to_vec());
        measured.records = arrivals.iter().map(Record::of).collect();
        let sequence = |(index, arrival)| Sequence::new(arrival, index, setup.block_size);
        let engine = Engine {
            sequences: arrivals.iter().enumerate().map(sequence).collect(),
            blocks: Blocks::new(setup.block_size, 0),
            seats: setup.scheduler.max_num_seqs,
            step_tokens: setup.scheduler.max_num_batched_tokens,
        };
        let dice = Dice::stream(seed, 3);
        let count = setup.blocks();
        Run { arrivals, cost: setup.cost, dice, engine, count, measured, now: Micros::ZERO, next: 0, ended: 0 }
    }

    /// Until every request has ended.
    pub fn finish(mut self, mut scheduler: impl Scheduler) -> Measured {
        self.engine.blocks = scheduler.blocks(self.engine.blocks.size, self.count);
        while self.ended < self.arrivals.len() {
            self.hear(&mut scheduler);
            let plan = scheduler.plan(&mut self.engine, self.now);
            if plan.is_empty() {
                self.now = self.arrivals.get(self.next).expect("whoever is there computes").at;
            } else {
                self.step(&mut scheduler, &plan);
            }
        }
        self.measured.duration = self.now;
        self.measured
    }

    fn hear(&mut self, scheduler: &mut impl Scheduler) {
        while self.arrivals.get(self.next).is_some_and(|arrival| arrival.at <= self.now) {
            scheduler.on_arrival(&self.engine, self.next);
            self.next += 1;
        }
    }

    fn step(&mut self, scheduler: &mut impl Scheduler, plan: &[(usize, usize)]) {
        let took = self.cost.draw(&self.engine.load(plan), &mut self.dice);
        self.now = self.now + Micros(self.cost.gap_us.round() as u64) + took;
        let mut over = Vec::new();
        for &(id, tokens) in plan {
            let sequence = &mut self.engine.sequences[id];
            sequence.computed += tokens;
            let (computed, draws) = (sequence.computed, sequence.missing() == 0);
            sequence.generated += usize::from(draws);
            let is_over = sequence.generated == sequence.output;
            self.engine.publish(id, computed);
            if draws {
                self.measured.token(id, self.now);
            }
            if is_over {
                over.push(id);
            }
        }
        scheduler.on_step(&self.engine, plan, took, self.now);
        for id in over {
            self.engine.forget(id);
            scheduler.on_end(id);
            self.measured.end(id, End::Completed, self.now);
            self.ended += 1;
        }
    }
}
