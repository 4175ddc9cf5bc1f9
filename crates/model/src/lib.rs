//! One transformer, mostly a decoder: weights, the paged cache's bytes, and the forward pass over packed ragged batches.
//!
//! Knows nothing of requests, scheduling or text: a [`StepBatch`] of plain vectors comes in, logits go out.
//!
//! ```text
//! load.rs ┬ arch.rs, sentence.rs (config.json and others → spec.rs) ┬ weights/ (checked files → tensors)
//!         └ gguf/ (one file with everything) ──────────────────────┘
//! forward: batch.rs (StepBatch checked → flat indices) → kv_memory.rs (copies) → decoder.rs, encoder/ → backend.rs
//!                                                                     cpu/ over kernels ┴ candle/: CUDA, Metal, oracle
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
mod encoder;
mod error;
mod gguf;
mod inspect;
mod json;
mod kv_memory;
mod load;
mod lora;
mod options;
mod rope;
mod sentence;
mod settings;
mod spec;
mod weights;

use std::sync::Arc;

use thiserror::Error;

use candle::Candle;
use cpu::Cpu;
use forebay_core::step::StepBatch;
use forebay_core::units::TokenId;
use forebay_kernels::floats::Floats;

pub use backend::{DeviceError, DeviceMemory, Draw};
pub use batch::BatchError;
pub use candle::device::name as device_name;
pub use encoder::EncoderSpec;
pub use error::{GgufRule, HeaderRule, LoadError, TensorRule};
pub use forebay_kernels::attention::KvDtype;
pub use forebay_kernels::cores::Cores;
pub use forebay_kernels::isa::Isa;
pub use forebay_kernels::memory::release_freed;
pub use forebay_kernels::packed::Quantised;
pub use gguf::{Written, quantize};
pub use inspect::{Format, Inspection, TypeShare, inspect};
pub use load::{ChatFiles, LoadedModel, Source, TokenizerSource, load};
pub use options::{DEFAULT_KV_DTYPE, DeviceChoice, Dtype, LoadFormat, LoadOptions};
pub use settings::settings;
pub use spec::{
    Activation, Bias, DecoderSpec, Experts, LayerSpec, NormPlacement, QkNorm, Rope, RopeScaling, Scales, Spec,
};

/// Weights on a device, and the cache once [`Model::allocate_kv`] has made it.
pub struct Model {
    spec: Spec,
    on: Placed,
    kv_dtype: KvDtype,
    /// See [`Model::unpacked`].
    unpacked: Vec<&'static str>,
}

#[allow(clippy::large_enum_variant)] // a process has one or two
enum Placed {
    Cpu(Parts<Cpu>),
    Candle(Parts<Candle>),
}

struct Parts<B: backend::Backend> {
    backend: B,
    net: Net<B>,
    kv: Option<kv_memory::KvMemory<B>>,
    /// The step at hand; kept for its memory.
    step: batch::Step,
}

/// What does not change while it computes is the same for all replicas.
enum Net<B: backend::Backend> {
    /// And the angles of the step at hand, of each rope; kept for their memory.
    Decoder(Arc<DecoderParts<B>>, Vec<rope::Angles>),
    Encoder(Arc<EncoderParts<B>>),
}

struct EncoderParts<B: backend::Backend> {
    spec: EncoderSpec,
    weights: encoder::weights::EncoderWeights<B>,
}

struct DecoderParts<B: backend::Backend> {
    spec: DecoderSpec,
    weights: weights::decoder::DecoderWeights<B>,
    adapters: Vec<lora::Adapter<B>>,
    /// Of each rope.
    frequencies: Vec<rope::Frequencies>,
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

/// What a forward pass is to return, and through which adapters it goes.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub rows: Rows<'a>,
    /// Rows whose hidden states are wanted, ascending.
    pub states: &'a [usize],
    /// By their place in [`LoadOptions::adapters`]: one entry for each chunk, or none at all.
    pub adapters: &'a [Option<u32>],
}

/// `[rows, vocab]`. NaN and infinities are passed on as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Logits {
    pub rows: usize,
    pub vocab: usize,
    pub data: Floats,
}

/// What a forward pass returns.
#[derive(Clone, Debug, PartialEq)]
pub struct Computed {
    pub logits: Logits,
    /// `[rows, width]`, of the rows that were asked for, after the last norm.
    pub states: Floats,
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
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Entries of a row of logits. A tokenizer may know fewer.
    pub fn vocab_size(&self) -> usize {
        self.spec.vocab()
    }

    /// Entries of a hidden state.
    pub fn width(&self) -> usize {
        self.spec.hidden()
    }

    /// Bytes of cached keys and values for one token, all layers together.
    pub fn kv_bytes_per_token(&self) -> usize {
        self.spec.kv_bytes_per_token(self.kv_dtype)
    }

    /// Types of its file's blocks for which its device has no kernels: such weights are unpacked, and take more memory.
    pub fn unpacked(&self) -> &[&'static str] {
        &self.unpacked
    }

    /// Another model over the same weights, without a cache: what one computes does not depend on the other.
    pub fn replica(&self) -> Model {
        let on = match &self.on {
            Placed::Cpu(parts) => Placed::Cpu(parts.replica()),
            Placed::Candle(parts) => Placed::Candle(parts.replica()),
        };
        Model { spec: self.spec.clone(), on, kv_dtype: self.kv_dtype, unpacked: self.unpacked.clone() }
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
        Ok(self.compute(batch, Asked { rows, states: &[], adapters: &[] })?.logits)
    }

    /// The same, and the hidden states of other rows; with adapters where chunks go through them.
    pub fn compute(&mut self, batch: &StepBatch, asked: Asked<'_>) -> Result<Computed, ForwardError> {
        Ok(self.draw(batch, asked, &[])?.0)
    }

    /// The same, but from some of the rows a token is drawn where their logits are, and those are not returned. `draws` has
    /// an entry for each of the rows, or none at all. The tokens are in the order of their rows, `None` where logits are
    /// not finite.
    pub fn draw(
        &mut self,
        batch: &StepBatch,
        asked: Asked<'_>,
        draws: &[Option<Draw>],
    ) -> Result<(Computed, Vec<Option<TokenId>>), ForwardError> {
        let vocab = self.spec.vocab();
        let decoder::Outputs { logits: data, states, drawn } = match &mut self.on {
            Placed::Cpu(parts) => parts.forward(vocab, batch, asked, draws)?,
            Placed::Candle(parts) => parts.forward(vocab, batch, asked, draws)?,
        };
        Ok((Computed { logits: Logits { rows: data.len() / vocab, vocab, data }, states }, drawn))
    }

    /// Whether [`Model::draw`] spares a copy of the logits.
    pub fn draws(&self) -> bool {
        match &self.on {
            Placed::Cpu(_) => <Cpu as backend::Backend>::DRAWS,
            Placed::Candle(_) => <Candle as backend::Backend>::DRAWS,
        }
    }

    /// What its device has; `None` where that is the processor's memory.
    pub fn device_memory(&self) -> Result<Option<DeviceMemory>, DeviceError> {
        match &self.on {
            Placed::Cpu(parts) => backend::Backend::memory(&parts.backend),
            Placed::Candle(parts) => backend::Backend::memory(&parts.backend),
        }
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
    fn new(backend: B, net: Net<B>) -> Parts<B> {
        Parts { backend, net, kv: None, step: batch::Step::default() }
    }

    fn replica(&self) -> Parts<B> {
        Parts::new(self.backend.another(), self.net.replica())
    }

    fn allocate_kv(&mut self, spec: &Spec, paging: batch::Paging, dtype: KvDtype) -> Result<(), DeviceError> {
        self.kv = None; // before the new one is made: both may not fit
        self.kv = Some(kv_memory::KvMemory::new(&self.backend, spec, paging, dtype)?);
        Ok(())
    }

    fn forward(
        &mut self,
        vocab: usize,
        batch: &StepBatch,
        asked: Asked<'_>,
        draws: &[Option<Draw>],
    ) -> Result<decoder::Outputs, ForwardError> {
        let kv = self.kv.as_mut().ok_or(ForwardError::NoCache)?;
        let step = &mut self.step;
        step.fill(batch, asked.rows, vocab, kv.layout.paging)?;
        step.read_states(asked.states)?;
        step.draw(draws)?;
        match &mut self.net {
            Net::Decoder(parts, angles) => {
                step.group(asked.adapters, parts.adapters.len())?;
                kv.copy(&self.backend, &batch.copies)?;
                Ok(parts.forward(&self.backend, kv, step, angles)?)
            }
            Net::Encoder(parts) => {
                let EncoderParts { spec, weights } = parts.as_ref();
                step.group(asked.adapters, 0)?;
                step.check_whole(spec.max_position_embeddings as usize)?;
                let encoder = encoder::Encoder { backend: &self.backend, spec, weights };
                Ok(decoder::Outputs { states: encoder.forward(kv, step)?, ..decoder::Outputs::default() })
            }
        }
    }
}

impl<B: backend::Backend> Net<B> {
    fn decoder(parts: DecoderParts<B>) -> Net<B> {
        let angles = parts.frequencies.iter().map(|_| rope::Angles::default()).collect();
        Net::Decoder(Arc::new(parts), angles)
    }

    fn encoder(spec: EncoderSpec, weights: encoder::weights::EncoderWeights<B>) -> Net<B> {
        Net::Encoder(Arc::new(EncoderParts { spec, weights }))
    }

    fn replica(&self) -> Net<B> {
        match self {
            Net::Decoder(parts, angles) => {
                Net::Decoder(parts.clone(), angles.iter().map(|_| rope::Angles::default()).collect())
            }
            Net::Encoder(parts) => Net::Encoder(parts.clone()),
        }
    }
}

impl<B: backend::Backend> DecoderParts<B> {
    /// For sequences of up to `context` tokens.
    fn new(
        spec: DecoderSpec,
        weights: weights::decoder::DecoderWeights<B>,
        adapters: Vec<lora::Adapter<B>>,
        context: u32,
    ) -> DecoderParts<B> {
        let frequencies = spec.ropes.iter().map(|rope| rope::Frequencies::new(rope, context)).collect();
        DecoderParts { spec, weights, adapters, frequencies }
    }

    fn forward(
        &self,
        backend: &B,
        kv: &mut kv_memory::KvMemory<B>,
        step: &batch::Step,
        angles: &mut [rope::Angles],
    ) -> Result<decoder::Outputs, DeviceError> {
        for (frequencies, angles) in self.frequencies.iter().zip(angles.iter_mut()) {
            frequencies.angles(&step.positions, angles);
        }
        let decoder = decoder::Decoder {
            backend,
            spec: &self.spec,
            weights: &self.weights,
            adapters: &self.adapters,
            groups: &step.groups,
        };
        decoder.forward(kv, step, angles)
    }
}

#[cfg(test)]
mod tests;
