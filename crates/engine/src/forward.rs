//! The real executor: one forward pass of the model, then a draw for each sequence that reached its end.

use std::collections::HashMap;
use std::ops::Range;

use forebay_clock::Clock;
use forebay_core::constraint::Mask;
use forebay_core::request::{Goal, Request, SamplingParams, Shaping};
use forebay_core::sampling::{self, NonFinite, Sampler, Seen};
use forebay_core::step::{BatchChunk, Logprobs, Outcome, Sampled, SequenceFault, StepBatch, StepOutput};
use forebay_core::units::{Micros, SeqId, TokenId};
use forebay_model::{Asked, Computed, DeviceError, Draw, ForwardError, Model, Rows};

use super::guide::{Guide, Task};
use super::masks::{Masks, Seat};
use super::pooler::Pooler;
use forebay_turn::executor::{ExecuteError, Executor};

/// A model and how each live sequence wants its tokens drawn.
pub struct Forward {
    model: Model,
    /// Dropped before `masks`, whose threads then have nobody left to compute for.
    sequences: HashMap<SeqId, Drawing>,
    masks: Masks,
    room: Room,
    /// What the step at hand reads of its logits; kept for the memory.
    wanted: Vec<Wanted>,
    rows: Vec<usize>,
    /// Of the same rows, those from which the device draws; empty where it does not.
    draws: Vec<Option<Draw>>,
    adapters: Vec<Option<u32>>,
    /// The same of its hidden states.
    states: Vec<usize>,
    clock: Clock,
    computed: Option<Micros>,
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
    adapter: Option<u32>,
    prompt_tokens: usize,
    seen: Seen,
    scoring: Option<Scoring>,
    seat: Option<Seat>,
    /// Of an embedding, for which nothing is drawn.
    pooler: Option<Pooler>,
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

/// Rows of a step whose logits are read: first those of prompts to be scored, then those that tokens are drawn from. And
/// those whose hidden states are pooled.
struct Wanted {
    scored: Range<usize>,
    drawn: Range<usize>,
    pooled: Range<usize>,
}

impl Forward {
    /// `model` has its KV memory allocated, as large as the core's block pool.
    pub fn new(model: Model) -> Forward {
        Forward {
            model,
            sequences: HashMap::new(),
            masks: Masks::new(),
            room: Room::default(),
            wanted: Vec::new(),
            rows: Vec::new(),
            draws: Vec::new(),
            adapters: Vec::new(),
            states: Vec::new(),
            clock: Clock::system(),
            computed: None,
        }
    }

    fn wants(&self, batch: &StepBatch, chunk: &BatchChunk) -> Wanted {
        let rows = chunk.rows.clone();
        let drawing = self.sequences.get(&chunk.seq);
        if let Some(pooler) = drawing.and_then(|drawing| drawing.pooler.as_ref()) {
            let pooled = pooler.wants(&rows, batch.positions[rows.start] as usize);
            return Wanted { scored: rows.end..rows.end, drawn: rows.end..rows.end, pooled };
        }
        let drawn = if chunk.sample { rows.end - 1 - chunk.proposed..rows.end } else { rows.end..rows.end };
        let scored = drawing.and_then(|drawing| drawing.scoring.as_ref());
        let scored = scored.map_or(rows.end..rows.end, |scoring| {
            // The row at position `p` says how likely token `p + 1` was.
            let first = batch.positions[rows.start] as usize;
            let row_of = |position: usize| (rows.start + position.saturating_sub(first)).min(rows.end);
            row_of(scoring.done.len())..row_of(scoring.prompt.len() - 1)
        });
        Wanted { scored, drawn, pooled: rows.end..rows.end }
    }

    /// Fills `draws`: rows for whose token nothing is needed but their logits, so that they need not leave the device.
    fn leave_to_device(&mut self, batch: &StepBatch, wanted: &[Wanted]) {
        self.draws.clear();
        if !self.model.draws() {
            return;
        }
        for (chunk, wanted) in batch.chunks.iter().zip(wanted) {
            let drawing = self.sequences.get(&chunk.seq);
            let plain = |row: usize| drawing?.plain(batch.positions[row] + 1);
            self.draws.extend(wanted.scored.clone().map(|_| None).chain(wanted.drawn.clone().map(plain)));
        }
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
        drawing
            .draw(logits, &mut self.room, position, |seat| match seat.guide()? {
                Some(guide) => guide.mask(nth, guesses(batch, chunk)),
                None => Ok(None),
            })
            .unwrap_or_else(Outcome::Failed)
    }

    /// The model's part, and beside it that of the grammars of those who draw.
    fn forward(&mut self, batch: &StepBatch) -> Result<(Computed, Vec<Option<TokenId>>), ExecuteError> {
        if self.sequences.values().all(|drawing| drawing.seat.is_none()) {
            return self.compute(batch);
        }
        for chunk in batch.chunks.iter().filter(|chunk| chunk.sample) {
            let Some(drawing) = self.sequences.get_mut(&chunk.seq) else { continue };
            let drawn = drawing.drawn(batch, chunk);
            if let Some(seat) = &mut drawing.seat {
                self.masks.ask(seat, Task::Masks { drawn, guesses: guesses(batch, chunk).to_vec() });
            }
        }
        let began = self.masks.now();
        let output = self.compute(batch)?;
        let computed = self.masks.now().since(began);
        self.collect(batch, computed);
        Ok(output)
    }

    /// And the tokens that the device drew.
    fn compute(&mut self, batch: &StepBatch) -> Result<(Computed, Vec<Option<TokenId>>), ExecuteError> {
        let adapter = |chunk: &BatchChunk| self.sequences.get(&chunk.seq).and_then(|drawing| drawing.adapter);
        self.adapters.clear();
        self.adapters.extend(batch.chunks.iter().map(adapter));
        let asked = Asked { rows: Rows::Picked(&self.rows), states: &self.states, adapters: &self.adapters };
        self.model.draw(batch, asked, &self.draws).map_err(|error| match error {
            ForwardError::Device(DeviceError::OutOfMemory(reason)) => ExecuteError::OutOfMemory(reason),
            other => ExecuteError::Failed(other.to_string()),
        })
    }

    fn step(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecuteError> {
        if self.model.spec().only_embeds() && batch.chunks.iter().any(|chunk| !chunk.sample) {
            return Err(ExecuteError::Failed("a prompt was cut, and an encoder computes prompts whole".to_owned()));
        }
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.clear();
        wanted.extend(batch.chunks.iter().map(|chunk| self.wants(batch, chunk)));
        self.rows.clear();
        self.rows.extend(wanted.iter().flat_map(|wanted| wanted.scored.clone().chain(wanted.drawn.clone())));
        self.states.clear();
        self.states.extend(wanted.iter().flat_map(|wanted| wanted.pooled.clone()));
        self.leave_to_device(batch, &wanted);
        let (Computed { logits, states }, drawn) = self.forward(batch)?;
        let mut tokens = drawn.into_iter();
        let mut place = 0;
        let mut row = logits.data.chunks_exact(logits.vocab);
        let mut state = states.chunks_exact(self.model.width());
        let outcomes = Vec::with_capacity(wanted.iter().map(|wanted| wanted.drawn.len()).sum());
        let mut output = StepOutput { outcomes, ..StepOutput::default() };
        for (chunk, wanted) in batch.chunks.iter().zip(&wanted) {
            if let Some(pooler) = self.sequences.get_mut(&chunk.seq).and_then(|drawing| drawing.pooler.as_mut()) {
                state.by_ref().take(wanted.pooled.len()).for_each(|state| pooler.take(state));
                if chunk.sample {
                    let outcome = pooler.result().map_or_else(Outcome::Failed, Outcome::Embedded);
                    output.outcomes.push((chunk.seq, outcome));
                }
                continue;
            }
            for logits in row.by_ref().take(wanted.scored.len()) {
                if let Some(scoring) = self.sequences.get_mut(&chunk.seq).and_then(|d| d.scoring.as_mut()) {
                    scoring.score(logits);
                }
            }
            place += wanted.scored.len();
            let mut right = true;
            for at in wanted.drawn.clone().enumerate() {
                let ready = self.draws.get(place).is_some_and(Option::is_some).then(|| tokens.next().flatten());
                let logits = if ready.is_none() { row.next() } else { None };
                place += 1;
                if !right {
                    continue;
                }
                let outcome = match (ready, logits) {
                    (Some(Some(token)), _) => Outcome::Token(Sampled { token, logprobs: None }),
                    (Some(None), _) => Outcome::Failed(SequenceFault::NonFiniteLogits),
                    (None, Some(logits)) => self.draw(batch, chunk, at, logits),
                    (None, None) => Outcome::Failed(SequenceFault::Forward),
                };
                right = match &outcome {
                    Outcome::Token(sampled) => {
                        batch.tokens.get(at.1 + 1) == Some(&sampled.token) && !self.ends(chunk.seq, sampled.token)
                    }
                    Outcome::Embedded(_) | Outcome::Complete | Outcome::Late | Outcome::Failed(_) => false,
                };
                // A mask that is not known ends the draws; only where there is none at all is the sequence late.
                if outcome != Outcome::Late || at.0 == 0 {
                    output.outcomes.push((chunk.seq, outcome));
                }
            }
        }
        drop(row);
        self.model.recycle(logits);
        self.settle(batch, &mut output);
        self.wanted = wanted;
        Ok(output)
    }

    /// Waits for what the guides of the step were asked.
    fn collect(&mut self, batch: &StepBatch, computed: Micros) {
        let draws = |seq: &SeqId| batch.chunks.iter().any(|chunk| chunk.sample && chunk.seq == *seq);
        let seats = self.sequences.iter_mut().filter(|(seq, drawing)| drawing.seat.is_some() && draws(seq));
        let mut seats: Vec<&mut Seat> = seats.filter_map(|(_, drawing)| drawing.seat.as_mut()).collect();
        let beside = seats.len() < batch.chunks.len();
        self.masks.collect(&mut seats, computed, beside);
    }

    /// Lets the guides take what was drawn. Those who are late are as if they had drawn nothing; the next step draws the same.
    fn settle(&mut self, batch: &StepBatch, output: &mut StepOutput) {
        let mut asked = false;
        for chunk in batch.chunks.iter().filter(|chunk| chunk.sample) {
            let Some(drawing) = self.sequences.get_mut(&chunk.seq) else { continue };
            let place = drawing.drawn(batch, chunk);
            let Some(seat) = drawing.seat.as_mut().filter(|seat| matches!(seat.guide(), Ok(Some(_)))) else { continue };
            let own = || output.outcomes.iter().filter(|(seq, _)| *seq == chunk.seq);
            if own().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_))) {
                continue;
            }
            let tokens = own().filter_map(|(_, outcome)| match outcome {
                Outcome::Token(sampled) => Some(sampled.token),
                Outcome::Embedded(_) | Outcome::Complete | Outcome::Late | Outcome::Failed(_) => None,
            });
            self.masks.ask(seat, Task::Take { place, tokens: tokens.collect() });
            asked = true;
        }
        if !asked {
            return;
        }
        self.collect(batch, Micros::ZERO);
        for chunk in batch.chunks.iter().filter(|chunk| chunk.sample) {
            let Some(seat) = self.sequences.get(&chunk.seq).and_then(|drawing| drawing.seat.as_ref()) else { continue };
            let mut own = output.outcomes.iter_mut().filter(|(seq, _)| *seq == chunk.seq);
            match seat.guide().and_then(|guide| guide.map(Guide::guidance).transpose()) {
                Ok(Some(guidance)) => output.guidance.push((chunk.seq, guidance)),
                Ok(None) => own.for_each(|(_, outcome)| *outcome = Outcome::Late),
                Err(fault) => own.next_back().into_iter().for_each(|(_, last)| *last = Outcome::Failed(fault.clone())),
            }
        }
        let late = |(seq, outcome): &(SeqId, Outcome)| (*outcome == Outcome::Late).then_some(*seq);
        output.outcomes.dedup_by(|next, before| late(next).is_some() && late(next) == late(before));
    }
}

/// What the chunk guesses.
fn guesses<'a>(batch: &'a StepBatch, chunk: &BatchChunk) -> &'a [TokenId] {
    &batch.tokens[chunk.rows.end - chunk.proposed..chunk.rows.end]
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
            adapter: request.adapter(),
            prompt_tokens: request.prompt().len(),
            seen: if request.shaping().remembers() { Seen::new(request.prompt()) } else { Seen::default() },
            scoring,
            seat: request.grammar().map(Seat::new),
            pooler: match request.goal() {
                Goal::Completion => None,
                Goal::Embedding(pooling) => Some(Pooler::new(pooling, request.prompt().len())),
            },
        }
    }

    /// Tokens of the completion before the step.
    fn drawn(&self, batch: &StepBatch, chunk: &BatchChunk) -> usize {
        let row = chunk.rows.end - 1 - chunk.proposed;
        (batch.positions[row] as usize + 1).saturating_sub(self.prompt_tokens)
    }

    /// How the token at `position` is drawn, where that takes nothing but its row of logits.
    fn plain(&self, position: u32) -> Option<Draw> {
        let drawn = (position as usize).saturating_sub(self.prompt_tokens);
        let told = self.logprobs.is_some() || (self.scoring.is_some() && drawn == 0);
        if told || self.seat.is_some() || self.shaping.changes(drawn) {
            return None;
        }
        Draw::new(self.sampling, position)
    }

    /// Draws the token at `position`. No token where the grammar leaves none, the text being complete, or where its mask is
    /// not known.
    fn draw(
        &mut self,
        logits: &[f32],
        room: &mut Room,
        position: u32,
        mask_of: impl Fn(&Seat) -> Result<Option<&Mask>, SequenceFault>,
    ) -> Result<Outcome, SequenceFault> {
        let Room { row, sampler } = room;
        let drawn = (position as usize).saturating_sub(self.prompt_tokens);
        self.seen.rewind(drawn);
        let mask = match &self.seat {
            Some(seat) => match mask_of(seat)? {
                Some(known) => Some(known),
                None => return Ok(Outcome::Late),
            },
            None => None,
        };
        let mut sampled = if self.shaping.changes(drawn) || mask.is_some() {
            row.clear();
            row.extend_from_slice(logits);
            sampling::shape(row, &self.shaping, &self.seen, &self.stop_tokens, drawn);
            if mask.is_some_and(|mask| forbid(row, mask, &self.stop_tokens) == Left::Nothing) {
                return Ok(Outcome::Complete);
            }
            sampler.sample(row, &self.sampling, position, None)?
        } else {
            sampler.sample(logits, &self.sampling, position, None)?
        };
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
        Ok(Outcome::Token(sampled))
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
fn forbid(logits: &mut [f32], mask: &Mask, stops: &[TokenId]) -> Left {
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

impl Executor for Forward {
    fn admit(&mut self, request: &Request) {
        self.sequences.insert(request.id(), Drawing::new(request));
    }

    fn run(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecuteError> {
        fail::fail_point!("engine::forward", |_| Err(ExecuteError::Failed("failpoint".into())));
        let began = self.clock.now();
        let output = self.step(batch);
        self.computed = Some(self.clock.now().since(began));
        output
    }

    fn computed(&self) -> Option<Micros> {
        self.computed
    }

    fn forget(&mut self, seq: SeqId) {
        self.sequences.remove(&seq);
    }
}
