//! A model's description to its [`Spec`]: what `config.json` says, and what the keys of a GGUF file say.
//!
//! An architecture is data: a row in a table and a short function over what all share. Knows no weights and no backend.
//!
//! ```text
//! config.json ─▶ read_spec ┬▶ decoder (rope) ─┬▶ Spec          every number checked against limits
//!                          └▶ encoder ────────┤
//! GGUF keys ──▶ gguf/decoder (prefixed, rope) ┘
//! ```

mod decoder;
mod encoder;
pub(crate) mod gguf;
mod limits;
mod rope;

use crate::files::json::Fields;
use crate::files::names::Renamed;
use crate::types::error::LoadError;
use crate::types::spec::Spec;

/// Reads a model's `config.json`, and where its checkpoint's tensors have other names than a Llama's or a BERT's.
pub(crate) fn read_spec(config: &Fields) -> Result<(Spec, Renamed), LoadError> {
    if config.get("quantization_config").is_some() {
        return Err(config.broken("quantization_config", "must be absent: quantised checkpoints are not supported"));
    }
    let (class, kind) = (class(config)?, config.text("model_type")?);
    if let Some((spec, renamed)) = encoder::read_spec(config, class, kind)? {
        return Ok((Spec::Encoder(spec), renamed));
    }
    if let Some((spec, renamed)) = decoder::read_spec(config, class, kind)? {
        return Ok((Spec::Decoder(spec), renamed));
    }
    Err(LoadError::Architecture {
        path: config.path().to_path_buf(),
        found: class.or(kind).unwrap_or("(not given)").to_string(),
        supported: format!("{}, {}", decoder::supported(), encoder::supported()),
    })
}

/// What the model calls its architecture, supported or not.
pub(crate) fn name(config: &Fields) -> Result<Option<&str>, LoadError> {
    Ok(class(config)?.or(config.text("model_type")?))
}

fn class(config: &Fields) -> Result<Option<&str>, LoadError> {
    Ok(config.texts("architectures")?.and_then(|classes| classes.first().copied()))
}

#[cfg(test)]
mod tests;
