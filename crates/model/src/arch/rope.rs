//! Rotary position embedding in `config.json`: the newer `rope_parameters` object, or `rope_theta` beside `rope_scaling`.

use super::limits::{FACTOR, MAX_POSITIONS, THETA};
use crate::files::json::Fields;
use crate::types::error::LoadError;
use crate::types::spec::rope::{Rope, RopeScaling};

const ORIGINAL: &str = "original_max_position_embeddings";
const MAX_POSITION: &str = "max_position_embeddings";
const THETA_KEY: &str = "rope_theta";
const PARTIAL: &str = "partial_rotary_factor";
const DEFAULT_THETA: f64 = 10_000.0;
/// Of scaling factors per pair, and of what rotated numbers are multiplied by.
const DIVISOR: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// The one rope of most models.
pub(super) fn single(config: &Fields, head_dim: usize) -> Result<Vec<Rope>, LoadError> {
    let scaling = config.object("rope_parameters")?.or(config.object("rope_scaling")?);
    Ok(vec![rope(config, scaling.as_ref(), head_dim, DEFAULT_THETA)?])
}

/// Gemma 3's two: of the layers that see everything, and of those with a window, which is never scaled.
pub(super) fn global_and_local(config: &Fields, head_dim: usize) -> Result<Vec<Rope>, LoadError> {
    if let Some(parameters) = config.object("rope_parameters")? {
        let of = |kind: &str, theta| {
            let given = parameters.object(kind)?.ok_or_else(|| parameters.broken(kind, "is missing"))?;
            rope(config, Some(&given), head_dim, theta)
        };
        return Ok(vec![of("full_attention", 1e6)?, of("sliding_attention", DEFAULT_THETA)?]);
    }
    let scaling = config.object("rope_scaling")?;
    let local = config.number("rope_local_base_freq", THETA)?.unwrap_or(DEFAULT_THETA);
    let local = Rope { theta: local, dims: head_dim, scaling: RopeScaling::None };
    Ok(vec![rope(config, scaling.as_ref(), head_dim, 1e6)?, local])
}

/// For how many positions a rope serves, in a model that was trained for `context`.
pub(super) fn stretched(context: usize, rope: &Rope) -> usize {
    match rope.scaling {
        RopeScaling::Dynamic { factor, .. } => (context as f64 * factor) as usize,
        RopeScaling::Yarn { factor, original_context, .. } => context.max((original_context * factor) as usize),
        _ => context,
    }
}

/// `parameters` go before what `config` itself says.
fn rope(config: &Fields, parameters: Option<&Fields>, head_dim: usize, theta: f64) -> Result<Rope, LoadError> {
    let number = |key: &str, range: &std::ops::RangeInclusive<f64>| {
        let given = parameters.map_or(Ok(None), |parameters| parameters.number(key, range.clone()))?;
        Ok::<_, LoadError>(given.or(config.number(key, range.clone())?))
    };
    let theta = number(THETA_KEY, &THETA)?.unwrap_or(theta);
    let share = number(PARTIAL, &(0.0..=1.0))?.unwrap_or(1.0);
    let dims = (head_dim as f64 * share) as usize;
    if dims == 0 || !dims.is_multiple_of(2) {
        let fields = parameters.filter(|parameters| parameters.get(PARTIAL).is_some()).unwrap_or(config);
        return Err(
            fields.broken(PARTIAL, &format!("must leave an even number of the {head_dim} dimensions of a head"))
        );
    }
    let scaling = parameters.map_or(Ok(RopeScaling::None), |parameters| scaling(config, parameters, dims))?;
    Ok(Rope { theta, dims, scaling })
}

fn scaling(config: &Fields, given: &Fields, dims: usize) -> Result<RopeScaling, LoadError> {
    // Older configs say `type`.
    let (key, kind) = match given.text("rope_type")? {
        Some(kind) => ("rope_type", kind),
        None => ("type", given.text("type")?.unwrap_or("default")),
    };
    match kind {
        "default" => {
            // Some architectures nest one object per kind of layer here; taking those for "default" would be wrong.
            let nested = given.keys().find(|key| given.get(key).is_some_and(|value| value.is_object()));
            let rule = "must not be an object: this architecture has one rope for all layers";
            nested.map_or(Ok(RopeScaling::None), |nested| Err(given.broken(nested, rule)))
        }
        "linear" => Ok(RopeScaling::Linear { factor: given.required_number("factor", FACTOR)? }),
        "dynamic" => Ok(RopeScaling::Dynamic {
            factor: given.required_number("factor", FACTOR)?,
            original_context: config.required_integer(MAX_POSITION, 1..=MAX_POSITIONS)? as f64,
        }),
        "llama3" => llama3(given),
        "yarn" => yarn(config, given),
        "longrope" | "su" => longrope(config, given, dims),
        _ => Err(given.broken(key, "must be default, linear, dynamic, llama3, yarn or longrope")),
    }
}

fn llama3(given: &Fields) -> Result<RopeScaling, LoadError> {
    let low_freq_factor = given.required_number("low_freq_factor", 1e-6..=1e6)?;
    let high_freq_factor = given.required_number("high_freq_factor", 1e-6..=1e6)?;
    if high_freq_factor <= low_freq_factor {
        return Err(given.broken("high_freq_factor", &format!("must exceed low_freq_factor, {low_freq_factor}")));
    }
    Ok(RopeScaling::Llama3 {
        factor: given.required_number("factor", FACTOR)?,
        low_freq_factor,
        high_freq_factor,
        original_context: given.required_integer(ORIGINAL, 1..=MAX_POSITIONS)? as f64,
    })
}

/// What was trained for: the scaling's own word, the model's, or all positions.
fn original(config: &Fields, given: &Fields) -> Result<usize, LoadError> {
    let range = 1..=MAX_POSITIONS;
    let own = given.integer(ORIGINAL, range.clone())?.or(config.integer(ORIGINAL, range.clone())?);
    own.map_or_else(|| config.required_integer(MAX_POSITION, range), Ok)
}

fn yarn(config: &Fields, given: &Fields) -> Result<RopeScaling, LoadError> {
    let original_context = original(config, given)? as f64;
    let factor = match given.number("factor", FACTOR)? {
        Some(factor) => factor,
        None => (config.required_integer(MAX_POSITION, 1..=MAX_POSITIONS)? as f64 / original_context).max(1.0),
    };
    let number = |key: &str| given.number(key, 0.0..=1e6);
    let scale = |mscale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 };
    let attention = match (number("attention_factor")?, number("mscale")?, number("mscale_all_dim")?) {
        (Some(attention), ..) => attention,
        // Zero counts as not given.
        (None, Some(all), Some(keys)) if all > 0.0 && keys > 0.0 => scale(all) / scale(keys),
        _ => scale(1.0),
    };
    Ok(RopeScaling::Yarn {
        factor,
        original_context,
        beta_fast: given.number("beta_fast", DIVISOR)?.unwrap_or(32.0),
        beta_slow: given.number("beta_slow", DIVISOR)?.unwrap_or(1.0),
        truncate: given.flag("truncate")?.unwrap_or(true),
        attention,
    })
}

fn longrope(config: &Fields, given: &Fields, dims: usize) -> Result<RopeScaling, LoadError> {
    let divisors = |key: &str| {
        let list = given.numbers(key, DIVISOR)?.ok_or_else(|| given.broken(key, "is missing"))?;
        if list.len() != dims / 2 {
            let rule = format!("must have one number for each of the {} rotated pairs, has {}", dims / 2, list.len());
            return Err(LoadError::Key { path: config.path().to_path_buf(), key: given.full(key), rule });
        }
        Ok(list.into_iter().map(|divisor| divisor as f32).collect::<Vec<f32>>())
    };
    let original_context = original(config, given)?;
    let context = config.required_integer(MAX_POSITION, 1..=MAX_POSITIONS)?;
    let factor = match given.number("factor", FACTOR)? {
        // Where the model itself says what it was trained for, the ratio goes before the factor.
        Some(factor) if config.get(ORIGINAL).is_none() => factor,
        _ => context as f64 / original_context as f64,
    };
    let usual = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original_context as f64).ln()).sqrt() };
    Ok(RopeScaling::LongRope {
        short: divisors("short_factor")?,
        long: divisors("long_factor")?,
        original_context: original_context as u32,
        attention: given.number("attention_factor", DIVISOR)?.unwrap_or(usual),
    })
}
