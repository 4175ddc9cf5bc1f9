//! An encoder's weights on their device, under the names that BERT's checkpoints give them.

use super::EncoderSpec;
use crate::backend::{Backend, DeviceError};
use crate::error::LoadError;
use crate::weights::Numbers;
use crate::weights::decoder::{Linear, Loader};

pub(crate) struct EncoderWeights<B: Backend> {
    /// `[vocab, hidden]`
    pub tokens: B::Matrix,
    /// `[positions, hidden]`, what the first segment adds included.
    pub positions: B::Matrix,
    pub norm: Norm<B>,
    pub layers: Vec<EncoderLayer<B>>,
}

pub(crate) struct EncoderLayer<B: Backend> {
    pub q: Linear<B>,
    pub k: Linear<B>,
    pub v: Linear<B>,
    pub o: Linear<B>,
    pub attention_norm: Norm<B>,
    pub up: Linear<B>,
    pub down: Linear<B>,
    pub output_norm: Norm<B>,
}

/// Of a mean and a variance.
pub(crate) struct Norm<B: Backend> {
    pub weight: B::Vector,
    pub bias: B::Vector,
}

impl<B: Backend> Loader<'_, B, EncoderSpec> {
    pub(crate) fn load(&self) -> Result<EncoderWeights<B>, LoadError> {
        let spec = self.spec;
        Ok(EncoderWeights {
            tokens: self.table("embeddings.word_embeddings.weight", [spec.vocab, spec.hidden])?,
            positions: self.positions()?,
            norm: self.layer_norm("embeddings.LayerNorm")?,
            layers: (0..spec.layers).map(|index| self.layer(index)).collect::<Result<_, _>>()?,
        })
    }

    /// Every prompt is of the first segment, so its row is added to each position's once and for all.
    fn positions(&self) -> Result<B::Matrix, LoadError> {
        let EncoderSpec { hidden, position_offset, segments, max_position_embeddings, .. } = *self.spec;
        let positions = max_position_embeddings as usize;
        let name = "embeddings.position_embeddings.weight";
        let mut rows = self.plain(name, &[position_offset + positions, hidden])?;
        rows.drain(..position_offset * hidden);
        if segments > 0 {
            let kinds = self.plain("embeddings.token_type_embeddings.weight", &[segments, hidden])?;
            for row in rows.chunks_exact_mut(hidden) {
                row.iter_mut().zip(&kinds[..hidden]).for_each(|(x, kind)| *x += kind);
            }
        }
        Ok(self.backend.matrix(Numbers::Plain(rows), positions, hidden)?)
    }

    fn layer(&self, index: usize) -> Result<EncoderLayer<B>, LoadError> {
        let EncoderSpec { hidden, intermediate, .. } = *self.spec;
        let module = |module: &str| format!("encoder.layer.{index}.{module}");
        let linear = |name: &str, outputs, inputs| self.linear(&module(name), outputs, inputs, true);
        Ok(EncoderLayer {
            q: linear("attention.self.query", hidden, hidden)?,
            k: linear("attention.self.key", hidden, hidden)?,
            v: linear("attention.self.value", hidden, hidden)?,
            o: linear("attention.output.dense", hidden, hidden)?,
            attention_norm: self.layer_norm(&module("attention.output.LayerNorm"))?,
            up: linear("intermediate.dense", intermediate, hidden)?,
            down: linear("output.dense", hidden, intermediate)?,
            output_norm: self.layer_norm(&module("output.LayerNorm"))?,
        })
    }

    fn layer_norm(&self, module: &str) -> Result<Norm<B>, LoadError> {
        let vector = |part| self.vector(&format!("{module}.{part}"), self.spec.hidden);
        Ok(Norm { weight: vector("weight")?, bias: vector("bias")? })
    }

    fn plain(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        Ok(self.weights.tensor(name, shape, self.config)?.plain().map_err(DeviceError::from)?)
    }
}
