//! The one forward pass: every architecture, every backend. `T` is the tokens of the step, `R` the rows asked for.

use super::backend::{AttentionShape, Backend, Result};
use super::batch::Step;
use super::kv_memory::KvMemory;
use super::rope::Angles;
use super::spec::DecoderSpec;
use super::weights::decoder::{DecoderWeights, LayerWeights, Linear};

/// A decoder's fixed parts, which every function here reads.
pub(super) struct Decoder<'a, B: Backend> {
    pub backend: &'a B,
    pub spec: &'a DecoderSpec,
    pub weights: &'a DecoderWeights<B>,
}

impl<B: Backend> Decoder<'_, B> {
    /// Writes the step's keys and values and returns the logits of its selected rows, `[R, vocab]`, and the hidden states of
    /// those that are read, `[S, hidden]`; empty where none are.
    pub(super) fn forward(&self, kv: &mut KvMemory<B>, step: &Step, angles: &Angles) -> Result<(Vec<f32>, Vec<f32>)> {
        let (backend, weights) = (self.backend, self.weights);
        let wanted = step.selected.len();
        let plan = backend.plan(step, angles, self.spec)?;

        let mut x = backend.embed(&weights.embedding, &plan)?; // [T, hidden]
        for (index, layer) in weights.layers.iter().enumerate() {
            let shape = self.attention_shape(index);
            let attended = self.attention(&x, layer, &mut kv.layers[index], &plan, &shape)?; // [T, hidden]
            x = backend.add(x, &attended)?;
            let transformed = self.mlp(&x, layer)?; // [T, hidden]
            x = backend.add(x, &transformed)?;
        }
        let mut states = Vec::new();
        if !step.states.is_empty() {
            let picked = backend.pick(&x, &step.states, self.spec.hidden)?; // [S, hidden]
            states = backend.read(backend.rms_norm(&picked, &weights.norm, self.spec.norm_eps)?)?;
        }
        if wanted == 0 {
            return Ok((Vec::new(), states));
        }
        let x = backend.select(x, &plan)?; // [R, hidden]
        let x = backend.rms_norm(&x, &weights.norm, self.spec.norm_eps)?;
        let head = weights.head.as_ref().unwrap_or(&weights.embedding);
        Ok((backend.read(backend.logits(&x, head)?)?, states)) // [R, vocab]
    }

    /// Keys and values are stored before they are read, so a prefill chunk sees itself through the cache like any past.
    fn attention(
        &self,
        x: &B::Tensor,
        layer: &LayerWeights<B>,
        kv: &mut B::Kv,
        plan: &B::Plan<'_>,
        shape: &AttentionShape,
    ) -> Result<B::Tensor> {
        let backend = self.backend;
        let normed = self.norm(x, layer.attention_in.as_ref())?; // [T, hidden]
        let input = normed.as_ref().unwrap_or(x);
        // [T, heads * head_dim], and twice [T, kv_heads * head_dim]
        let [q, k, v] = backend.linears(input, [&layer.q, &layer.k, &layer.v].map(Linear::parts))?;
        let q = self.norm(&q, layer.q_norm.as_ref())?.unwrap_or(q);
        let k = self.norm(&k, layer.k_norm.as_ref())?.unwrap_or(k);
        let q = backend.rope(q, plan, shape.head_dim)?;
        let k = backend.rope(k, plan, shape.head_dim)?;
        backend.store(kv, plan, &k, &v)?;
        let mixed = backend.attention(&q, kv, plan, shape)?; // [T, heads * head_dim]
        let out = self.linear(&mixed, &layer.o)?; // [T, hidden]
        Ok(self.norm(&out, layer.attention_out.as_ref())?.unwrap_or(out))
    }

    fn mlp(&self, x: &B::Tensor, layer: &LayerWeights<B>) -> Result<B::Tensor> {
        let normed = self.norm(x, layer.mlp_in.as_ref())?; // [T, hidden]
        let input = normed.as_ref().unwrap_or(x);
        // Twice [T, intermediate]
        let [gate, up] = self.backend.linears(input, [&layer.gate, &layer.up].map(Linear::parts))?;
        let gated = self.backend.gate(gate, &up, self.spec.activation)?;
        let out = self.linear(&gated, &layer.down)?; // [T, hidden]
        Ok(self.norm(&out, layer.mlp_out.as_ref())?.unwrap_or(out))
    }

    fn attention_shape(&self, layer: usize) -> AttentionShape {
        let spec = self.spec;
        AttentionShape {
            heads: spec.heads,
            kv_heads: spec.kv_heads,
            head_dim: spec.head_dim,
            scale: spec.attention_scale,
            window: spec.layers[layer].window,
        }
    }

    fn linear(&self, x: &B::Tensor, linear: &Linear<B>) -> Result<B::Tensor> {
        self.backend.linear(x, &linear.weight, linear.bias.as_ref())
    }

    /// `None` where the architecture has no norm.
    fn norm(&self, x: &B::Tensor, weight: Option<&B::Vector>) -> Result<Option<B::Tensor>> {
        weight.map(|weight| self.backend.rms_norm(x, weight, self.spec.norm_eps)).transpose()
    }
}
