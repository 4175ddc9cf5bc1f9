//! How checkpoints name a decoder's tensors.

use crate::model::spec::NormPlacement;

pub(super) const EMBEDDING: &str = "model.embed_tokens.weight";
pub(super) const FINAL_NORM: &str = "model.norm.weight";
pub(super) const HEAD: &str = "lm_head.weight";

/// A module of layer `index`: `model.layers.3.self_attn.q_proj`.
pub(super) fn module(index: usize, module: &str) -> String {
    format!("model.layers.{index}.{module}")
}

/// The norm modules around the two halves of a layer, where the architecture has them.
pub(super) struct LayerNorms {
    pub attention_in: Option<&'static str>,
    pub attention_out: Option<&'static str>,
    pub mlp_in: Option<&'static str>,
    pub mlp_out: Option<&'static str>,
}

/// A trap: with [`NormPlacement::Pre`], `post_attention_layernorm` stands before the MLP; with the others it does what
/// its name says.
pub(super) fn layer_norms(placement: NormPlacement) -> LayerNorms {
    match placement {
        NormPlacement::Pre => LayerNorms {
            attention_in: Some("input_layernorm"),
            attention_out: None,
            mlp_in: Some("post_attention_layernorm"),
            mlp_out: None,
        },
        NormPlacement::Post => LayerNorms {
            attention_in: None,
            attention_out: Some("post_attention_layernorm"),
            mlp_in: None,
            mlp_out: Some("post_feedforward_layernorm"),
        },
    }
}

/// Whether `tensor` is a norm's weight; they start near one, all others near zero.
pub(super) fn is_norm(tensor: &str) -> bool {
    tensor.ends_with("norm.weight")
}
