//! The forward pass of BERT's family: every token sees the whole prompt, and what comes out is hidden states.
//!
//! Keys and values go through the paged cache as a decoder's do, so steps, blocks and kernels are the same; but a prompt
//! is computed in one piece, for its first token waits for its last, and nobody reads them after the step.

use super::backend::{AttentionShape, Backend, Result};
use super::kv_memory::KvMemory;
use super::weights::{EncoderLayer, EncoderWeights, Linear, Norm};
use crate::types::batch::Step;
use crate::types::spec::encoder::EncoderSpec;
use forebay_kernels::floats::Floats;

/// An encoder's fixed parts, which every function here reads.
pub(crate) struct Encoder<'a, B: Backend> {
    pub backend: &'a B,
    pub spec: &'a EncoderSpec,
    pub weights: &'a EncoderWeights<B>,
}

impl<B: Backend> Encoder<'_, B> {
    /// The hidden states of the step's `states`, `[S, hidden]`. Each chunk is a whole prompt.
    pub(crate) fn forward(&self, kv: &mut KvMemory<B>, step: &Step) -> Result<Floats> {
        let (backend, weights) = (self.backend, self.weights);
        let plan = backend.plan(step, &[])?;
        let x = backend.embed(&weights.tokens, &plan)?; // [T, hidden]
        let x = backend.add(x, &backend.embed_positions(&weights.positions, &plan)?)?;
        let mut x = self.norm(&x, &weights.norm)?;
        for (layer, kv) in weights.layers.iter().zip(&mut kv.layers) {
            let attended = self.attention(&x, layer, kv, &plan)?; // [T, hidden]
            x = self.norm(&backend.add(attended, &x)?, &layer.attention_norm)?;
            let inner = backend.activate(self.linear(&x, &layer.up)?, self.spec.activation)?; // [T, intermediate]
            x = self.norm(&backend.add(self.linear(&inner, &layer.down)?, &x)?, &layer.output_norm)?;
        }
        if step.states.is_empty() {
            return Ok(Floats::default());
        }
        backend.read(backend.pick(&x, &step.states, self.spec.hidden)?)
    }

    fn attention(
        &self,
        x: &B::Tensor,
        layer: &EncoderLayer<B>,
        kv: &mut B::Kv,
        plan: &B::Plan<'_>,
    ) -> Result<B::Tensor> {
        let EncoderLayer { q, k, v, o, .. } = layer;
        let [q, k, v] = self.backend.linears(x, [q, k, v].map(Linear::parts))?;
        self.backend.store(kv, plan, &k, &v)?;
        let head_dim = self.spec.head_dim();
        let shape = AttentionShape {
            heads: self.spec.heads,
            kv_heads: self.spec.heads,
            head_dim,
            scale: (head_dim as f64).powf(-0.5) as f32,
            cap: None,
            window: None,
            causal: false,
        };
        self.linear(&self.backend.attention(&q, kv, plan, &shape)?, o)
    }

    fn linear(&self, x: &B::Tensor, linear: &Linear<B>) -> Result<B::Tensor> {
        self.backend.linear(x, &linear.weight, linear.bias.as_ref())
    }

    fn norm(&self, x: &B::Tensor, norm: &Norm<B>) -> Result<B::Tensor> {
        self.backend.layer_norm(x, &norm.weight, &norm.bias, self.spec.norm_eps)
    }
}
