//! What crosses from decision to compute and back: plain vectors, no tensors. Pure.
//!
//! A step is one forward pass over a packed, ragged batch: one flat token axis on which the chunks of different
//! sequences (prefill chunks and single decode tokens alike) lie one after another, without padding.

use std::ops::Range;

use crate::units::{BlockId, SeqId, TokenId};

/// One forward pass, in physical terms. `T` is the number of tokens in the step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepBatch {
    /// `[T]` token ids, chunk after chunk.
    pub tokens: Vec<TokenId>,
    /// `[T]` the position of each token in its own sequence, from 0.
    pub positions: Vec<u32>,
    /// `[T]` where each token's K and V are written: `block * block_size + offset`.
    pub slots: Vec<u32>,
    /// The block tables of all chunks, one after another; a chunk's own part is [`BatchChunk::table`].
    pub tables: Vec<BlockId>,
    /// One entry per sequence in the step, in the order of their rows.
    pub chunks: Vec<BatchChunk>,
    /// Copy-on-write orders `(from, to)`, to be carried out before anything is written.
    pub copies: Vec<(BlockId, BlockId)>,
}

/// One sequence's part of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchChunk {
    pub seq: SeqId,
    /// Rows of the flat token axis; never empty. Their positions are consecutive.
    pub rows: Range<usize>,
    /// Entries of [`StepBatch::tables`]: logical block `i` of the sequence is `tables[table.start + i]`. Covers at
    /// least `positions[rows.end - 1] + 1` tokens.
    pub table: Range<usize>,
    /// Whether the logits of the last row are wanted and a token is drawn from them; an embedding is complete instead.
    pub sample: bool,
    /// The last so many rows hold guesses. A token is drawn from the row before them and, as long as what was drawn is what
    /// the next row guessed, from the rows after it.
    pub proposed: usize,
}

/// What a step brought: one outcome for each chunk with `sample`, in chunk order; one more for each guess that was right.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOutput {
    pub outcomes: Vec<(SeqId, Outcome)>,
    /// Of the sequences that have a grammar and drew, in chunk order.
    pub guidance: Vec<(SeqId, Guidance)>,
}

/// What a sequence's grammar says after its last token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guidance {
    /// The text is complete and nothing may follow: the completion is over, drawn end token or not.
    pub complete: bool,
    /// Tokens that must come next, as good guesses as there can be; possibly none.
    pub forced: Vec<TokenId>,
    /// Tokens that this step drew, and those of them that had an alternative.
    pub drawn: usize,
    pub choices: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Token(Sampled),
    /// The pooled hidden states of a prompt, for a sequence that is an embedding's.
    Embedded(Vec<f32>),
    /// No token: the sequence's grammar leaves only an end, and none that it may draw.
    Complete,
    /// No token yet: which may be drawn is still being computed. The only outcome of its sequence, which sits the step out
    /// and is to compute its last known token again.
    Late,
    /// This sequence alone failed; the others of the step are unaffected.
    Failed(SequenceFault),
}

/// A drawn token and, where asked for, what else was likely.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    pub token: TokenId,
    pub logprobs: Option<Logprobs>,
}

/// Natural logarithms of probabilities under the model's own distribution (before temperature and filters).
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// Of the token that was drawn.
    pub sampled: f32,
    /// Its place among all tokens, from 1, in the order of `top`.
    pub rank: usize,
    /// The most likely tokens, best first; ties by lowest id. As many as were asked for.
    pub top: Vec<(TokenId, f32)>,
    /// Of each token of the prompt but the first, where asked for; with the first token that is drawn, else empty.
    pub prompt: Vec<Logprobs>,
}

/// Why one sequence failed inside a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SequenceFault {
    /// Its logits held a NaN or no finite value at all.
    NonFiniteLogits,
    /// The forward pass failed or panicked even with this sequence alone in the step.
    Forward,
    /// The device had no memory left for it, even alone in the step.
    OutOfMemory,
    /// Its grammar met a limit, or leaves no token that the model has.
    Grammar(String),
}
