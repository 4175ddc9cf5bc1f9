//! What a folder's files say about completions: which tokens end one, and how tokens are drawn.

use serde_json::Value;

use crate::files::json::Fields;
use crate::types::error::LoadError;
use forebay_core::request::Defaults;
use forebay_core::units::TokenId;

/// The keys that vLLM takes from `generation_config.json` too, in the ranges that requests have.
pub(super) fn drawing(fields: &Fields) -> Result<Defaults, LoadError> {
    Ok(Defaults {
        temperature: fields.number("temperature", 0.0..=2.0)?,
        top_p: fields.number("top_p", 0.0..=1.0)?,
        // Some files write -1 for "off".
        top_k: fields.number("top_k", -1.0..=f64::from(u32::MAX))?.map(|k| k as i64),
        min_p: fields.number("min_p", 0.0..=1.0)?,
        typical_p: fields.number("typical_p", 0.0..=1.0)?,
        repetition_penalty: fields.number("repetition_penalty", 0.01..=10.0)?,
    })
}

/// `eos_token_id`: a token, or a list of them.
pub(super) fn eos_tokens(fields: &Fields, vocab: usize) -> Result<Vec<TokenId>, LoadError> {
    let list = match fields.get("eos_token_id") {
        None => &[][..],
        Some(Value::Array(list)) => list,
        Some(one) => std::slice::from_ref(one),
    };
    let token = |value: &Value| value.as_u64().filter(|&token| token < vocab as u64).map(|token| token as TokenId);
    let tokens = list.iter().map(token).collect::<Option<Vec<_>>>();
    tokens.ok_or_else(|| fields.broken("eos_token_id", &format!("must be token ids below vocab_size, {vocab}")))
}
