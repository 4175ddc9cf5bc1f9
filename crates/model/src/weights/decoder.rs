//! A decoder's weights onto their device, tensor by tensor.

use super::loader::Loader;
use crate::files::names;
use crate::files::numbers::Numbers;
use crate::pass::backend::Backend;
use crate::pass::weights::{DecoderWeights, FeedForward, LayerWeights, Linear, Mlp};
use crate::types::device::DeviceError;
use crate::types::error::LoadError;
use crate::types::spec::decoder::{DecoderSpec, QkNorm};

impl<B: Backend> Loader<'_, B, DecoderSpec> {
    pub(crate) fn load(&self) -> Result<DecoderWeights<B>, LoadError> {
        let spec = self.spec;
        Ok(DecoderWeights {
            embedding: self.table(names::EMBEDDING, [spec.vocab, spec.hidden])?,
            layers: (0..spec.layers.len()).map(|index| self.layer(index)).collect::<Result<_, _>>()?,
            norm: self.norm(names::FINAL_NORM, spec.hidden)?,
            head: if spec.tied { None } else { Some(self.table(names::HEAD, [spec.vocab, spec.hidden])?) },
        })
    }

    fn layer(&self, index: usize) -> Result<LayerWeights<B>, LoadError> {
        let DecoderSpec { hidden, bias, qk_norm, .. } = *self.spec;
        let (q, kv) = (self.spec.q_width(), self.spec.kv_width());
        let (q_norm, k_norm) = match qk_norm {
            QkNorm::None => (None, None),
            QkNorm::PerHead => (Some(self.spec.head_dim), Some(self.spec.head_dim)),
            QkNorm::Full => (Some(q), Some(kv)),
        };
        let norms = names::layer_norms(self.spec.norms);
        let norm = |module: &str, width| self.norm(&format!("{}.weight", names::module(index, module)), width);
        let layer_norm = |module: Option<&str>| module.map(|module| norm(module, hidden)).transpose();
        let attention_in = layer_norm(norms.attention_in)?;
        let qkv = names::QKV.map(|module| names::module(index, module));
        let fused = self.spec.fused.then(|| names::module(index, names::FUSED_QKV));
        let [q_proj, k_proj, v_proj] = self.linears(fused.as_deref(), qkv, [q, kv, kv], hidden, bias.qkv)?;
        Ok(LayerWeights {
            attention_in,
            q: q_proj,
            k: k_proj,
            v: v_proj,
            q_norm: q_norm.map(|width| norm("self_attn.q_norm", width)).transpose()?,
            k_norm: k_norm.map(|width| norm("self_attn.k_norm", width)).transpose()?,
            o: self.linear(&names::module(index, "self_attn.o_proj"), hidden, q, bias.attention_output)?,
            attention_out: layer_norm(norms.attention_out)?,
            mlp_in: layer_norm(norms.mlp_in)?,
            mlp: self.feed_forward(index)?,
            mlp_out: layer_norm(norms.mlp_out)?,
        })
    }

    fn feed_forward(&self, index: usize) -> Result<FeedForward<B>, LoadError> {
        let spec = self.spec;
        let Some(experts) = spec.experts.filter(|_| spec.layers[index].routed) else {
            return Ok(FeedForward::Dense(self.mlp(&names::module(index, "mlp"), spec.intermediate)?));
        };
        // Never quantised: it decides where tokens go, and is small.
        let router = format!("{}.weight", names::module(index, "mlp.gate"));
        let router = self.weights.tensor(&router, &[experts.count, spec.hidden], self.config)?;
        let router = Linear { weight: self.backend.matrix(router, experts.count, spec.hidden)?, bias: None };
        let expert = |at| self.mlp(&names::module(index, &format!("mlp.experts.{at}")), experts.intermediate);
        let all = (0..experts.count).map(expert).collect::<Result<_, _>>()?;
        Ok(FeedForward::Routed { choice: experts, router, experts: all })
    }

    fn mlp(&self, module: &str, width: usize) -> Result<Mlp<B>, LoadError> {
        let (hidden, bias) = (self.spec.hidden, self.spec.bias.mlp);
        let both = ["gate_proj", "up_proj"].map(|part| format!("{module}.{part}"));
        let fused = self.spec.fused.then(|| format!("{module}.{}", names::FUSED_GATE_UP));
        let [gate, up] = self.linears(fused.as_deref(), both, [width; 2], hidden, bias)?;
        Ok(Mlp { gate, up, down: self.linear(&format!("{module}.down_proj"), hidden, width, bias)? })
    }

    /// Layers on the same rows: each under its own name, or all of them above each other in `fused`.
    fn linears<const N: usize>(
        &self,
        fused: Option<&str>,
        modules: [String; N],
        outputs: [usize; N],
        inputs: usize,
        bias: bool,
    ) -> Result<[Linear<B>; N], LoadError> {
        let Some(fused) = fused else {
            let each = modules.iter().zip(outputs).map(|(module, outputs)| self.linear(module, outputs, inputs, bias));
            return Ok(all(each.collect::<Result<_, _>>()?));
        };
        let total = outputs.iter().sum();
        let weight = self.weights.tensor(&format!("{fused}.weight"), &[total, inputs], self.config)?;
        let bias = bias.then(|| self.weights.tensor(&format!("{fused}.bias"), &[total], self.config)).transpose()?;
        let mut start = 0;
        let each = outputs.map(|outputs| {
            let rows = start..start + outputs;
            start = rows.end;
            let part = bias.as_ref().map(|bias| self.backend.vector(bias.rows(rows.clone(), 1))).transpose()?;
            let weight = self.quantised(weight.rows(rows, inputs), inputs, self.quantise)?;
            Ok(Linear { weight: self.backend.matrix(weight, outputs, inputs)?, bias: part })
        });
        Ok(all(each.into_iter().collect::<Result<_, LoadError>>()?))
    }

    fn norm(&self, name: &str, width: usize) -> Result<B::Vector, LoadError> {
        let offset = self.spec.norm_offset;
        if offset == 0.0 {
            return self.vector(name, width);
        }
        let mut weights = self.weights.tensor(name, &[width], self.config)?.plain().map_err(DeviceError::from)?;
        weights.iter_mut().for_each(|weight| *weight += offset);
        Ok(self.backend.vector(Numbers::Plain(weights))?)
    }
}

/// As many as there were.
fn all<T, const N: usize>(items: Vec<T>) -> [T; N] {
    items.try_into().unwrap_or_else(|items: Vec<T>| unreachable!("{} of {N}", items.len()))
}
