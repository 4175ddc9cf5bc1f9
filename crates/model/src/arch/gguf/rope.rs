//! Rotary position embedding in the metadata, and in the tensors that hold what to divide frequencies by.

use super::prefixed::Prefixed;
use crate::arch::limits::{FACTOR, MAX_HEAD_DIM, MAX_POSITIONS, THETA};
use crate::types::error::{LoadError, TensorRule};
use crate::types::spec::rope::{Rope, RopeScaling};
use forebay_kernels::packed::{self, Packing};

/// Llama 3's scaling, ready to use.
const DIVISORS: &str = "rope_freqs.weight";
const LONG: &str = "rope_factors_long.weight";
const SHORT: &str = "rope_factors_short.weight";
const DEFAULT_THETA: f64 = 10_000.0;

/// Of the layers that see everything, mostly all of them.
pub(super) fn global(keys: &Prefixed, head_dim: usize) -> Result<Rope, LoadError> {
    let theta = keys.keys.number(&keys.key("rope.freq_base"), THETA)?.unwrap_or(DEFAULT_THETA);
    let dims = dims(keys, head_dim)?;
    let long = (divisors(keys, SHORT, dims)?, divisors(keys, LONG, dims)?);
    let scaling = match (divisors(keys, DIVISORS, dims)?, long) {
        (Some(divisors), _) => RopeScaling::Divisors(divisors),
        (None, (Some(short), Some(long))) => RopeScaling::LongRope {
            short,
            long,
            original_context: original_context(keys)? as u32,
            attention: attention(keys)?,
        },
        (None, _) => scaling(keys)?,
    };
    Ok(Rope { theta, dims, scaling })
}

/// Of Gemma 3's layers with a window.
pub(super) fn local(keys: &Prefixed, head_dim: usize) -> Result<Rope, LoadError> {
    let theta = keys.keys.number(&keys.key("rope.freq_base_swa"), THETA)?.unwrap_or(DEFAULT_THETA);
    Ok(Rope { theta, dims: head_dim, scaling: RopeScaling::None })
}

/// How much of a head is rotated: all, but for Phi-3, which may leave some.
fn dims(keys: &Prefixed, head_dim: usize) -> Result<usize, LoadError> {
    let name = "rope.dimension_count";
    let dims = keys.integer(name, MAX_HEAD_DIM)?.unwrap_or(head_dim);
    let rule = match keys.architecture {
        "phi3" if dims <= head_dim && dims.is_multiple_of(2) => return Ok(dims),
        "phi3" => format!("must be even and at most the width of a head, {head_dim}"),
        _ if dims == head_dim => return Ok(dims),
        _ => format!("must be the width of a head, {head_dim}"),
    };
    Err(keys.broken(name, &rule))
}

fn original_context(keys: &Prefixed) -> Result<usize, LoadError> {
    let original = keys.integer("rope.scaling.original_context_length", MAX_POSITIONS)?;
    original.map_or_else(|| keys.required("context_length", MAX_POSITIONS), Ok)
}

/// What the file has rotated queries and keys multiplied by, beyond what a kind of scaling does itself.
fn attention(keys: &Prefixed) -> Result<f64, LoadError> {
    Ok(f64::from(keys.factor("rope.scaling.attn_factor")?.unwrap_or(1.0)))
}

fn scaling(keys: &Prefixed) -> Result<RopeScaling, LoadError> {
    let factor = || {
        let factor = keys.keys.number(&keys.key("rope.scaling.factor"), FACTOR)?;
        factor.ok_or_else(|| keys.broken("rope.scaling.factor", "is missing"))
    };
    let kind = keys.key("rope.scaling.type");
    match keys.keys.text(&kind)? {
        // Older files have a factor without a type.
        None => {
            let factor = keys.keys.number(&keys.key("rope.scale_linear"), FACTOR)?;
            Ok(factor.map_or(RopeScaling::None, |factor| RopeScaling::Linear { factor }))
        }
        Some("none") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear { factor: factor()? }),
        Some("yarn") => {
            let factor = factor()?;
            let beta = |name: &str, usual: f32| Ok::<_, LoadError>(f64::from(keys.factor(name)?.unwrap_or(usual)));
            Ok(RopeScaling::Yarn {
                factor,
                original_context: original_context(keys)? as f64,
                beta_fast: beta("rope.scaling.yarn_beta_fast", 32.0)?,
                beta_slow: beta("rope.scaling.yarn_beta_slow", 1.0)?,
                truncate: true,
                attention: (0.1 * factor.ln() + 1.0) * attention(keys)?,
            })
        }
        Some("longrope") => Err(keys.broken("rope.scaling.type", "needs the tensors rope_factors_short and _long")),
        Some(_) => Err(keys.keys.broken(&kind, "must be none, linear, yarn or longrope")),
    }
}

/// A tensor with one number for each rotated pair.
fn divisors(keys: &Prefixed, name: &str, dims: usize) -> Result<Option<Vec<f32>>, LoadError> {
    let Some(tensor) = keys.file.tensor(name) else { return Ok(None) };
    let fault = |rule| keys.file.fault(name, rule);
    if tensor.shape != [dims / 2] {
        return Err(fault(TensorRule::Shape { expected: vec![dims / 2], found: tensor.shape.clone() }));
    }
    if tensor.kind.packing != Some(Packing::F32) {
        return Err(fault(TensorRule::Dtype { found: tensor.kind.name.to_string() }));
    }
    let mut divisors = vec![0.0; dims / 2];
    packed::unpack(Packing::F32, &keys.file.bytes[tensor.bytes.clone()], &mut divisors);
    match divisors.iter().find(|&&divisor| !(divisor > 0.0 && divisor.is_finite())) {
        Some(&found) => Err(fault(TensorRule::Divisor { found })),
        None => Ok(Some(divisors)),
    }
}
