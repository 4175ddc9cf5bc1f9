//! A model on its device: the face of the forward pass.

use crate::candle::backend::Candle;
use crate::cpu::backend::Cpu;
use crate::pass::backend::Backend;
use crate::pass::decoder::Outputs;
use crate::pass::net::Parts;
use crate::types::cache::Paging;
use crate::types::device::{DeviceError, DeviceMemory};
use crate::types::error::ForwardError;
use crate::types::forward::{Asked, Computed, Draw, Logits, Rows};
use crate::types::spec::Spec;
use forebay_core::step::StepBatch;
use forebay_core::units::TokenId;
use forebay_kernels::attention::KvDtype;

/// Weights on a device, and the cache once [`Model::allocate_kv`] has made it.
pub struct Model {
    pub(crate) spec: Spec,
    pub(crate) on: Placed,
    pub(crate) kv_dtype: KvDtype,
    /// See [`Model::unpacked`].
    pub(crate) unpacked: Vec<&'static str>,
}

/// Where a model computes.
#[allow(clippy::large_enum_variant)] // a process has one or two
pub(crate) enum Placed {
    Cpu(Parts<Cpu>),
    Candle(Parts<Candle>),
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
        let paging = Paging { num_blocks, block_size };
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
        let Outputs { logits: data, states, drawn } = match &mut self.on {
            Placed::Cpu(parts) => parts.forward(vocab, batch, asked, draws)?,
            Placed::Candle(parts) => parts.forward(vocab, batch, asked, draws)?,
        };
        Ok((Computed { logits: Logits { rows: data.len() / vocab, vocab, data }, states }, drawn))
    }

    /// Whether [`Model::draw`] spares a copy of the logits.
    pub fn draws(&self) -> bool {
        match &self.on {
            Placed::Cpu(_) => <Cpu as Backend>::DRAWS,
            Placed::Candle(_) => <Candle as Backend>::DRAWS,
        }
    }

    /// What its device has; `None` where that is the processor's memory.
    pub fn device_memory(&self) -> Result<Option<DeviceMemory>, DeviceError> {
        match &self.on {
            Placed::Cpu(parts) => Backend::memory(&parts.backend),
            Placed::Candle(parts) => Backend::memory(&parts.backend),
        }
    }

    /// Takes back the memory of logits that are done with, for later steps.
    pub fn recycle(&self, logits: Logits) {
        match &self.on {
            Placed::Cpu(parts) => Backend::recycle(&parts.backend, logits.data),
            Placed::Candle(parts) => Backend::recycle(&parts.backend, logits.data),
        }
    }
}

#[cfg(test)]
mod tests;
