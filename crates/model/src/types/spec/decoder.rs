//! Everything in which decoder-only architectures differ, as data. `arch` fills it, the forward pass obeys it.

use forebay_kernels::attention::KvDtype;

use super::rope::Rope;

/// One decoder. All counts are positive; `heads` is a multiple of `kv_heads`; `head_dim` is even.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width inside the MLP.
    pub intermediate: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub layers: Vec<LayerSpec>,
    pub norms: NormPlacement,
    pub norm_eps: f32,
    /// Added to the weights of norms as they are stored: 1 for Gemma's checkpoints.
    pub norm_offset: f32,
    pub qk_norm: QkNorm,
    pub bias: Bias,
    pub activation: Activation,
    /// Of the layers that are `routed`.
    pub experts: Option<Experts>,
    /// Queries, keys and values are stored as one matrix, and so are gate and up: Phi-3.
    pub fused: bool,
    /// What layers choose from; most have one.
    pub ropes: Vec<Rope>,
    pub scales: Scales,
    /// What attention scores are multiplied by; usually `1 / sqrt(head_dim)`.
    pub attention_scale: f32,
    /// Attention scores `s` become `cap * tanh(s / cap)`: Gemma 2.
    pub attention_cap: Option<f32>,
    /// The same for logits.
    pub logit_cap: Option<f32>,
    /// The output head is the embedding table.
    pub tied: bool,
    /// Positions the model was made for.
    pub max_position_embeddings: u32,
}

/// In what one layer differs from its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerSpec {
    /// A token sees itself and the `window - 1` positions before it; `None` sees all.
    pub window: Option<usize>,
    /// Index into [`DecoderSpec::ropes`]; `None` leaves queries and keys as they are.
    pub rope: Option<usize>,
    /// Its MLP is a choice of experts.
    pub routed: bool,
}

impl LayerSpec {
    /// Sees everything, rotates as the first rope says, has one MLP.
    pub const PLAIN: LayerSpec = LayerSpec { window: None, rope: Some(0), routed: false };
}

/// Where a block's two halves (attention, MLP) are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlacement {
    /// Their inputs: Llama and most others.
    Pre,
    /// Their outputs, before they join the residual stream: OLMo 2.
    Post,
    /// Inputs and outputs: Gemma 2 and 3.
    Both,
}

/// Normalisation of queries and keys before RoPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    None,
    /// Each head on its own, with one weight of `head_dim`: Qwen3.
    PerHead,
    /// All heads of a token together, with a weight of the full width: OLMo 2.
    Full,
}

/// Which linear layers add a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bias {
    pub qkv: bool,
    pub attention_output: bool,
    pub mlp: bool,
}

/// The gate of the MLP, or what stands in its place where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    Silu,
    /// By the error function.
    Gelu,
    /// GELU in its approximation by a hyperbolic tangent.
    GeluTanh,
}

/// A choice of MLPs: each token goes through those `per_token` of `count` that a router scores highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    pub count: usize,
    pub per_token: usize,
    /// Width inside one of them.
    pub intermediate: usize,
    /// The weights of the chosen ones are made to add up to one.
    pub normalised: bool,
}

/// Factors on the way through; 1 where an architecture has none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scales {
    pub embedding: f32,
    /// Of what each half of a block adds to the residual stream.
    pub residual: f32,
    pub logits: f32,
}

impl Default for Scales {
    fn default() -> Scales {
        Scales { embedding: 1.0, residual: 1.0, logits: 1.0 }
    }
}

impl DecoderSpec {
    /// Width of a token's queries.
    pub fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of a token's keys, and of its values, in one layer.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Number of weights; a tied table counts once. Saturates for absurd sizes.
    pub fn parameters(&self) -> u64 {
        let product = |factors: &[usize]| factors.iter().fold(1u64, |n, &f| n.saturating_mul(f as u64));
        let when = |on: bool, count: usize| if on { count as u64 } else { 0 };
        let (q, kv) = (self.q_width(), self.kv_width());
        let attention = product(&[self.hidden, 2, q + kv])
            + when(self.bias.qkv, q + 2 * kv)
            + when(self.bias.attention_output, self.hidden)
            + match self.qk_norm {
                QkNorm::None => 0,
                QkNorm::PerHead => 2 * self.head_dim as u64,
                QkNorm::Full => (q + kv) as u64,
            };
        let mlp =
            product(&[3, self.hidden, self.intermediate]) + when(self.bias.mlp, 2 * self.intermediate + self.hidden);
        let routed = self.experts.map_or(0, |experts| {
            let router = product(&[experts.count, self.hidden]);
            product(&[3, experts.count, self.hidden, experts.intermediate]).saturating_add(router)
        });
        let norms = product(&[if self.norms == NormPlacement::Both { 4 } else { 2 }, self.hidden]);
        let layer = |layer: &LayerSpec| {
            let mlp = if layer.routed { routed } else { mlp };
            attention.saturating_add(mlp).saturating_add(norms)
        };
        let layers = self.layers.iter().map(layer).fold(0u64, u64::saturating_add);
        let tables = product(&[if self.tied { 1 } else { 2 }, self.vocab, self.hidden]);
        layers.saturating_add(tables).saturating_add(self.hidden as u64)
    }

    /// Bytes of cached keys and values for one token, all layers together.
    pub fn kv_bytes_per_token(&self, dtype: KvDtype) -> usize {
        let head = dtype.key_bytes(self.head_dim) + dtype.value_bytes(self.head_dim);
        self.layers.len() * self.kv_heads * head
    }
}
