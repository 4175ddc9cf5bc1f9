//! The real executor: one forward pass of the model, then a draw for each sequence that reached its end.

use std::collections::HashMap;

use crate::model::{Model, Rows};
use crate::request::{Request, SamplingParams};
use crate::sampling;
use crate::step::{BatchChunk, Outcome, SequenceFault, StepBatch, StepOutput};
use crate::units::SeqId;

use super::executor::{ExecuteError, Executor};

/// A model and how each live sequence wants its tokens drawn.
pub struct Forward {
    model: Model,
    sequences: HashMap<SeqId, Drawing>,
}

#[derive(Clone, Copy)]
struct Drawing {
    sampling: SamplingParams,
    logprobs: Option<u32>,
}

impl Forward {
    /// `model` has its KV memory allocated, as large as the core's block pool.
    pub fn new(model: Model) -> Forward {
        Forward { model, sequences: HashMap::new() }
    }

    fn draw(&self, batch: &StepBatch, chunk: &BatchChunk, logits: &[f32]) -> Outcome {
        let Some(drawing) = self.sequences.get(&chunk.seq) else {
            return Outcome::Failed(SequenceFault::Forward);
        };
        let position = batch.positions[chunk.rows.end - 1] + 1;
        match sampling::sample(logits, &drawing.sampling, position, drawing.logprobs) {
            Ok(sampled) => Outcome::Token(sampled),
            Err(sampling::NonFinite) => Outcome::Failed(SequenceFault::NonFiniteLogits),
        }
    }
}

impl Executor for Forward {
    fn admit(&mut self, request: &Request) {
        let drawing = Drawing { sampling: *request.sampling(), logprobs: request.logprobs() };
        self.sequences.insert(request.id(), drawing);
    }

    fn run(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecuteError> {
        let logits = self.model.forward(batch, Rows::Sampled).map_err(|error| ExecuteError(error.to_string()))?;
        let sampled = batch.chunks.iter().filter(|chunk| chunk.sample);
        let outcomes = sampled
            .zip(logits.data.chunks_exact(logits.vocab))
            .map(|(chunk, row)| (chunk.seq, self.draw(batch, chunk, row)))
            .collect();
        self.model.recycle(logits);
        Ok(StepOutput { outcomes })
    }

    fn forget(&mut self, seq: SeqId) {
        self.sequences.remove(&seq);
    }
}
