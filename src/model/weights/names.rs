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

/// The name that GGUF files have for `tensor`, of a decoder that normalises inputs; other names stay as they are.
pub(in crate::model) fn in_gguf(tensor: &str) -> String {
    const FIXED: [(&str, &str); 3] =
        [(EMBEDDING, "token_embd.weight"), (FINAL_NORM, "output_norm.weight"), (HEAD, "output.weight")];
    const MODULES: [(&str, &str); 11] = [
        ("input_layernorm", "attn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    if let Some((_, fixed)) = FIXED.iter().find(|(name, _)| *name == tensor) {
        return fixed.to_string();
    }
    let parts = || {
        let (layer, rest) = tensor.strip_prefix("model.layers.")?.split_once('.')?;
        let (module, part) = rest.rsplit_once('.')?;
        let (_, module) = MODULES.iter().find(|(name, _)| *name == module)?;
        Some(format!("blk.{layer}.{module}.{part}"))
    };
    parts().unwrap_or_else(|| tensor.to_string())
}

/// Whether `tensor` is a norm's weight; they start near one, all others near zero.
pub(super) fn is_norm(tensor: &str) -> bool {
    tensor.ends_with("norm.weight")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_gguf_files() {
        assert_eq!(in_gguf(EMBEDDING), "token_embd.weight");
        assert_eq!(in_gguf("model.layers.12.self_attn.q_proj.bias"), "blk.12.attn_q.bias");
        assert_eq!(in_gguf("model.layers.0.post_attention_layernorm.weight"), "blk.0.ffn_norm.weight");
        assert_eq!(in_gguf("model.layers.0.surprise.weight"), "model.layers.0.surprise.weight");
    }
}
