//! A model's weights on their device, as the forward pass reads them.

use super::backend::Backend;
use crate::types::spec::decoder::Experts;

pub(crate) struct DecoderWeights<B: Backend> {
    /// `[vocab, hidden]`
    pub embedding: B::Matrix,
    pub layers: Vec<LayerWeights<B>>,
    pub norm: B::Vector,
    /// `[vocab, hidden]`; `None` where the embedding serves.
    pub head: Option<B::Matrix>,
}

/// Norms are `None` where the architecture has none.
pub(crate) struct LayerWeights<B: Backend> {
    pub attention_in: Option<B::Vector>,
    pub q: Linear<B>,
    pub k: Linear<B>,
    pub v: Linear<B>,
    pub q_norm: Option<B::Vector>,
    pub k_norm: Option<B::Vector>,
    pub o: Linear<B>,
    pub attention_out: Option<B::Vector>,
    pub mlp_in: Option<B::Vector>,
    pub mlp: FeedForward<B>,
    pub mlp_out: Option<B::Vector>,
}

pub(crate) enum FeedForward<B: Backend> {
    Dense(Mlp<B>),
    Routed {
        choice: Experts,
        /// `[experts, hidden]`
        router: Linear<B>,
        experts: Vec<Mlp<B>>,
    },
}

pub(crate) struct Mlp<B: Backend> {
    pub gate: Linear<B>,
    pub up: Linear<B>,
    pub down: Linear<B>,
}

pub(crate) struct Linear<B: Backend> {
    pub weight: B::Matrix,
    pub bias: Option<B::Vector>,
}

impl<B: Backend> Linear<B> {
    pub(crate) fn parts(&self) -> (&B::Matrix, Option<&B::Vector>) {
        (&self.weight, self.bias.as_ref())
    }
}

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
