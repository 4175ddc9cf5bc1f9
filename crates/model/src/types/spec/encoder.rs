//! Everything in which BERT's family differs, as data.

use forebay_kernels::attention::KvDtype;

use super::decoder::Activation;

/// One encoder. All counts are positive; `hidden` is a multiple of `heads`. Every linear layer has a bias, and every
/// norm stands behind the sum that it normalises.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderSpec {
    pub vocab: usize,
    pub hidden: usize,
    /// Width inside the MLP.
    pub intermediate: usize,
    pub heads: usize,
    pub layers: usize,
    pub norm_eps: f32,
    pub activation: Activation,
    /// Rows of the table of positions before that of the first one: RoBERTa begins behind its padding.
    pub position_offset: usize,
    /// Kinds of segments that it tells apart; what it embeds is all of the first. Zero where it tells none.
    pub segments: usize,
    /// Tokens of the longest prompt.
    pub max_position_embeddings: u32,
}

impl EncoderSpec {
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    /// Number of weights. Saturates for absurd sizes.
    pub fn parameters(&self) -> u64 {
        let product = |a: usize, b: usize| (a as u64).saturating_mul(b as u64);
        let rows = self.vocab + self.position_offset + self.max_position_embeddings as usize + self.segments;
        let norm = 2 * self.hidden as u64;
        let attention = product(4 * self.hidden, self.hidden + 1);
        let mlp = product(2 * self.hidden + 1, self.intermediate).saturating_add(self.hidden as u64);
        let layer = attention.saturating_add(mlp).saturating_add(2 * norm);
        product(rows, self.hidden).saturating_add(norm).saturating_add(layer.saturating_mul(self.layers as u64))
    }

    /// Bytes of keys and values for one token, all layers together. They live for one step.
    pub fn kv_bytes_per_token(&self, dtype: KvDtype) -> usize {
        self.layers * self.heads * (dtype.key_bytes(self.head_dim()) + dtype.value_bytes(self.head_dim()))
    }
}
