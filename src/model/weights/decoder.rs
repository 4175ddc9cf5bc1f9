//! A decoder's weights on their device, taken tensor by tensor.

use std::path::Path;

use super::{Weights, names};
use crate::model::backend::Backend;
use crate::model::error::LoadError;
use crate::model::spec::{DecoderSpec, QkNorm};

pub(in crate::model) struct DecoderWeights<B: Backend> {
    /// `[vocab, hidden]`
    pub embedding: B::Matrix,
    pub layers: Vec<LayerWeights<B>>,
    pub norm: B::Vector,
    /// `[vocab, hidden]`; `None` where the embedding serves.
    pub head: Option<B::Matrix>,
}

/// Norms are `None` where the architecture has none.
pub(in crate::model) struct LayerWeights<B: Backend> {
    pub attention_in: Option<B::Vector>,
    pub q: Linear<B>,
    pub k: Linear<B>,
    pub v: Linear<B>,
    pub q_norm: Option<B::Vector>,
    pub k_norm: Option<B::Vector>,
    pub o: Linear<B>,
    pub attention_out: Option<B::Vector>,
    pub mlp_in: Option<B::Vector>,
    pub gate: Linear<B>,
    pub up: Linear<B>,
    pub down: Linear<B>,
    pub mlp_out: Option<B::Vector>,
}

pub(in crate::model) struct Linear<B: Backend> {
    pub weight: B::Matrix,
    pub bias: Option<B::Vector>,
}

impl<B: Backend> Linear<B> {
    pub(in crate::model) fn parts(&self) -> (&B::Matrix, Option<&B::Vector>) {
        (&self.weight, self.bias.as_ref())
    }
}

/// Loads tensors and hands them to the device.
pub(in crate::model) struct Loader<'a, B: Backend> {
    pub backend: &'a B,
    pub spec: &'a DecoderSpec,
    pub weights: &'a Weights,
    /// Blamed where no weight file is: `config.json`.
    pub config: &'a Path,
}

impl<B: Backend> Loader<'_, B> {
    pub(in crate::model) fn load(&self) -> Result<DecoderWeights<B>, LoadError> {
        let spec = self.spec;
        Ok(DecoderWeights {
            embedding: self.matrix(names::EMBEDDING, spec.vocab, spec.hidden)?,
            layers: (0..spec.layers.len()).map(|index| self.layer(index)).collect::<Result<_, _>>()?,
            norm: self.vector(names::FINAL_NORM, spec.hidden)?,
            head: if spec.tied { None } else { Some(self.matrix(names::HEAD, spec.vocab, spec.hidden)?) },
        })
    }

    fn layer(&self, index: usize) -> Result<LayerWeights<B>, LoadError> {
        let DecoderSpec { hidden, intermediate, bias, qk_norm, .. } = *self.spec;
        let (q, kv) = (self.spec.q_width(), self.spec.kv_width());
        let (q_norm, k_norm) = match qk_norm {
            QkNorm::None => (None, None),
            QkNorm::PerHead => (Some(self.spec.head_dim), Some(self.spec.head_dim)),
            QkNorm::Full => (Some(q), Some(kv)),
        };
        let norms = names::layer_norms(self.spec.norms);
        let linear =
            |module: &str, outputs, inputs, bias| self.linear(&names::module(index, module), outputs, inputs, bias);
        let norm = |module: &str, width| self.vector(&format!("{}.weight", names::module(index, module)), width);
        let layer_norm = |module: Option<&str>| module.map(|module| norm(module, hidden)).transpose();
        Ok(LayerWeights {
            attention_in: layer_norm(norms.attention_in)?,
            q: linear("self_attn.q_proj", q, hidden, bias.qkv)?,
            k: linear("self_attn.k_proj", kv, hidden, bias.qkv)?,
            v: linear("self_attn.v_proj", kv, hidden, bias.qkv)?,
            q_norm: q_norm.map(|width| norm("self_attn.q_norm", width)).transpose()?,
            k_norm: k_norm.map(|width| norm("self_attn.k_norm", width)).transpose()?,
            o: linear("self_attn.o_proj", hidden, q, bias.attention_output)?,
            attention_out: layer_norm(norms.attention_out)?,
            mlp_in: layer_norm(norms.mlp_in)?,
            gate: linear("mlp.gate_proj", intermediate, hidden, bias.mlp)?,
            up: linear("mlp.up_proj", intermediate, hidden, bias.mlp)?,
            down: linear("mlp.down_proj", hidden, intermediate, bias.mlp)?,
            mlp_out: layer_norm(norms.mlp_out)?,
        })
    }

    fn linear(&self, module: &str, outputs: usize, inputs: usize, bias: bool) -> Result<Linear<B>, LoadError> {
        let weight = self.matrix(&format!("{module}.weight"), outputs, inputs)?;
        let bias = bias.then(|| self.vector(&format!("{module}.bias"), outputs)).transpose()?;
        Ok(Linear { weight, bias })
    }

    fn matrix(&self, name: &str, outputs: usize, inputs: usize) -> Result<B::Matrix, LoadError> {
        let numbers = self.weights.tensor(name, &[outputs, inputs], self.config)?;
        Ok(self.backend.matrix(numbers, outputs, inputs)?)
    }

    fn vector(&self, name: &str, width: usize) -> Result<B::Vector, LoadError> {
        let numbers = self.weights.tensor(name, &[width], self.config)?;
        Ok(self.backend.vector(numbers)?)
    }
}
