//! Metadata to [`DecoderSpec`], beside [`crate::model::arch`] for `config.json`.

use super::Gguf;
use super::keys::Keys;
use crate::kernels::packed::{self, Packing};
use crate::model::arch::{FACTOR, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_POSITIONS, MAX_VOCAB, MAX_WIDTH, THETA};
use crate::model::error::{LoadError, TensorRule};
use crate::model::spec::{Activation, Bias, DecoderSpec, LayerSpec, NormPlacement, QkNorm, Rope, RopeScaling};
use crate::request::Pooling;

type Adapt = fn(&mut DecoderSpec, &Gguf) -> Result<(), LoadError>;

/// `general.architecture`, and in what it differs from the common base.
const ARCHITECTURES: [(&str, Adapt); 3] = [("llama", llama), ("qwen2", qwen2), ("qwen3", qwen3)];

/// Ours: llama.cpp has no key for the window of a Mistral, which it calls `llama` and lets see everything.
const WINDOW: &str = "forebay.attention.sliding_window";
/// Llama 3's scaling, ready to use: what to divide each pair's frequency by.
const ROPE_DIVISORS: &str = "rope_freqs.weight";

/// `general.architecture`.
pub(in crate::model) fn architecture(file: &Gguf) -> Result<&str, LoadError> {
    let key = "general.architecture";
    file.keys().text(key)?.ok_or_else(|| file.keys().broken(key, "is missing"))
}

pub(in crate::model) fn read_spec(file: &Gguf) -> Result<DecoderSpec, LoadError> {
    let found = architecture(file)?;
    let Some(&(name, adapt)) = ARCHITECTURES.iter().find(|(name, _)| *name == found) else {
        return Err(LoadError::Architecture {
            path: file.path().to_path_buf(),
            found: found.chars().take(60).collect(),
            supported: ARCHITECTURES.map(|(name, _)| name).join(", "),
        });
    };
    let mut spec = base(file, &Prefixed { keys: file.keys(), architecture: name })?;
    adapt(&mut spec, file)?;
    Ok(spec)
}

/// How hidden states are pooled, where the file says it: llama.cpp's numbers.
pub(in crate::model) fn read_pooling(file: &Gguf) -> Result<Option<Pooling>, LoadError> {
    let key = format!("{}.pooling_type", architecture(file)?);
    Ok(match file.keys().integer(&key, 0..=4)? {
        Some(1) => Some(Pooling::Mean),
        Some(2) => Some(Pooling::Cls),
        Some(3) => Some(Pooling::Last),
        // None, or a rank, for which it needs another head.
        _ => None,
    })
}

/// Llama, and Mistral with its window.
fn llama(spec: &mut DecoderSpec, file: &Gguf) -> Result<(), LoadError> {
    let window = file.keys().integer(WINDOW, 1..=MAX_POSITIONS)?;
    spec.layers.fill(LayerSpec { window });
    let has = |tensor: &str| file.tensor(tensor).is_some();
    spec.bias = Bias {
        qkv: has("blk.0.attn_q.bias"),
        attention_output: has("blk.0.attn_output.bias"),
        mlp: has("blk.0.ffn_gate.bias"),
    };
    Ok(())
}

fn qwen2(spec: &mut DecoderSpec, _file: &Gguf) -> Result<(), LoadError> {
    spec.bias.qkv = true;
    Ok(())
}

fn qwen3(spec: &mut DecoderSpec, _file: &Gguf) -> Result<(), LoadError> {
    spec.qk_norm = QkNorm::PerHead;
    Ok(())
}

/// Keys that begin with the architecture's name.
struct Prefixed<'a> {
    keys: Keys<'a>,
    architecture: &'static str,
}

impl Prefixed<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn integer(&self, name: &str, limit: usize) -> Result<Option<usize>, LoadError> {
        self.keys.integer(&self.key(name), 1..=limit)
    }

    fn required(&self, name: &str, limit: usize) -> Result<usize, LoadError> {
        self.keys.required_integer(&self.key(name), 1..=limit)
    }

    fn broken(&self, name: &str, rule: &str) -> LoadError {
        self.keys.broken(&self.key(name), rule)
    }
}

/// What the architectures share.
fn base(file: &Gguf, keys: &Prefixed) -> Result<DecoderSpec, LoadError> {
    if keys.keys.integer(&keys.key("expert_count"), 0..=usize::MAX)?.is_some_and(|experts| experts > 0) {
        return Err(keys.broken("expert_count", "must be 0: mixtures of experts are not supported"));
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
    Ok(DecoderSpec {
        vocab: vocab(file, keys)?,
        hidden,
        intermediate: keys.required("feed_forward_length", MAX_WIDTH)?,
        heads,
        kv_heads,
        head_dim,
        layers: vec![LayerSpec { window: None }; layers],
        norms: NormPlacement::Pre,
        norm_eps: norm_eps as f32,
        qk_norm: QkNorm::None,
        bias: Bias::default(),
        activation: Activation::Silu,
        rope: rope(file, keys, head_dim)?,
        attention_scale: (head_dim as f64).powf(-0.5) as f32,
        tied: file.tensor("output.weight").is_none(),
        max_position_embeddings: keys.required("context_length", MAX_POSITIONS)? as u32,
    })
}

/// `attention.key_length`, or else an equal share of the hidden width. Values are as wide, and all of it is rotated.
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
    for same in ["attention.value_length", "rope.dimension_count"] {
        if keys.integer(same, usize::MAX)?.is_some_and(|width| width != head_dim) {
            return Err(keys.broken(same, &format!("must be the width of a head, {head_dim}")));
        }
    }
    Ok(head_dim)
}

/// The number of tokens, as llama.cpp has it; `vocab_size` serves files without a tokenizer.
fn vocab(file: &Gguf, keys: &Prefixed) -> Result<usize, LoadError> {
    let declared = keys.integer("vocab_size", MAX_VOCAB)?;
    match super::vocab::token_count(&file.keys())?.or(declared) {
        Some(count) if count <= MAX_VOCAB => Ok(count),
        _ => Err(keys.broken("vocab_size", "is missing, and so is tokenizer.ggml.tokens")),
    }
}

fn rope(file: &Gguf, keys: &Prefixed, head_dim: usize) -> Result<Rope, LoadError> {
    let theta = keys.keys.number(&keys.key("rope.freq_base"), THETA)?.unwrap_or(10_000.0);
    let divisors = rope_divisors(file, head_dim)?;
    let kind = keys.key("rope.scaling.type");
    let factor = || keys.keys.number(&keys.key("rope.scaling.factor"), FACTOR);
    // Older files have a factor without a type.
    let linear = match keys.keys.text(&kind)? {
        None => keys.keys.number(&keys.key("rope.scale_linear"), FACTOR)?,
        Some("none") => None,
        Some("linear") => Some(factor()?.ok_or_else(|| keys.broken("rope.scaling.factor", "is missing"))?),
        Some(_) => return Err(keys.keys.broken(&kind, "must be none or linear")),
    };
    let scaling = match (divisors, linear) {
        (Some(divisors), _) => RopeScaling::Divisors(divisors),
        (None, Some(factor)) => RopeScaling::Linear { factor },
        (None, None) => RopeScaling::None,
    };
    Ok(Rope { theta, scaling })
}

fn rope_divisors(file: &Gguf, head_dim: usize) -> Result<Option<Vec<f32>>, LoadError> {
    let Some(tensor) = file.tensor(ROPE_DIVISORS) else { return Ok(None) };
    let fault = |rule| file.fault(ROPE_DIVISORS, rule);
    if tensor.shape != [head_dim / 2] {
        return Err(fault(TensorRule::Shape { expected: vec![head_dim / 2], found: tensor.shape.clone() }));
    }
    if tensor.kind.packing != Some(Packing::F32) {
        return Err(fault(TensorRule::Dtype { found: tensor.kind.name.to_string() }));
    }
    let mut divisors = vec![0.0; head_dim / 2];
    packed::unpack(Packing::F32, &file.bytes[tensor.bytes.clone()], &mut divisors);
    match divisors.iter().find(|&&divisor| !(divisor > 0.0 && divisor.is_finite())) {
        Some(&found) => Err(fault(TensorRule::Divisor { found })),
        None => Ok(Some(divisors)),
    }
}
