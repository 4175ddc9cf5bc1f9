//! The one forward pass: every architecture, every backend. `T` is the tokens of the step, `R` the rows asked for.

use super::backend::{AttentionShape, Backend, Result};
use super::kv_memory::KvMemory;
use super::lora::{Adapter, Place};
use super::rope::Angles;
use super::weights::{DecoderWeights, FeedForward, LayerWeights, Linear, Mlp};
use crate::types::batch::{Group, Step};
use crate::types::spec::decoder::DecoderSpec;
use forebay_core::units::TokenId;
use forebay_kernels::floats::Floats;

/// What a forward pass brings.
#[derive(Default)]
pub(crate) struct Outputs {
    /// Of the rows that are read, `[R, vocab]`.
    pub logits: Floats,
    /// `[S, hidden]`
    pub states: Floats,
    /// Of the rows that are drawn from; `None` where they are not finite.
    pub drawn: Vec<Option<TokenId>>,
}

/// A decoder's fixed parts, which every function here reads.
pub(crate) struct Decoder<'a, B: Backend> {
    pub backend: &'a B,
    pub spec: &'a DecoderSpec,
    pub weights: &'a DecoderWeights<B>,
    pub adapters: &'a [Adapter<B>],
    /// The step's rows of each adapter.
    pub groups: &'a [Group],
}

impl<B: Backend> Decoder<'_, B> {
    /// Writes the step's keys and values and returns what is wanted of its rows.
    pub(crate) fn forward(&self, kv: &mut KvMemory<B>, step: &Step, angles: &[Angles]) -> Result<Outputs> {
        let backend = self.backend;
        let mut outputs = Outputs::default();
        if step.states.is_empty() && !step.selected.is_empty() {
            let repeats = self.repeats(step);
            let logits = backend.run(step, angles, repeats, |plan| self.logits(self.layers(kv, plan)?, plan))?;
            self.drawn_or_read(logits, step, &mut outputs)?;
            return Ok(outputs);
        }
        let plan = backend.plan(step, angles)?;
        let x = self.layers(kv, &plan)?; // [T, hidden]
        if !step.states.is_empty() {
            let picked = backend.pick(&x, &step.states, self.spec.hidden)?; // [S, hidden]
            outputs.states = backend.read(backend.rms_norm(&picked, &self.weights.norm, self.spec.norm_eps)?)?;
        }
        if !step.selected.is_empty() {
            self.drawn_or_read(self.logits(x, &plan)?, step, &mut outputs)?;
        }
        Ok(outputs)
    }

    /// Whether the step is one token of each sequence and nothing else: what a server does most of the time.
    fn repeats(&self, step: &Step) -> bool {
        let single = step.chunks.len() == step.tokens.len() && step.selected.len() == step.tokens.len();
        single && self.spec.experts.is_none() && self.groups.iter().all(|group| group.rows.is_empty())
    }

    /// `[T, hidden]`
    fn layers(&self, kv: &mut KvMemory<B>, plan: &B::Plan<'_>) -> Result<B::Tensor> {
        let (backend, weights, scales) = (self.backend, self.weights, self.spec.scales);
        let mut x = self.scaled(backend.embed(&weights.embedding, plan)?, scales.embedding)?;
        let norm_of = |index: usize| weights.layers.get(index).and_then(|layer| layer.attention_in.as_ref());
        let mut normed = self.norm(&x, norm_of(0))?;
        for (index, layer) in weights.layers.iter().enumerate() {
            let input = normed.as_ref().unwrap_or(&x);
            let attended = self.attention(input, layer, &mut kv.layers[index], plan, index)?; // [T, hidden]
            (x, normed) = self.added(x, attended, layer.mlp_in.as_ref())?;
            let transformed = self.feed_forward(normed.as_ref().unwrap_or(&x), layer, plan, index)?; // [T, hidden]
            (x, normed) = self.added(x, transformed, norm_of(index + 1))?;
        }
        Ok(x)
    }

    /// The residual sum, and its norm where one follows.
    fn added(&self, x: B::Tensor, y: B::Tensor, norm: Option<&B::Vector>) -> Result<(B::Tensor, Option<B::Tensor>)> {
        let y = self.scaled(y, self.spec.scales.residual)?;
        let Some(weight) = norm else { return Ok((self.backend.add(x, &y)?, None)) };
        let (sum, normed) = self.backend.add_norm(x, &y, weight, self.spec.norm_eps)?;
        Ok((sum, Some(normed)))
    }

    /// Of the selected rows, `[R, vocab]`.
    fn logits(&self, x: B::Tensor, plan: &B::Plan<'_>) -> Result<B::Tensor> {
        let (backend, weights) = (self.backend, self.weights);
        let x = backend.select(x, plan)?; // [R, hidden]
        let x = backend.rms_norm(&x, &weights.norm, self.spec.norm_eps)?;
        let head = weights.head.as_ref().unwrap_or(&weights.embedding);
        let logits = self.scaled(backend.logits(&x, head)?, self.spec.scales.logits)?;
        match self.spec.logit_cap {
            Some(cap) => backend.soft_cap(logits, cap),
            None => Ok(logits),
        }
    }

    /// Reading is all that a step waits for, and comes last.
    fn drawn_or_read(&self, logits: B::Tensor, step: &Step, outputs: &mut Outputs) -> Result<()> {
        let (backend, vocab) = (self.backend, self.spec.vocab);
        if step.draws.is_empty() {
            outputs.logits = backend.read(logits)?;
            return Ok(());
        }
        let kept = (!step.read.is_empty()).then(|| backend.pick(&logits, &step.read, vocab)).transpose()?;
        outputs.drawn = backend.sample(&logits, vocab, &step.draws)?;
        if let Some(kept) = kept {
            outputs.logits = backend.read(kept)?;
        }
        Ok(())
    }

    /// Keys and values are stored before they are read, so a prefill chunk sees itself through the cache like any past.
    fn attention(
        &self,
        input: &B::Tensor,
        layer: &LayerWeights<B>,
        kv: &mut B::Kv,
        plan: &B::Plan<'_>,
        index: usize,
    ) -> Result<B::Tensor> {
        let backend = self.backend;
        let shape = self.attention_shape(index);
        // [T, heads * head_dim], and twice [T, kv_heads * head_dim]
        let [q, k, v] = backend.linears(input, [&layer.q, &layer.k, &layer.v].map(Linear::parts))?;
        let q = self.adapted(q, input, plan, (index, Place::Q))?;
        let k = self.adapted(k, input, plan, (index, Place::K))?;
        let v = self.adapted(v, input, plan, (index, Place::V))?;
        let q = self.norm(&q, layer.q_norm.as_ref())?.unwrap_or(q);
        let k = self.norm(&k, layer.k_norm.as_ref())?.unwrap_or(k);
        let q = match self.spec.layers[index].rope {
            Some(rope) => {
                backend.store_rotated(kv, plan, k, &v, (shape.head_dim, rope))?;
                backend.rope(q, plan, shape.head_dim, rope)?
            }
            None => {
                backend.store(kv, plan, &k, &v)?;
                q
            }
        };
        let mixed = backend.attention(&q, kv, plan, &shape)?; // [T, heads * head_dim]
        let out = self.adapted(self.linear(&mixed, &layer.o)?, &mixed, plan, (index, Place::O))?; // [T, hidden]
        Ok(self.norm(&out, layer.attention_out.as_ref())?.unwrap_or(out))
    }

    fn feed_forward(
        &self,
        input: &B::Tensor,
        layer: &LayerWeights<B>,
        plan: &B::Plan<'_>,
        index: usize,
    ) -> Result<B::Tensor> {
        let out = match &layer.mlp {
            FeedForward::Dense(mlp) => self.mlp(input, mlp, |y, x, place| self.adapted(y, x, plan, (index, place)))?,
            FeedForward::Routed { choice, router, experts } => {
                let scores = self.linear(input, router)?; // [T, experts]
                // Each expert's weights are read once for all tokens that chose it.
                let expert = |expert: usize, rows: &B::Tensor| self.mlp(rows, &experts[expert], |y, _, _| Ok(y));
                self.backend.mix(input, &scores, *choice, expert)?
            }
        }; // [T, hidden]
        Ok(self.norm(&out, layer.mlp_out.as_ref())?.unwrap_or(out))
    }

    /// `adapt` changes each linear layer's output, given what went in.
    fn mlp(
        &self,
        x: &B::Tensor,
        mlp: &Mlp<B>,
        adapt: impl Fn(B::Tensor, &B::Tensor, Place) -> Result<B::Tensor>,
    ) -> Result<B::Tensor> {
        // Twice [T, intermediate]
        let [gate, up] = self.backend.linears(x, [&mlp.gate, &mlp.up].map(Linear::parts))?;
        let (gate, up) = (adapt(gate, x, Place::Gate)?, adapt(up, x, Place::Up)?);
        let gated = self.backend.gate(gate, &up, self.spec.activation)?;
        adapt(self.linear(&gated, &mlp.down)?, &gated, Place::Down)
    }

    /// Adds what each adapter makes of its rows of `x` to the same rows of `y`.
    fn adapted(
        &self,
        mut y: B::Tensor,
        x: &B::Tensor,
        plan: &B::Plan<'_>,
        (layer, place): (usize, Place),
    ) -> Result<B::Tensor> {
        for (index, (adapter, group)) in self.adapters.iter().zip(self.groups).enumerate() {
            let Some(delta) = adapter.at(layer, place).filter(|_| !group.rows.is_empty()) else { continue };
            let rows = self.backend.gather(x, plan, index)?;
            let inner = self.backend.linear(&rows, &delta.down, None)?; // [rows, rank]
            let part = self.backend.linear(&inner, &delta.up, None)?;
            y = self.backend.add_rows(y, plan, index, &part)?;
        }
        Ok(y)
    }

    /// Most have a factor of one, which costs nothing.
    fn scaled(&self, x: B::Tensor, factor: f32) -> Result<B::Tensor> {
        if factor == 1.0 { Ok(x) } else { self.backend.scale(x, factor) }
    }

    fn attention_shape(&self, layer: usize) -> AttentionShape {
        let spec = self.spec;
        AttentionShape {
            heads: spec.heads,
            kv_heads: spec.kv_heads,
            head_dim: spec.head_dim,
            scale: spec.attention_scale,
            cap: spec.attention_cap,
            window: spec.layers[layer].window,
            causal: true,
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
