//! Metadata to [`DecoderSpec`], beside [`crate::arch::decoder`] for `config.json`: what llama.cpp's converter writes, and
//! what its loader takes for granted where the file says nothing.

use super::prefixed::Prefixed;
use super::rope;
use crate::arch::limits::{MAX_EXPERTS, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_POSITIONS, MAX_VOCAB, MAX_WIDTH};
use crate::files::gguf::file::Gguf;
use crate::files::gguf::value::Array;
use crate::files::gguf::vocab::token_count;
use crate::types::error::LoadError;
use crate::types::spec::decoder::{Activation, Bias, DecoderSpec, Experts, LayerSpec, NormPlacement, QkNorm, Scales};

type Adapt = fn(&mut DecoderSpec, &Prefixed) -> Result<(), LoadError>;

/// `general.architecture`, and in what it differs from the common base.
const ARCHITECTURES: [(&str, Adapt); 10] = [
    ("llama", llama),
    ("qwen2", qwen2),
    ("qwen3", qwen3),
    ("qwen3moe", qwen3_moe),
    ("olmo2", olmo2),
    ("gemma2", gemma2),
    ("gemma3", gemma3),
    ("phi3", phi3),
    ("granite", granite),
    ("smollm3", smollm3),
];

/// Ours: llama.cpp has no key for the window of a Mistral, which it calls `llama` and lets see everything.
pub(crate) const WINDOW: &str = "forebay.attention.sliding_window";

pub(crate) fn read_spec(file: &Gguf) -> Result<DecoderSpec, LoadError> {
    let found = file.architecture()?;
    let Some(&(name, adapt)) = ARCHITECTURES.iter().find(|(name, _)| *name == found) else {
        return Err(LoadError::Architecture {
            path: file.path().to_path_buf(),
            found: found.chars().take(60).collect(),
            supported: ARCHITECTURES.map(|(name, _)| name).join(", "),
        });
    };
    let keys = Prefixed { file, keys: file.keys(), architecture: name };
    let mut spec = base(&keys)?;
    adapt(&mut spec, &keys)?;
    Ok(spec)
}

/// Llama, Mistral with its window, and Mixtral with its experts.
fn llama(spec: &mut DecoderSpec, keys: &Prefixed) -> Result<(), LoadError> {
    let window = keys.keys.integer(WINDOW, 1..=MAX_POSITIONS)?;
    spec.experts = experts(keys, spec.intermediate)?;
    spec.layers.fill(LayerSpec { window, routed: spec.experts.is_some(), ..LayerSpec::PLAIN });
    Ok(())
}

fn qwen2(spec: &mut DecoderSpec, _keys: &Prefixed) -> Result<(), LoadError> {
    spec.bias.qkv = true;
    Ok(())
}

fn qwen3(spec: &mut DecoderSpec, _keys: &Prefixed) -> Result<(), LoadError> {
    spec.qk_norm = QkNorm::PerHead;
    Ok(())
}

fn qwen3_moe(spec: &mut DecoderSpec, keys: &Prefixed) -> Result<(), LoadError> {
    spec.qk_norm = QkNorm::PerHead;
    let missing = || keys.broken("expert_count", "is missing");
    spec.experts = Some(experts(keys, spec.intermediate)?.ok_or_else(missing)?);
    spec.layers.iter_mut().for_each(|layer| layer.routed = true);
    Ok(())
}

fn olmo2(spec: &mut DecoderSpec, keys: &Prefixed) -> Result<(), LoadError> {
    spec.norms = NormPlacement::Post;
    spec.qk_norm = QkNorm::Full;
    if keys.integer("attention.sliding_window", MAX_POSITIONS)?.is_some() {
        return Err(keys.broken("attention.sliding_window", "must be absent: OLMo 3 is not supported"));
    }
    Ok(())
}

/// What both Gemmas have. Their norms are stored with the one that checkpoints leave out. `largest` is how many layers the
/// one has whose heads do not set the scale.
fn gemma(spec: &mut DecoderSpec, keys: &Prefixed, largest: usize) -> Result<(), LoadError> {
    spec.norms = NormPlacement::Both;
    spec.activation = Activation::GeluTanh;
    spec.scales.embedding = (spec.hidden as f32).sqrt();
    if spec.layers.len() == largest {
        spec.attention_scale = ((spec.hidden / spec.heads) as f64).powf(-0.5) as f32;
    }
    spec.attention_cap = keys.factor("attn_logit_softcapping")?;
    spec.logit_cap = keys.factor("final_logit_softcapping")?;
    Ok(())
}

fn gemma2(spec: &mut DecoderSpec, keys: &Prefixed) -> Result<(), LoadError> {
    gemma(spec, keys, 46)?;
    let window = keys.integer("attention.sliding_window", MAX_POSITIONS)?.unwrap_or(4096);
    for (layer, slides) in spec.layers.iter_mut().zip(sliding(keys, 2)?) {
        layer.window = slides.then_some(window);
    }
    Ok(())
}

/// Layers with a window have a rope of their own, the second one, which is never scaled.
fn gemma3(spec: &mut DecoderSpec, keys: &Prefixed) -> Result<(), LoadError> {
    gemma(spec, keys, 62)?;
    spec.qk_norm = QkNorm::PerHead;
    let Some(window) = keys.integer("attention.sliding_window", MAX_POSITIONS)? else { return Ok(()) };
    spec.ropes.push(rope::local(keys, spec.head_dim)?);
    for (layer, slides) in spec.layers.iter_mut().zip(sliding(keys, 6)?) {
        if slides {
            (layer.window, layer.rope) = (Some(window), Some(1));
        }
    }
    Ok(())
}

/// llama.cpp lets it see everything, whatever window the file names.
fn phi3(spec: &mut DecoderSpec, _keys: &Prefixed) -> Result<(), LoadError> {
    spec.fused = true;
    Ok(())
}

fn granite(spec: &mut DecoderSpec, keys: &Prefixed) -> Result<(), LoadError> {
    spec.attention_scale = keys.factor("attention.scale")?.unwrap_or(spec.attention_scale);
    spec.scales = Scales {
        embedding: keys.factor("embedding_scale")?.unwrap_or(1.0),
        residual: keys.factor("residual_scale")?.unwrap_or(1.0),
        logits: 1.0 / keys.factor("logit_scale")?.unwrap_or(1.0),
    };
    Ok(())
}

/// Every fourth layer has no rope; no key says so.
fn smollm3(spec: &mut DecoderSpec, _keys: &Prefixed) -> Result<(), LoadError> {
    for layer in spec.layers.iter_mut().skip(3).step_by(4) {
        layer.rope = None;
    }
    Ok(())
}

/// Which layers have a window: a list, or every layer but each `n`th, `usually` being the `n` of files that do not say.
fn sliding(keys: &Prefixed, usually: usize) -> Result<impl Iterator<Item = bool>, LoadError> {
    let name = keys.key("attention.sliding_window_pattern");
    let layers = keys.required("block_count", MAX_LAYERS)?;
    let list = if keys.keys.is_array(&name) { keys.keys.array(&name, "BOOL", Array::flags)? } else { None };
    if list.as_ref().is_some_and(|list| list.len() != layers) {
        return Err(keys.keys.broken(&name, &format!("must have one element for each of the {layers} layers")));
    }
    let nth = match list {
        None => keys.keys.integer(&name, 1..=MAX_LAYERS)?.unwrap_or(usually),
        Some(_) => usually,
    };
    Ok((0..layers).map(move |layer| list.as_ref().map_or(layer % nth < nth - 1, |list| list[layer])))
}

/// `None` where the MLPs are plain.
fn experts(keys: &Prefixed, intermediate: usize) -> Result<Option<Experts>, LoadError> {
    let Some(count) = keys.expert_count()? else { return Ok(None) };
    let per_token = keys.required("expert_used_count", MAX_EXPERTS)?;
    if per_token > count {
        return Err(keys.broken("expert_used_count", &format!("must be at most the number of experts, {count}")));
    }
    let intermediate = keys.integer("expert_feed_forward_length", MAX_WIDTH)?.unwrap_or(intermediate);
    Ok(Some(Experts { count, per_token, intermediate, normalised: true }))
}

/// What the architectures share.
fn base(keys: &Prefixed) -> Result<DecoderSpec, LoadError> {
    if keys.expert_count()?.is_some() && !["llama", "qwen3moe"].contains(&keys.architecture) {
        return Err(keys.broken("expert_count", "must be 0: this architecture is supported without experts only"));
    }
    let hidden = keys.required("embedding_length", MAX_WIDTH)?;
    let heads = keys.required("attention.head_count", MAX_HEADS)?;
    let kv_heads = keys.integer("attention.head_count_kv", MAX_HEADS)?.unwrap_or(heads);
    if !heads.is_multiple_of(kv_heads) {
        return Err(keys.broken("attention.head_count_kv", &format!("must divide attention.head_count, {heads}")));
    }
    let head_dim = head_dim(keys, hidden, heads)?;
    let layers = keys.required("block_count", MAX_LAYERS)?;
    let epsilon = "attention.layer_norm_rms_epsilon";
    let norm_eps =
        keys.keys.number(&keys.key(epsilon), 0.0..=1.0)?.ok_or_else(|| keys.broken(epsilon, "is missing"))?;
    let has = |tensor: &str| keys.file.tensor(tensor).is_some();
    Ok(DecoderSpec {
        vocab: vocab(keys)?,
        hidden,
        intermediate: keys.required("feed_forward_length", MAX_WIDTH)?,
        heads,
        kv_heads,
        head_dim,
        layers: vec![LayerSpec::PLAIN; layers],
        norms: NormPlacement::Pre,
        norm_eps: norm_eps as f32,
        norm_offset: 0.0,
        qk_norm: QkNorm::None,
        bias: Bias {
            qkv: has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias"),
            attention_output: has("blk.0.attn_output.bias"),
            mlp: has("blk.0.ffn_gate.bias"),
        },
        activation: Activation::Silu,
        experts: None,
        fused: false,
        ropes: vec![rope::global(keys, head_dim)?],
        scales: Scales::default(),
        attention_scale: (head_dim as f64).powf(-0.5) as f32,
        attention_cap: None,
        logit_cap: None,
        tied: !has("output.weight"),
        max_position_embeddings: keys.required("context_length", MAX_POSITIONS)? as u32,
    })
}

/// `attention.key_length`, or else an equal share of the hidden width. Values are as wide.
fn head_dim(keys: &Prefixed, hidden: usize, heads: usize) -> Result<usize, LoadError> {
    let head_dim = match keys.integer("attention.key_length", MAX_HEAD_DIM)? {
        Some(head_dim) => head_dim,
        None if hidden.is_multiple_of(heads) && hidden / heads <= MAX_HEAD_DIM => hidden / heads,
        None => {
            let rule = format!(
                "must divide embedding_length, {hidden}, into at most {MAX_HEAD_DIM} each (no attention.key_length given)"
            );
            return Err(keys.broken("attention.head_count", &rule));
        }
    };
    if !head_dim.is_multiple_of(2) {
        return Err(keys.broken("attention.key_length", &format!("must be even for rotary positions, is {head_dim}")));
    }
    if keys.integer("attention.value_length", usize::MAX)?.is_some_and(|width| width != head_dim) {
        return Err(keys.broken("attention.value_length", &format!("must be the width of a head, {head_dim}")));
    }
    Ok(head_dim)
}

/// The number of tokens, as llama.cpp has it; `vocab_size` serves files without a tokenizer.
fn vocab(keys: &Prefixed) -> Result<usize, LoadError> {
    let declared = keys.integer("vocab_size", MAX_VOCAB)?;
    match token_count(&keys.keys)?.or(declared) {
        Some(count) if count <= MAX_VOCAB => Ok(count),
        _ => Err(keys.broken("vocab_size", "is missing, and so is tokenizer.ggml.tokens")),
    }
}
