//! An encoder's weights onto their device, under the names that BERT's checkpoints give them.

use super::loader::Loader;
use crate::files::numbers::Numbers;
use crate::pass::backend::Backend;
use crate::pass::weights::{EncoderLayer, EncoderWeights, Norm};
use crate::types::device::DeviceError;
use crate::types::error::LoadError;
use crate::types::spec::encoder::EncoderSpec;

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
