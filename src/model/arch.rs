//! `config.json` to [`DecoderSpec`]: one short function per architecture, over what they all share.
//!
//! To add one: a row in [`ARCHITECTURES`], a function of about ten lines, its golden logits.

use std::ops::RangeInclusive;

use super::error::LoadError;
use super::json::Fields;
use super::spec::{Activation, Bias, DecoderSpec, LayerSpec, NormPlacement, QkNorm, Rope, RopeScaling};

type Read = fn(&Fields) -> Result<DecoderSpec, LoadError>;

/// Class name in `architectures`, name in `model_type`, reader.
const ARCHITECTURES: [(&str, &str, Read); 5] = [
    ("LlamaForCausalLM", "llama", llama),
    ("MistralForCausalLM", "mistral", mistral),
    ("Qwen2ForCausalLM", "qwen2", qwen2),
    ("Qwen3ForCausalLM", "qwen3", qwen3),
    ("Olmo2ForCausalLM", "olmo2", olmo2),
];

// Far beyond any published model, small enough that products of any three fit a u64.
pub(super) const MAX_WIDTH: usize = 1 << 20;
pub(super) const MAX_VOCAB: usize = 1 << 24;
pub(super) const MAX_LAYERS: usize = 4096;
pub(super) const MAX_HEADS: usize = 4096;
pub(super) const MAX_HEAD_DIM: usize = 4096;
pub(super) const MAX_POSITIONS: usize = 1 << 28;
pub(super) const FACTOR: RangeInclusive<f64> = 1.0..=1e6;
pub(super) const THETA: RangeInclusive<f64> = 1.0..=1e15;

/// Reads a model's `config.json`.
pub(super) fn read_spec(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let class = class(config)?;
    let kind = config.text("model_type")?;
    let row = ARCHITECTURES.iter().find(|(known, model_type, _)| match class {
        Some(class) => class == *known,
        None => kind == Some(model_type),
    });
    let Some((_, _, read)) = row else {
        return Err(LoadError::Architecture {
            path: config.path().to_path_buf(),
            found: class.or(kind).unwrap_or("(not given)").to_string(),
            supported: ARCHITECTURES.map(|(class, ..)| class).join(", "),
        });
    };
    if config.get("quantization_config").is_some() {
        return Err(config.broken("quantization_config", "must be absent: quantised checkpoints are not supported"));
    }
    read(config)
}

/// What the model calls its architecture, supported or not.
pub(super) fn name(config: &Fields) -> Result<Option<&str>, LoadError> {
    Ok(class(config)?.or(config.text("model_type")?))
}

fn class(config: &Fields) -> Result<Option<&str>, LoadError> {
    Ok(config.texts("architectures")?.and_then(|classes| classes.first().copied()))
}

fn llama(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let attention = config.flag("attention_bias")?.unwrap_or(false);
    let mlp = config.flag("mlp_bias")?.unwrap_or(false);
    Ok(DecoderSpec { bias: Bias { qkv: attention, attention_output: attention, mlp }, ..base(config, None)? })
}

fn mistral(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let mut spec = base(config, None)?;
    let window = config.integer("sliding_window", 1..=MAX_POSITIONS)?;
    spec.layers.fill(LayerSpec { window });
    Ok(spec)
}

fn qwen2(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let mut spec = base(config, None)?;
    spec.bias.qkv = true;
    qwen_windows(config, &mut spec.layers)?;
    Ok(spec)
}

fn qwen3(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let bias = config.flag("attention_bias")?.unwrap_or(false);
    let mut spec = base(config, Some(128))?;
    spec.bias = Bias { qkv: bias, attention_output: bias, mlp: false };
    spec.qk_norm = QkNorm::PerHead;
    qwen_windows(config, &mut spec.layers)?;
    Ok(spec)
}

fn olmo2(config: &Fields) -> Result<DecoderSpec, LoadError> {
    let bias = config.flag("attention_bias")?.unwrap_or(false);
    let mut spec = base(config, None)?;
    spec.bias = Bias { qkv: bias, attention_output: bias, mlp: false };
    spec.norms = NormPlacement::Post;
    spec.qk_norm = QkNorm::Full;
    Ok(spec)
}

/// What the architectures share, as Llama has it. `head_dim` is the default of a missing key; `None`: heads share the
/// hidden width.
fn base(config: &Fields, head_dim: Option<usize>) -> Result<DecoderSpec, LoadError> {
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
    Ok(DecoderSpec {
        vocab: config.required_integer("vocab_size", 1..=MAX_VOCAB)?,
        hidden,
        intermediate: config.required_integer("intermediate_size", 1..=MAX_WIDTH)?,
        heads,
        kv_heads,
        head_dim,
        layers: vec![LayerSpec { window: None }; layers],
        norms: NormPlacement::Pre,
        norm_eps: config.number("rms_norm_eps", 0.0..=1.0)?.unwrap_or(1e-6) as f32,
        qk_norm: QkNorm::None,
        bias: Bias::default(),
        activation: activation(config)?,
        rope: rope(config)?,
        attention_scale: (head_dim as f64).powf(-0.5) as f32,
        tied: config.flag("tie_word_embeddings")?.unwrap_or(false),
        max_position_embeddings: config.required_integer("max_position_embeddings", 1..=MAX_POSITIONS)? as u32,
    })
}

fn activation(config: &Fields) -> Result<Activation, LoadError> {
    match config.text("hidden_act")? {
        None | Some("silu" | "swish") => Ok(Activation::Silu),
        Some(_) => Err(config.broken("hidden_act", "must be silu")),
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
    let types = config.texts("layer_types")?;
    if types.as_ref().is_some_and(|types| types.len() != layers.len()) {
        return Err(
            config.broken("layer_types", &format!("must have one entry for each of the {} layers", layers.len()))
        );
    }
    for (index, layer) in layers.iter_mut().enumerate() {
        let sliding = match types.as_ref().map(|types| types[index]) {
            None => index >= full_layers,
            Some("sliding_attention") => true,
            Some("full_attention") => false,
            Some(_) => return Err(config.broken("layer_types", "must hold full_attention or sliding_attention")),
        };
        layer.window = sliding.then_some(window);
    }
    Ok(())
}

/// Both spellings: the newer `rope_parameters` object, or `rope_theta` beside `rope_scaling`.
fn rope(config: &Fields) -> Result<Rope, LoadError> {
    let parameters = config.object("rope_parameters")?;
    let theta = match &parameters {
        Some(parameters) => parameters.number("rope_theta", THETA)?,
        None => None,
    };
    let theta = theta.or(config.number("rope_theta", THETA)?).unwrap_or(10_000.0);
    let scaling = parameters.or(config.object("rope_scaling")?);
    for fields in [Some(config), scaling.as_ref()].into_iter().flatten() {
        if fields.number("partial_rotary_factor", 0.0..=1.0)?.is_some_and(|share| share != 1.0) {
            return Err(fields.broken("partial_rotary_factor", "must be 1: partial rotation is not supported"));
        }
    }
    Ok(Rope { theta, scaling: scaling.as_ref().map_or(Ok(RopeScaling::None), rope_scaling)? })
}

fn rope_scaling(scaling: &Fields) -> Result<RopeScaling, LoadError> {
    // Older configs say `type`.
    let (key, kind) = match scaling.text("rope_type")? {
        Some(kind) => ("rope_type", kind),
        None => ("type", scaling.text("type")?.unwrap_or("default")),
    };
    Ok(match kind {
        "default" => {
            // Some architectures nest one object per kind of layer here; taking those for "default" would be wrong.
            if let Some(nested) = scaling.keys().find(|key| scaling.get(key).is_some_and(|value| value.is_object())) {
                return Err(
                    scaling.broken(nested, "must not be an object: one rope per kind of layer is not supported")
                );
            }
            RopeScaling::None
        }
        "linear" => RopeScaling::Linear { factor: scaling.required_number("factor", FACTOR)? },
        "llama3" => {
            let low_freq_factor = scaling.required_number("low_freq_factor", 1e-6..=1e6)?;
            let high_freq_factor = scaling.required_number("high_freq_factor", 1e-6..=1e6)?;
            if high_freq_factor <= low_freq_factor {
                return Err(
                    scaling.broken("high_freq_factor", &format!("must exceed low_freq_factor, {low_freq_factor}"))
                );
            }
            let original = "original_max_position_embeddings";
            RopeScaling::Llama3 {
                factor: scaling.required_number("factor", FACTOR)?,
                low_freq_factor,
                high_freq_factor,
                original_context: scaling.required_integer(original, 1..=MAX_POSITIONS)? as f64,
            }
        }
        _ => return Err(scaling.broken(key, "must be default, linear or llama3")),
    })
}

#[cfg(test)]
#[path = "arch_tests.rs"]
mod tests;
