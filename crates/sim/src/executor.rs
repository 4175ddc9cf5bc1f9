//! A model that costs time and knows one word.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cost::{self, CostModel};
use super::dice::Dice;
use forebay_core::request::Request;
use forebay_core::step::{Outcome, Sampled, StepBatch, StepOutput};
use forebay_core::units::{Micros, SeqId, TokenId};
use forebay_turn::executor::{ExecuteError, Executor};

/// The token that every step draws.
pub const WORD: TokenId = 1;

/// Says [`WORD`] for every chunk that draws, and how long that would have taken. Guesses are never right.
pub struct SimExecutor {
    cost: CostModel,
    dice: Dice,
    stopwatch: Stopwatch,
}

/// Adds up what steps took; shared, since the executor is inside the core.
#[derive(Clone, Debug, Default)]
pub struct Stopwatch(Arc<AtomicU64>);

impl Stopwatch {
    /// What was added since the last call.
    pub fn take(&self) -> Micros {
        Micros(self.0.swap(0, Ordering::Relaxed))
    }

    fn add(&self, time: Micros) {
        self.0.fetch_add(time.0, Ordering::Relaxed);
    }
}

impl SimExecutor {
    pub fn new(cost: CostModel, seed: u64, stopwatch: Stopwatch) -> SimExecutor {
        SimExecutor { cost, dice: Dice::stream(seed, 3), stopwatch }
    }
}

impl Executor for SimExecutor {
    fn admit(&mut self, _request: &Request) {}

    fn run(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecuteError> {
        self.stopwatch.add(self.cost.draw(&cost::load(batch), &mut self.dice));
        let drawing = batch.chunks.iter().filter(|chunk| chunk.sample);
        let word = || Outcome::Token(Sampled { token: WORD, logprobs: None });
        Ok(StepOutput { outcomes: drawing.map(|chunk| (chunk.seq, word())).collect(), guidance: Vec::new() })
    }

    fn forget(&mut self, _seq: SeqId) {}
}
