//! The real executor: one forward pass of the model, then a draw for each sequence that reached its end.

use std::collections::HashMap;
use std::ops::Range;

use crate::grammar::Mask;
use crate::model::{Logits, Model, Rows};
use crate::request::{Request, SamplingParams, Shaping};
use crate::sampling::{self, NonFinite, Sampler, Seen};
use crate::step::{BatchChunk, Logprobs, Outcome, Sampled, SequenceFault, StepBatch, StepOutput};
use crate::units::{SeqId, TokenId};

use super::executor::{ExecuteError, Executor};
use super::guide::{self, Guide};

/// A model and how each live sequence wants its tokens drawn.
pub struct Forward {
    model: Model,
    sequences: HashMap<SeqId, Drawing>,
    room: Room,
    /// What the step at hand reads of its logits; kept for the memory.
    wanted: Vec<Wanted>,
    rows: Vec<usize>,
}

/// Memory of a draw, kept from one to the next.
#[derive(Default)]
struct Room {
    /// A row of logits, for those that are changed before the draw.
    row: Vec<f32>,
    sampler: Sampler,
}

struct Drawing {
    sampling: SamplingParams,
    shaping: Shaping,
    stop_tokens: Vec<TokenId>,
    logprobs: Option<u32>,
    prompt_tokens: usize,
    seen: Seen,
    scoring: Option<Scoring>,
    guide: Option<Guide>,
}

/// A prompt whose own tokens are to have logprobs. Each chunk's rows are turned into them at once, so that what is kept
/// does not grow with the vocabulary.
struct Scoring {
    count: u32,
    prompt: Vec<TokenId>,
    /// Of the prompt's tokens from the second on. Survives preemption, whose recomputation would only repeat it.
    done: Vec<Logprobs>,
    finite: bool,
}

/// Rows of a step whose logits are read: first those of prompts to be scored, then those that tokens are drawn from.
struct Wanted {
    scored: Range<usize>,
    drawn: Range<usize>,
}

impl Forward {
    /// `model` has its KV memory allocated, as large as the core's block pool.
    pub fn new(model: Model) -> Forward {
        Forward { model, sequences: HashMap::new(), room: Room::default(), wanted: Vec::new(), rows: Vec::new() }
    }

    fn wants(&self, batch: &StepBatch, chunk: &BatchChunk) -> Wanted {
        let rows = chunk.rows.clone();
        let drawn = if chunk.sample { rows.end - 1 - chunk.proposed..rows.end } else { rows.end..rows.end };
        let scored = self.sequences.get(&chunk.seq).and_then(|drawing| drawing.scoring.as_ref());
        let scored = scored.map_or(rows.end..rows.end, |scoring| {
            // The row at position `p` says how likely token `p + 1` was.
            let first = batch.positions[rows.start] as usize;
            let row_of = |position: usize| (rows.start + position.saturating_sub(first)).min(rows.end);
            row_of(scoring.done.len())..row_of(scoring.prompt.len() - 1)
        });
        Wanted { scored, drawn }
    }

    /// Whether nothing may be drawn after `token`.
    fn ends(&self, seq: SeqId, token: TokenId) -> bool {
        self.sequences.get(&seq).is_some_and(|drawing| drawing.stop_tokens.contains(&token))
    }

    /// From the logits of row `row`, the `nth` that the chunk draws from.
    fn draw(&mut self, batch: &StepBatch, chunk: &BatchChunk, (nth, row): (usize, usize), logits: &[f32]) -> Outcome {
        let Some(drawing) = self.sequences.get_mut(&chunk.seq) else {
            return Outcome::Failed(SequenceFault::Forward);
        };
        let position = batch.positions[row] + 1;
        match drawing.draw(logits, &mut self.room, nth, position) {
            Ok(Some(sampled)) => Outcome::Token(sampled),
            Ok(None) => Outcome::Complete,
            Err(fault) => Outcome::Failed(fault),
        }
    }

    fn forward(&mut self, batch: &StepBatch) -> Result<Logits, ExecuteError> {
        let guides = self.sequences.iter_mut().filter_map(|(seq, drawing)| {
            let prompt = drawing.prompt_tokens;
            Some((*seq, drawing.guide.as_mut()?, prompt))
        });
        let (model, rows) = (&mut self.model, &self.rows);
        guide::beside(batch, guides, || model.forward(batch, Rows::Picked(rows)))
            .map_err(|error| ExecuteError(error.to_string()))
    }
}

impl Drawing {
    fn new(request: &Request) -> Drawing {
        let scoring = request.prompt_logprobs().map(|count| Scoring {
            count,
            prompt: request.prompt().to_vec(),
            done: Vec::with_capacity(request.prompt().len() - 1),
            finite: true,
        });
        Drawing {
            sampling: *request.sampling(),
            shaping: request.shaping().clone(),
            stop_tokens: request.stop_tokens().to_vec(),
            logprobs: request.logprobs(),
            prompt_tokens: request.prompt().len(),
            seen: if request.shaping().remembers() { Seen::new(request.prompt()) } else { Seen::default() },
            scoring,
            guide: request.grammar().map(Guide::new),
        }
    }

    /// Draws the token at `position`, the `nth` of the step. No token where the grammar leaves none, the text being complete.
    fn draw(
        &mut self,
        logits: &[f32],
        room: &mut Room,
        nth: usize,
        position: u32,
    ) -> Result<Option<Sampled>, SequenceFault> {
        let Room { row, sampler } = room;
        let drawn = (position as usize).saturating_sub(self.prompt_tokens);
        self.seen.rewind(drawn);
        let mut sampled = if self.shaping.changes(drawn) || self.guide.is_some() {
            row.clear();
            row.extend_from_slice(logits);
            sampling::shape(row, &self.shaping, &self.seen, &self.stop_tokens, drawn);
            if let Some(guide) = &self.guide
                && mask(row, guide.mask(nth)?, &self.stop_tokens) == Left::Nothing
            {
                return Ok(None);
            }
            sampler.sample(row, &self.sampling, position, None)?
        } else {
            sampler.sample(logits, &self.sampling, position, None)?
        };
        if let Some(guide) = &mut self.guide {
            guide.take(nth, drawn, sampled.token)?;
        }
        if self.shaping.remembers() {
            self.seen.push(sampled.token);
        }
        if let Some(count) = self.logprobs {
            sampled.logprobs = Some(sampling::logprobs(logits, sampled.token, count)?);
        }
        if let Some(scoring) = self.scoring.as_ref().filter(|_| drawn == 0) {
            let mut logprobs = match sampled.logprobs.take() {
                Some(logprobs) => logprobs,
                None => sampling::logprobs(logits, sampled.token, 0)?,
            };
            logprobs.prompt = scoring.result()?;
            sampled.logprobs = Some(logprobs);
        }
        Ok(Some(sampled))
    }
}

/// What a mask leaves to draw from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Something,
    /// The text may end here, and no end may be drawn.
    Nothing,
}

/// Forbids what the grammar does. An end token counts only if it would end the sequence: with `ignore_eos` it would be
/// text after the end.
fn mask(logits: &mut [f32], mask: &Mask, stops: &[TokenId]) -> Left {
    mask.apply(logits);
    for end in mask.ends().iter().filter(|end| !stops.contains(end)) {
        logits[*end as usize] = f32::NEG_INFINITY;
    }
    let nothing = mask.may_end() && logits.iter().all(|logit| *logit == f32::NEG_INFINITY);
    if nothing { Left::Nothing } else { Left::Something }
}

impl Scoring {
    fn score(&mut self, logits: &[f32]) {
        let Some(&token) = self.prompt.get(self.done.len() + 1) else { return };
        match sampling::logprobs(logits, token, self.count) {
            Ok(logprobs) => self.done.push(logprobs),
            Err(NonFinite) => self.finite = false,
        }
    }

    fn result(&self) -> Result<Vec<Logprobs>, SequenceFault> {
        if !self.finite {
            return Err(SequenceFault::NonFiniteLogits);
        }
        // A row that was never computed, as after a hit in a cache, cannot be made up.
        if self.done.len() + 1 == self.prompt.len() { Ok(self.done.clone()) } else { Err(SequenceFault::Forward) }
    }
}

impl From<NonFinite> for SequenceFault {
    fn from(_: NonFinite) -> SequenceFault {
        SequenceFault::NonFiniteLogits
    }
}

impl Executor for Forward {
    fn admit(&mut self, request: &Request) {
        self.sequences.insert(request.id(), Drawing::new(request));
    }

    fn run(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecuteError> {
        fail::fail_point!("engine::forward", |_| Err(ExecuteError("failpoint".into())));
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.clear();
        wanted.extend(batch.chunks.iter().map(|chunk| self.wants(batch, chunk)));
        self.rows.clear();
        self.rows.extend(wanted.iter().flat_map(|wanted| wanted.scored.clone().chain(wanted.drawn.clone())));
        let logits = self.forward(batch)?;
        let mut row = logits.data.chunks_exact(logits.vocab);
        let outcomes = Vec::with_capacity(wanted.iter().map(|wanted| wanted.drawn.len()).sum());
        let mut output = StepOutput { outcomes, ..StepOutput::default() };
        for (chunk, wanted) in batch.chunks.iter().zip(&wanted) {
            for logits in row.by_ref().take(wanted.scored.len()) {
                if let Some(scoring) = self.sequences.get_mut(&chunk.seq).and_then(|d| d.scoring.as_mut()) {
                    scoring.score(logits);
                }
            }
            let mut right = true;
            let drawn = wanted.drawn.clone().enumerate();
            for (at, logits) in drawn.zip(row.by_ref().take(wanted.drawn.len())) {
                if !right {
                    continue;
                }
                let outcome = self.draw(batch, chunk, at, logits);
                right = match &outcome {
                    Outcome::Token(sampled) => {
                        batch.tokens.get(at.1 + 1) == Some(&sampled.token) && !self.ends(chunk.seq, sampled.token)
                    }
                    Outcome::Complete | Outcome::Failed(_) => false,
                };
                output.outcomes.push((chunk.seq, outcome));
            }
            let drawing = self.sequences.get_mut(&chunk.seq).filter(|_| chunk.sample);
            if let Some(guide) = drawing.and_then(|drawing| drawing.guide.as_mut()) {
                output.guidance.push((chunk.seq, guide.guidance()));
            }
        }
        drop(row);
        self.model.recycle(logits);
        self.wanted = wanted;
        Ok(output)
    }

    fn forget(&mut self, seq: SeqId) {
        self.sequences.remove(&seq);
    }
}
