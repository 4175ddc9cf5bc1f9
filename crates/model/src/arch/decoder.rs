//! `config.json` to [`DecoderSpec`]: one short function per architecture, over what they all share.
//!
//! To add one: a row in [`ARCHITECTURES`], a function of about ten lines, its golden logits (`docs/adding-a-model.md`).

use super::limits::{
    MAX_EXPERTS, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_POSITIONS, MAX_VOCAB, MAX_WIDTH, MULTIPLIER,
};
use super::rope;
use crate::files::json::Fields;
use crate::files::names::Renamed;
use crate::types::error::LoadError;
use crate::types::spec::decoder::{Activation, Bias, DecoderSpec, Experts, LayerSpec, NormPlacement, QkNorm, Scales};
use crate::types::spec::rope::Rope;

type Read = fn(&Fields) -> Result<DecoderSpec, LoadError>;
/// For heads of this width; at least one.
type ReadRopes = fn(&Fields, usize) -> Result<Vec<Rope>, LoadError>;

/// Class name in `architectures`, name in `model_type`, reader, and where its tensors have other names than a Llama's.
type Architecture = (&'static str, &'static str, Read, Renamed);

const ARCHITECTURES: [Architecture; 12] = [
    ("LlamaForCausalLM", "llama", llama, &[]),
    ("MistralForCausalLM", "mistral", mistral, &[]),
    ("MixtralForCausalLM", "mixtral", mixtral, MIXTRAL),
    ("Qwen2ForCausalLM", "qwen2", qwen2, &[]),
    ("Qwen3ForCausalLM", "qwen3", qwen3, &[]),
    ("Qwen3MoeForCausalLM", "qwen3_moe", qwen3_moe, &[]),
    ("Olmo2ForCausalLM", "olmo2", olmo2, &[]),
    ("Gemma2ForCausalLM", "gemma2", gemma2, &[]),
    ("Gemma3ForCausalLM", "gemma3_text", gemma3, &[]),
    ("Phi3ForCausalLM", "phi3", phi3, &[]),
    ("GraniteForCausalLM", "granite", granite, &[]),
    ("SmolLM3ForCausalLM", "smollm3", smollm3, &[]),
];

const MIXTRAL: Renamed = &[
    ("mlp.gate.", "block_sparse_moe.gate."),
    ("mlp.experts.", "block_sparse_moe.experts."),
    (".gate_proj.", ".w1."),
    (".up_proj.", ".w3."),
    (".down_proj.", ".w2."),
];

/// Reads a model's `config.json`, and where its checkpoint's tensors have other names than a Llama's; `None` where `class`
/// or else `kind` is no decoder that is known here.
pub(super) fn read_spec(
    config: &Fields,
    class: Option<&str>,
    kind: Option<&str>,
) -> Result<Option<(DecoderSpec, Renamed)>, LoadError> {
    let found = ARCHITECTURES.into_iter().find(|(known, model_type, ..)| match class {
        Some(class) => class == *known,
        None => kind == Some(model_type),
    });
    found.map(|(_, _, read, renamed)| Ok((read(config)?, renamed))).transpose()
}

/// Class names of all decoders.
pub(super) fn supported() -> String {
    ARCHITECTURES.map(|(class, ..)| class).join(", ")
}

fn llama(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let attention = config.flag("attention_bias")?.unwrap_or(false);
    let mlp = config.flag("mlp_bias")?.unwrap_or(false);
    Ok(DecoderSpec { bias: Bias { qkv: attention, attention_output: attention, mlp }, ..base(config, None)? })
}

fn mistral(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let mut spec = base(config, None)?;
    let window = config.integer("sliding_window", 1..=MAX_POSITIONS)?;
    spec.layers.fill(LayerSpec { window, ..LayerSpec::PLAIN });
    Ok(spec)
}

fn mixtral(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let mut spec = mistral(config)?;
    spec.layers.iter_mut().for_each(|layer| layer.routed = true);
    spec.experts = Some(experts(config, "num_local_experts", spec.intermediate, true)?);
    Ok(spec)
}

fn qwen2(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let mut spec = base(config, None)?;
    spec.bias.qkv = true;
    qwen_windows(config, &mut spec.layers)?;
    Ok(spec)
}

fn qwen3(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let mut spec = base(config, Some(128))?;
    spec.bias = attention_bias(config)?;
    spec.qk_norm = QkNorm::PerHead;
    qwen_windows(config, &mut spec.layers)?;
    Ok(spec)
}

fn qwen3_moe(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let mut spec = qwen3(config)?;
    let width = config.required_integer("moe_intermediate_size", 1..=MAX_WIDTH)?;
    // The newer spelling is that of Mixtral.
    let count = if config.get("num_experts").is_some() { "num_experts" } else { "num_local_experts" };
    let normalised = config.flag("norm_topk_prob")?.unwrap_or(false);
    spec.experts = Some(experts(config, count, width, normalised)?);
    let step = config.integer("decoder_sparse_step", 1..=MAX_LAYERS)?.unwrap_or(1);
    let dense = config.integers("mlp_only_layers", 0..=MAX_LAYERS)?.unwrap_or_default();
    for (index, layer) in spec.layers.iter_mut().enumerate() {
        layer.routed = (index + 1).is_multiple_of(step) && !dense.contains(&index);
    }
    Ok(spec)
}

fn olmo2(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let mut spec = base(config, None)?;
    spec.bias = attention_bias(config)?;
    spec.norms = NormPlacement::Post;
    spec.qk_norm = QkNorm::Full;
    Ok(spec)
}

/// What both Gemmas have.
fn gemma(config: &Fields, ropes: ReadRopes) -> Result<DecoderSpec, LoadError> {
    let mut spec = base_with(config, Some(256), ropes)?;
    if config.get("hidden_activation").is_none() {
        spec.activation = Activation::GeluTanh;
    }
    spec.bias = attention_bias(config)?;
    spec.norms = NormPlacement::Both;
    spec.norm_offset = 1.0;
    spec.tied = config.flag("tie_word_embeddings")?.unwrap_or(true);
    spec.scales.embedding = (spec.hidden as f32).sqrt();
    let scalar = config.number("query_pre_attn_scalar", MULTIPLIER)?.unwrap_or(256.0);
    spec.attention_scale = scalar.powf(-0.5) as f32;
    spec.attention_cap = config.number("attn_logit_softcapping", MULTIPLIER)?.map(|cap| cap as f32);
    spec.logit_cap = config.number("final_logit_softcapping", MULTIPLIER)?.map(|cap| cap as f32);
    Ok(spec)
}

fn gemma2(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let mut spec = gemma(config, rope::single)?;
    let window = config.integer("sliding_window", 1..=MAX_POSITIONS)?;
    let sliding = sliding_layers(config, spec.layers.len(), |index| index % 2 == 0)?;
    for (layer, sliding) in spec.layers.iter_mut().zip(sliding) {
        layer.window = window.filter(|_| sliding);
    }
    Ok(spec)
}

/// Layers with a window have a rope of their own, the second one.
fn gemma3(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let mut spec = gemma(config, rope::global_and_local)?;
    spec.qk_norm = QkNorm::PerHead;
    let window = config.required_integer("sliding_window", 1..=MAX_POSITIONS)?;
    let pattern = config.integer("sliding_window_pattern", 1..=MAX_LAYERS)?.unwrap_or(6);
    let sliding = sliding_layers(config, spec.layers.len(), |index| !(index + 1).is_multiple_of(pattern))?;
    for (layer, sliding) in spec.layers.iter_mut().zip(sliding) {
        (layer.window, layer.rope) = if sliding { (Some(window), Some(1)) } else { (None, Some(0)) };
    }
    Ok(spec)
}

fn phi3(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let mut spec = mistral(config)?;
    spec.fused = true;
    Ok(spec)
}

fn granite(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let mut spec = llama(config)?;
    let factor = |key| Ok::<f32, LoadError>(config.number(key, MULTIPLIER)?.unwrap_or(1.0) as f32);
    spec.attention_scale = factor("attention_multiplier")?;
    spec.scales = Scales {
        embedding: factor("embedding_multiplier")?,
        residual: factor("residual_multiplier")?,
        logits: 1.0 / factor("logits_scaling")?,
    };
    Ok(spec)
}

fn smollm3(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let mut spec = llama(config)?;
    spec.tied = config.flag("tie_word_embeddings")?.unwrap_or(true);
    qwen_windows(config, &mut spec.layers)?;
    let interval = config.integer("no_rope_layer_interval", 1..=MAX_LAYERS)?.unwrap_or(4);
    // A trap: 1 means that a layer has a rope.
    let flags = config.integers("no_rope_layers", 0..=1)?.filter(|flags| !flags.is_empty());
    if flags.as_ref().is_some_and(|flags| flags.len() != spec.layers.len()) {
        return Err(one_for_each_layer(config, "no_rope_layers", spec.layers.len()));
    }
    for (index, layer) in spec.layers.iter_mut().enumerate() {
        let rotates = flags.as_ref().map_or(!(index + 1).is_multiple_of(interval), |flags| flags[index] == 1);
        layer.rope = rotates.then_some(0);
    }
    Ok(spec)
}

fn attention_bias(config: &Fields) -> Result<Bias, LoadError> {
    let bias = config.flag("attention_bias")?.unwrap_or(false);
    Ok(Bias { qkv: bias, attention_output: bias, mlp: false })
}

fn experts(config: &Fields, count: &str, intermediate: usize, normalised: bool) -> Result<Experts, LoadError> {
    let key = "num_experts_per_tok";
    let (count, per_token) =
        (config.required_integer(count, 1..=MAX_EXPERTS)?, config.required_integer(key, 1..=MAX_EXPERTS)?);
    if per_token > count {
        return Err(config.broken(key, &format!("must be at most the number of experts, {count}")));
    }
    Ok(Experts { count, per_token, intermediate, normalised })
}

/// What the architectures share, as Llama has it. `head_dim` is the default of a missing key; `None`: heads share the
/// hidden width.
fn base(config: &Fields, head_dim: Option<usize>) -> Result<DecoderSpec, LoadError> {
    base_with(config, head_dim, rope::single)
}

fn base_with(config: &Fields, head_dim: Option<usize>, ropes: ReadRopes) -> Result<DecoderSpec, LoadError> {
    let hidden = config.required_integer("hidden_size", 1..=MAX_WIDTH)?;
    let heads = config.required_integer("num_attention_heads", 1..=MAX_HEADS)?;
    let kv_heads = config.integer("num_key_value_heads", 1..=MAX_HEADS)?.unwrap_or(heads);
    if !heads.is_multiple_of(kv_heads) {
        return Err(config.broken("num_key_value_heads", &format!("must divide num_attention_heads, {heads}")));
    }
    let head_dim = match config.integer("head_dim", 2..=MAX_HEAD_DIM)?.or(head_dim) {
        Some(head_dim) => head_dim,
        None if hidden.is_multiple_of(heads) && hidden / heads <= MAX_HEAD_DIM => hidden / heads,
        None => {
            let rule =
                format!("must divide hidden_size, {hidden}, into at most {MAX_HEAD_DIM} each (no head_dim given)");
            return Err(config.broken("num_attention_heads", &rule));
        }
    };
    if !head_dim.is_multiple_of(2) {
        return Err(config.broken("head_dim", &format!("must be even for rotary positions, is {head_dim}")));
    }
    let layers = config.required_integer("num_hidden_layers", 1..=MAX_LAYERS)?;
    let ropes = ropes(config, head_dim)?;
    let context = config.required_integer("max_position_embeddings", 1..=MAX_POSITIONS)?;
    let context = rope::stretched(context, &ropes[0]).min(MAX_POSITIONS);
    Ok(DecoderSpec {
        vocab: config.required_integer("vocab_size", 1..=MAX_VOCAB)?,
        hidden,
        intermediate: config.required_integer("intermediate_size", 1..=MAX_WIDTH)?,
        heads,
        kv_heads,
        head_dim,
        layers: vec![LayerSpec::PLAIN; layers],
        norms: NormPlacement::Pre,
        norm_eps: config.number("rms_norm_eps", 0.0..=1.0)?.unwrap_or(1e-6) as f32,
        norm_offset: 0.0,
        qk_norm: QkNorm::None,
        bias: Bias::default(),
        activation: activation(config)?,
        experts: None,
        fused: false,
        ropes,
        scales: Scales::default(),
        attention_scale: (head_dim as f64).powf(-0.5) as f32,
        attention_cap: None,
        logit_cap: None,
        tied: config.flag("tie_word_embeddings")?.unwrap_or(false),
        max_position_embeddings: context as u32,
    })
}

/// Gemma's key goes before the common one.
fn activation(config: &Fields) -> Result<Activation, LoadError> {
    let key = if config.get("hidden_activation").is_some() { "hidden_activation" } else { "hidden_act" };
    match config.text(key)? {
        None | Some("silu" | "swish") => Ok(Activation::Silu),
        Some("gelu_pytorch_tanh" | "gelu_new") => Ok(Activation::GeluTanh),
        Some("gelu") => Ok(Activation::Gelu),
        Some(_) => Err(config.broken(key, "must be silu, gelu or gelu_pytorch_tanh")),
    }
}

/// Qwen names a window but uses it only with `use_sliding_window`, and then from layer `max_window_layers` on or where
/// `layer_types` says so.
fn qwen_windows(config: &Fields, layers: &mut [LayerSpec]) -> Result<(), LoadError> {
    if !config.flag("use_sliding_window")?.unwrap_or(false) {
        return Ok(());
    }
    let window = config.required_integer("sliding_window", 1..=MAX_POSITIONS)?;
    let full_layers = config.integer("max_window_layers", 0..=MAX_LAYERS)?.unwrap_or(0);
    let sliding = sliding_layers(config, layers.len(), |index| index >= full_layers)?;
    for (layer, sliding) in layers.iter_mut().zip(sliding) {
        layer.window = sliding.then_some(window);
    }
    Ok(())
}

/// Which layers have a window, as `layer_types` says, or else `usually`.
fn sliding_layers(config: &Fields, layers: usize, usually: impl Fn(usize) -> bool) -> Result<Vec<bool>, LoadError> {
    let key = "layer_types";
    let Some(types) = config.texts(key)? else { return Ok((0..layers).map(usually).collect()) };
    if types.len() != layers {
        return Err(one_for_each_layer(config, key, layers));
    }
    let sliding = |kind: &str| match kind {
        "sliding_attention" => Ok(true),
        "full_attention" => Ok(false),
        _ => Err(config.broken(key, "must hold full_attention or sliding_attention")),
    };
    types.into_iter().map(sliding).collect()
}

fn one_for_each_layer(config: &Fields, key: &str, layers: usize) -> LoadError {
    config.broken(key, &format!("must have one entry for each of the {layers} layers"))
}
