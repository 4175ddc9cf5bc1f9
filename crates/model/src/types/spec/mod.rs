//! What a model computes, as data: one decoder or one encoder.
//!
//! A spec is read from a model's files by `arch` and obeyed by the forward pass. It knows neither files nor devices.

pub(crate) mod decoder;
pub(crate) mod encoder;
pub(crate) mod rope;

use decoder::DecoderSpec;
use encoder::EncoderSpec;
use forebay_kernels::attention::KvDtype;
use forebay_kernels::packed::Quantised;

/// One model: what it computes is tokens, or vectors alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    Decoder(DecoderSpec),
    Encoder(EncoderSpec),
}

impl Spec {
    /// What there is for a prompt's vector only.
    pub fn only_embeds(&self) -> bool {
        matches!(self, Spec::Encoder(_))
    }

    pub fn vocab(&self) -> usize {
        match self {
            Spec::Decoder(spec) => spec.vocab,
            Spec::Encoder(spec) => spec.vocab,
        }
    }

    /// Width of a hidden state.
    pub fn hidden(&self) -> usize {
        match self {
            Spec::Decoder(spec) => spec.hidden,
            Spec::Encoder(spec) => spec.hidden,
        }
    }

    pub fn layers(&self) -> usize {
        match self {
            Spec::Decoder(spec) => spec.layers.len(),
            Spec::Encoder(spec) => spec.layers,
        }
    }

    /// Of queries, of keys and values, and the width of each.
    pub fn heads(&self) -> (usize, usize, usize) {
        match self {
            Spec::Decoder(spec) => (spec.heads, spec.kv_heads, spec.head_dim),
            Spec::Encoder(spec) => (spec.heads, spec.heads, spec.head_dim()),
        }
    }

    /// Positions it was made for.
    pub fn max_position_embeddings(&self) -> u32 {
        match self {
            Spec::Decoder(spec) => spec.max_position_embeddings,
            Spec::Encoder(spec) => spec.max_position_embeddings,
        }
    }

    /// Number of weights.
    pub fn parameters(&self) -> u64 {
        match self {
            Spec::Decoder(spec) => spec.parameters(),
            Spec::Encoder(spec) => spec.parameters(),
        }
    }

    /// Bytes of keys and values for one token, all layers together.
    pub fn kv_bytes_per_token(&self, dtype: KvDtype) -> usize {
        match self {
            Spec::Decoder(spec) => spec.kv_bytes_per_token(dtype),
            Spec::Encoder(spec) => spec.kv_bytes_per_token(dtype),
        }
    }

    /// Bytes of the weights in blocks of `to`.
    pub(crate) fn quantised_bytes(&self, to: Quantised) -> u64 {
        let (numbers, bytes) = to.packing().block();
        self.parameters() / numbers as u64 * bytes as u64
    }
}
