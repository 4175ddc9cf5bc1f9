//! A net on its backend, and how a step goes through it: checked, copied, computed.

use std::sync::Arc;

use super::backend::Backend;
use super::decoder::{Decoder, Outputs};
use super::encoder::Encoder;
use super::kv_memory::KvMemory;
use super::lora::Adapter;
use super::rope::{Angles, Frequencies};
use super::weights::{DecoderWeights, EncoderWeights};
use crate::types::batch::Step;
use crate::types::cache::Paging;
use crate::types::device::DeviceError;
use crate::types::error::ForwardError;
use crate::types::forward::{Asked, Draw};
use crate::types::spec::Spec;
use crate::types::spec::decoder::DecoderSpec;
use crate::types::spec::encoder::EncoderSpec;
use forebay_core::step::StepBatch;
use forebay_kernels::attention::KvDtype;

/// A net on its backend, and the cache once it has been made.
pub(crate) struct Parts<B: Backend> {
    pub backend: B,
    net: Net<B>,
    pub kv: Option<KvMemory<B>>,
    /// The step at hand; kept for its memory.
    step: Step,
}

/// What does not change while it computes is the same for all replicas.
pub(crate) enum Net<B: Backend> {
    /// And the angles of the step at hand, of each rope; kept for their memory.
    Decoder(Arc<DecoderParts<B>>, Vec<Angles>),
    Encoder(Arc<EncoderParts<B>>),
}

pub(crate) struct EncoderParts<B: Backend> {
    spec: EncoderSpec,
    weights: EncoderWeights<B>,
}

pub(crate) struct DecoderParts<B: Backend> {
    spec: DecoderSpec,
    weights: DecoderWeights<B>,
    adapters: Vec<Adapter<B>>,
    /// Of each rope.
    frequencies: Vec<Frequencies>,
}

impl<B: Backend> Parts<B> {
    pub(crate) fn new(backend: B, net: Net<B>) -> Parts<B> {
        Parts { backend, net, kv: None, step: Step::default() }
    }

    pub(crate) fn replica(&self) -> Parts<B> {
        Parts::new(self.backend.another(), self.net.replica())
    }

    pub(crate) fn allocate_kv(&mut self, spec: &Spec, paging: Paging, dtype: KvDtype) -> Result<(), DeviceError> {
        self.kv = None; // before the new one is made: both may not fit
        self.kv = Some(KvMemory::new(&self.backend, spec, paging, dtype)?);
        Ok(())
    }

    pub(crate) fn forward(
        &mut self,
        vocab: usize,
        batch: &StepBatch,
        asked: Asked<'_>,
        draws: &[Option<Draw>],
    ) -> Result<Outputs, ForwardError> {
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
                let encoder = Encoder { backend: &self.backend, spec, weights };
                Ok(Outputs { states: encoder.forward(kv, step)?, ..Outputs::default() })
            }
        }
    }
}

impl<B: Backend> Net<B> {
    pub(crate) fn decoder(parts: DecoderParts<B>) -> Net<B> {
        let angles = parts.frequencies.iter().map(|_| Angles::default()).collect();
        Net::Decoder(Arc::new(parts), angles)
    }

    pub(crate) fn encoder(spec: EncoderSpec, weights: EncoderWeights<B>) -> Net<B> {
        Net::Encoder(Arc::new(EncoderParts { spec, weights }))
    }

    pub(crate) fn replica(&self) -> Net<B> {
        match self {
            Net::Decoder(parts, angles) => {
                Net::Decoder(parts.clone(), angles.iter().map(|_| Angles::default()).collect())
            }
            Net::Encoder(parts) => Net::Encoder(parts.clone()),
        }
    }
}

impl<B: Backend> DecoderParts<B> {
    /// For sequences of up to `context` tokens.
    pub(crate) fn new(
        spec: DecoderSpec,
        weights: DecoderWeights<B>,
        adapters: Vec<Adapter<B>>,
        context: u32,
    ) -> DecoderParts<B> {
        let frequencies = spec.ropes.iter().map(|rope| Frequencies::new(rope, context)).collect();
        DecoderParts { spec, weights, adapters, frequencies }
    }

    fn forward(
        &self,
        backend: &B,
        kv: &mut KvMemory<B>,
        step: &Step,
        angles: &mut [Angles],
    ) -> Result<Outputs, DeviceError> {
        for (frequencies, angles) in self.frequencies.iter().zip(angles.iter_mut()) {
            frequencies.angles(&step.positions, angles);
        }
        let decoder = Decoder {
            backend,
            spec: &self.spec,
            weights: &self.weights,
            adapters: &self.adapters,
            groups: &step.groups,
        };
        decoder.forward(kv, step, angles)
    }
}
