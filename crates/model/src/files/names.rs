//! How checkpoints name a decoder's tensors: as a Llama's are, but for what an architecture renames.

use crate::types::spec::decoder::{DecoderSpec, NormPlacement, QkNorm};

pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
pub(crate) const FINAL_NORM: &str = "model.norm.weight";
pub(crate) const HEAD: &str = "lm_head.weight";

/// A module of layer `index`: `model.layers.3.self_attn.q_proj`.
pub(crate) fn module(index: usize, module: &str) -> String {
    format!("model.layers.{index}.{module}")
}

/// The matrices that lie above each other in the fused ones, in their order.
pub(crate) const QKV: [&str; 3] = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
pub(crate) const FUSED_QKV: &str = "self_attn.qkv_proj";
pub(crate) const FUSED_GATE_UP: &str = "gate_up_proj";

/// Parts of names that an architecture spells otherwise: ours, theirs.
pub(crate) type Renamed = &'static [(&'static str, &'static str)];

pub(crate) fn rename(tensor: &str, renamed: Renamed) -> String {
    renamed.iter().fold(tensor.to_string(), |name, (ours, theirs)| name.replace(ours, theirs))
}

/// The norm modules around the two halves of a layer, where the architecture has them.
pub(crate) struct LayerNorms {
    pub attention_in: Option<&'static str>,
    pub attention_out: Option<&'static str>,
    pub mlp_in: Option<&'static str>,
    pub mlp_out: Option<&'static str>,
}

/// A trap: with [`NormPlacement::Pre`], `post_attention_layernorm` stands before the MLP; with the others it does what
/// its name says.
pub(crate) fn layer_norms(placement: NormPlacement) -> LayerNorms {
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
        NormPlacement::Both => LayerNorms {
            attention_in: Some("input_layernorm"),
            attention_out: Some("post_attention_layernorm"),
            mlp_in: Some("pre_feedforward_layernorm"),
            mlp_out: Some("post_feedforward_layernorm"),
        },
    }
}

/// Every tensor of a decoder, by our names, and its shape.
pub(crate) fn of_decoder(spec: &DecoderSpec) -> Vec<(String, Vec<usize>)> {
    let mut all = vec![(EMBEDDING.to_string(), vec![spec.vocab, spec.hidden])];
    for index in 0..spec.layers.len() {
        of_layer(spec, index, &mut all);
    }
    all.push((FINAL_NORM.to_string(), vec![spec.hidden]));
    if !spec.tied {
        all.push((HEAD.to_string(), vec![spec.vocab, spec.hidden]));
    }
    all
}

fn of_layer(spec: &DecoderSpec, index: usize, all: &mut Vec<(String, Vec<usize>)>) {
    let (hidden, q, kv) = (spec.hidden, spec.q_width(), spec.kv_width());
    let norms = layer_norms(spec.norms);
    let mut norm = |name: &str, width: usize| all.push((format!("{}.weight", module(index, name)), vec![width]));
    let around = [norms.attention_in, norms.attention_out, norms.mlp_in, norms.mlp_out];
    around.into_iter().flatten().for_each(|name| norm(name, hidden));
    let widths = match spec.qk_norm {
        QkNorm::None => None,
        QkNorm::PerHead => Some((spec.head_dim, spec.head_dim)),
        QkNorm::Full => Some((q, kv)),
    };
    if let Some((of_q, of_k)) = widths {
        norm("self_attn.q_norm", of_q);
        norm("self_attn.k_norm", of_k);
    }
    let mut linear = |name: &str, outputs: usize, inputs: usize, bias: bool| {
        all.push((format!("{}.weight", module(index, name)), vec![outputs, inputs]));
        if bias {
            all.push((format!("{}.bias", module(index, name)), vec![outputs]));
        }
    };
    if spec.fused {
        linear(FUSED_QKV, q + 2 * kv, hidden, spec.bias.qkv);
    } else {
        QKV.into_iter().zip([q, kv, kv]).for_each(|(name, outputs)| linear(name, outputs, hidden, spec.bias.qkv));
    }
    linear("self_attn.o_proj", hidden, q, spec.bias.attention_output);
    let mut mlp = |name: &str, width: usize| {
        let bias = spec.bias.mlp;
        if spec.fused {
            linear(&format!("{name}.{FUSED_GATE_UP}"), 2 * width, hidden, bias);
        } else {
            ["gate_proj", "up_proj"].iter().for_each(|part| linear(&format!("{name}.{part}"), width, hidden, bias));
        }
        linear(&format!("{name}.down_proj"), hidden, width, bias);
    };
    match spec.experts.filter(|_| spec.layers[index].routed) {
        None => mlp("mlp", spec.intermediate),
        Some(experts) => {
            (0..experts.count).for_each(|at| mlp(&format!("mlp.experts.{at}"), experts.intermediate));
            linear("mlp.gate", experts.count, hidden, false);
        }
    }
}

/// A tensor of a GGUF file: all of it, or one expert's matrix of those that lie behind each other in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InGguf {
    pub name: String,
    pub expert: Option<usize>,
}

/// Where GGUF files have `tensor`; other names stay as they are.
pub(crate) fn in_gguf(tensor: &str, norms: NormPlacement) -> InGguf {
    const FIXED: [(&str, &str); 3] =
        [(EMBEDDING, "token_embd.weight"), (FINAL_NORM, "output_norm.weight"), (HEAD, "output.weight")];
    const MODULES: [(&str, &str); 15] = [
        ("input_layernorm", "attn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        (FUSED_QKV, "attn_qkv"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("pre_feedforward_layernorm", "ffn_norm"),
        ("post_feedforward_layernorm", "post_ffw_norm"),
        ("mlp.gate", "ffn_gate_inp"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.gate_up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    let whole = |name: String| InGguf { name, expert: None };
    if let Some((_, fixed)) = FIXED.iter().find(|(name, _)| *name == tensor) {
        return whole(fixed.to_string());
    }
    let parts = || {
        let (layer, rest) = tensor.strip_prefix("model.layers.")?.split_once('.')?;
        let (module, part) = rest.rsplit_once('.')?;
        if let Some(stacked) = module.strip_prefix("mlp.experts.") {
            let (expert, projection) = stacked.split_once('.')?;
            let name = format!("blk.{layer}.ffn_{}_exps.{part}", projection.strip_suffix("_proj")?);
            return Some(InGguf { name, expert: Some(expert.parse().ok()?) });
        }
        let module = match (module, norms) {
            ("post_attention_layernorm", NormPlacement::Pre) => "ffn_norm",
            ("post_attention_layernorm", _) => "post_attention_norm",
            _ => MODULES.iter().find(|(name, _)| *name == module)?.1,
        };
        Some(whole(format!("blk.{layer}.{module}.{part}")))
    };
    parts().unwrap_or_else(|| whole(tensor.to_string()))
}

/// Whether `tensor` is a norm's weight; they start near one, all others near zero.
pub(crate) fn is_norm(tensor: &str) -> bool {
    tensor.ends_with("norm.weight") || tensor.ends_with("LayerNorm.weight")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_gguf_files() {
        use NormPlacement::{Both, Post, Pre};
        let check = |tensor: &str, norms, name: &str, expert| {
            assert_eq!(in_gguf(tensor, norms), InGguf { name: name.to_string(), expert });
        };
        check(EMBEDDING, Pre, "token_embd.weight", None);
        check("model.layers.12.self_attn.q_proj.bias", Pre, "blk.12.attn_q.bias", None);
        check("model.layers.0.post_attention_layernorm.weight", Pre, "blk.0.ffn_norm.weight", None);
        check("model.layers.0.post_attention_layernorm.weight", Both, "blk.0.post_attention_norm.weight", None);
        check("model.layers.0.pre_feedforward_layernorm.weight", Both, "blk.0.ffn_norm.weight", None);
        check("model.layers.0.post_feedforward_layernorm.weight", Post, "blk.0.post_ffw_norm.weight", None);
        check("model.layers.3.mlp.experts.17.gate_proj.weight", Pre, "blk.3.ffn_gate_exps.weight", Some(17));
        check("model.layers.3.mlp.gate.weight", Pre, "blk.3.ffn_gate_inp.weight", None);
        check("model.layers.0.surprise.weight", Pre, "model.layers.0.surprise.weight", None);
    }

    #[test]
    fn renamed_parts() {
        let renamed: Renamed = &[("mlp.experts.", "block_sparse_moe.experts."), (".up_proj.", ".w3.")];
        let name = rename("model.layers.1.mlp.experts.0.up_proj.weight", renamed);
        assert_eq!(name, "model.layers.1.block_sparse_moe.experts.0.w3.weight");
        assert_eq!(rename("model.norm.weight", renamed), "model.norm.weight");
    }
}
