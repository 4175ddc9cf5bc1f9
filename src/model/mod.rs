//! One decoder-only transformer: weights, the paged cache's bytes, and the forward pass over packed ragged batches.
//!
//! Knows nothing of requests, scheduling or text: a [`StepBatch`] of plain vectors comes in, logits go out.
//!
//! ```text
//! load.rs ┬ arch.rs (config.json → spec.rs) ┬ weights/ (checked files → tensors)
//!         └ gguf/ (one file with everything) ┘
//! forward: batch.rs (StepBatch checked → flat indices) → kv_memory.rs (copies) → decoder.rs → backend.rs
//!                                                                     cpu/ over kernels ┴ candle.rs: CUDA, Metal, oracle
//! ```
//! On the CPU a sequence's logits do not depend, to the last bit, on who shares its step, how its prompt was cut into
//! chunks, which blocks hold its past, or how many threads compute.

mod arch;
mod backend;
mod batch;
#[cfg(feature = "builtin-model")]
mod builtin;
mod candle;
mod cpu;
mod decoder;
mod error;
mod gguf;
mod inspect;
mod json;
mod kv_memory;
mod load;
mod rope;
mod spec;
mod weights;

use std::sync::Arc;

use thiserror::Error;

use crate::step::StepBatch;
use candle::Candle;
use cpu::Cpu;

pub use crate::kernels::attention::KvDtype;
pub use crate::kernels::cores::Cores;
pub use crate::kernels::memory::release_freed;
pub use backend::DeviceError;
pub use batch::BatchError;
pub use error::{GgufRule, HeaderRule, LoadError, TensorRule};
pub use inspect::{Format, Inspection, TypeShare, inspect};
pub use load::{
    ChatFiles, DEFAULT_KV_DTYPE, DeviceChoice, LoadFormat, LoadOptions, LoadedModel, Source, TokenizerSource, load,
};
pub use spec::{Activation, Bias, DecoderSpec, LayerSpec, NormPlacement, QkNorm, Rope, RopeScaling};

/// Weights on a device, and the cache once [`Model::allocate_kv`] has made it.
pub struct Model {
    spec: DecoderSpec,
    on: Placed,
    kv_dtype: KvDtype,
}

#[allow(clippy::large_enum_variant)] // a process has one or two
enum Placed {
    Cpu(Parts<Cpu>),
    Candle(Parts<Candle>),
}

struct Parts<B: backend::Backend> {
    backend: B,
    /// The same for all replicas.
    weights: Arc<weights::decoder::DecoderWeights<B>>,
    kv: Option<kv_memory::KvMemory<B>>,
    frequencies: rope::Frequencies,
    /// The step at hand, and its angles; kept for their memory.
    step: batch::Step,
    angles: rope::Angles,
}

/// Whose logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows<'a> {
    /// These rows of the flat token axis, ascending.
    Picked(&'a [usize]),
    /// The last row of each chunk with `sample`, in chunk order.
    Sampled,
    /// Every row of the flat token axis.
    All,
}

/// `[rows, vocab]`. NaN and infinities are passed on as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Logits {
    pub rows: usize,
    pub vocab: usize,
    pub data: Vec<f32>,
}

/// What a forward pass returns.
#[derive(Clone, Debug, PartialEq)]
pub struct Computed {
    pub logits: Logits,
    /// `[rows, width]`, of the rows that were asked for, after the last norm.
    pub states: Vec<f32>,
}

impl Logits {
    pub fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.vocab..][..self.vocab]
    }
}

/// A forward pass that did not happen, or (for a device) did not finish; running the same step again is safe, for keys
/// and values written twice are the same.
#[derive(Debug, Error)]
pub enum ForwardError {
    #[error("no cache: allocate_kv was not called")]
    NoCache,
    /// Nothing was computed or written.
    #[error("inconsistent batch: {0}")]
    Batch(#[from] BatchError),
    #[error("device: {0}")]
    Device(#[from] DeviceError),
}

impl Model {
    pub fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    /// Entries of a row of logits. A tokenizer may know fewer.
    pub fn vocab_size(&self) -> usize {
        self.spec.vocab
    }

    /// Entries of a hidden state.
    pub fn width(&self) -> usize {
        self.spec.hidden
    }

    /// Bytes of cached keys and values for one token, all layers together.
    pub fn kv_bytes_per_token(&self) -> usize {
        self.spec.kv_bytes_per_token(self.kv_dtype)
    }

    /// Another model over the same weights, without a cache: what one computes does not depend on the other.
    pub fn replica(&self) -> Model {
        let on = match &self.on {
            Placed::Cpu(parts) => Placed::Cpu(parts.replica(&self.spec)),
            Placed::Candle(parts) => Placed::Candle(parts.replica(&self.spec)),
        };
        Model { spec: self.spec.clone(), on, kv_dtype: self.kv_dtype }
    }

    /// Makes the cache, filled with zeros; replaces an earlier one. On an error there is none.
    pub fn allocate_kv(&mut self, num_blocks: usize, block_size: usize) -> Result<(), DeviceError> {
        let paging = batch::Paging { num_blocks, block_size };
        match &mut self.on {
            Placed::Cpu(parts) => parts.allocate_kv(&self.spec, paging, self.kv_dtype),
            Placed::Candle(parts) => parts.allocate_kv(&self.spec, paging, self.kv_dtype),
        }
    }

    /// One step: carries out the batch's copies, writes the keys and values of its tokens, returns the wanted logits.
    pub fn forward(&mut self, batch: &StepBatch, rows: Rows<'_>) -> Result<Logits, ForwardError> {
        Ok(self.compute(batch, rows, &[])?.logits)
    }

    /// The same, and the hidden states of other rows, ascending.
    pub fn compute(&mut self, batch: &StepBatch, rows: Rows<'_>, states: &[usize]) -> Result<Computed, ForwardError> {
        let (data, states) = match &mut self.on {
            Placed::Cpu(parts) => parts.forward(&self.spec, batch, rows, states)?,
            Placed::Candle(parts) => parts.forward(&self.spec, batch, rows, states)?,
        };
        let vocab = self.spec.vocab;
        Ok(Computed { logits: Logits { rows: data.len() / vocab, vocab, data }, states })
    }

    /// Takes back the memory of logits that are done with, for later steps.
    pub fn recycle(&self, logits: Logits) {
        match &self.on {
            Placed::Cpu(parts) => backend::Backend::recycle(&parts.backend, logits.data),
            Placed::Candle(parts) => backend::Backend::recycle(&parts.backend, logits.data),
        }
    }
}

impl<B: backend::Backend> Parts<B> {
    fn new(backend: B, spec: &DecoderSpec, weights: impl Into<Arc<weights::decoder::DecoderWeights<B>>>) -> Parts<B> {
        Parts {
            backend,
            weights: weights.into(),
            kv: None,
            frequencies: rope::Frequencies::new(&spec.rope, spec.head_dim),
            step: batch::Step::default(),
            angles: rope::Angles::default(),
        }
    }

    fn replica(&self, spec: &DecoderSpec) -> Parts<B> {
        Parts::new(self.backend.another(), spec, self.weights.clone())
    }

    fn allocate_kv(&mut self, spec: &DecoderSpec, paging: batch::Paging, dtype: KvDtype) -> Result<(), DeviceError> {
        self.kv = None; // before the new one is made: both may not fit
        self.kv = Some(kv_memory::KvMemory::new(&self.backend, spec, paging, dtype)?);
        Ok(())
    }

    /// Logits and states.
    fn forward(
        &mut self,
        spec: &DecoderSpec,
        batch: &StepBatch,
        rows: Rows<'_>,
        states: &[usize],
    ) -> Result<(Vec<f32>, Vec<f32>), ForwardError> {
        let kv = self.kv.as_mut().ok_or(ForwardError::NoCache)?;
        self.step.fill(batch, rows, spec.vocab, kv.layout.paging)?;
        self.step.read_states(states)?;
        kv.copy(&self.backend, &batch.copies)?;
        let decoder = decoder::Decoder { backend: &self.backend, spec, weights: self.weights.as_ref() };
        self.frequencies.angles(&self.step.positions, &mut self.angles);
        Ok(decoder.forward(kv, &self.step, &self.angles)?)
    }
}

#[cfg(test)]
mod tests;
