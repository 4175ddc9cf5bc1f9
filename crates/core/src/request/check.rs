//! A value as JSON had it, checked against what is allowed.

use super::{Limits, RequestError};
use crate::units::TokenId;

/// Token ids from outside, each checked against the width of the logits.
pub fn check_tokens(
    param: &'static str,
    tokens: &[i64],
    max_len: usize,
    limits: &Limits,
) -> Result<Vec<TokenId>, RequestError> {
    if tokens.len() > max_len {
        return Err(RequestError::invalid(
            param,
            format!("has {} entries, at most {max_len} are allowed", tokens.len()),
        ));
    }
    let in_range = |&token: &i64| {
        u32::try_from(token).ok().filter(|&token| token < limits.vocab_size).ok_or_else(|| {
            let last = limits.vocab_size - 1;
            RequestError::invalid(param, format!("token id {token} is outside the vocabulary (0 to {last})"))
        })
    };
    tokens.iter().map(in_range).collect()
}

/// Whether a prompt of so many tokens fits.
pub fn check_prompt_length(prompt: usize, limits: &Limits) -> Result<(), RequestError> {
    if prompt == 0 {
        return Err(RequestError::EmptyPrompt);
    }
    if prompt > limits.longest_prompt() as usize {
        return Err(limits.too_long(prompt));
    }
    Ok(())
}

pub(super) fn integer(
    param: &'static str,
    value: Option<i64>,
    min: i64,
    max: i64,
) -> Result<Option<i64>, RequestError> {
    match value {
        Some(n) if max == i64::MAX && n < min => {
            Err(RequestError::invalid(param, format!("must be at least {min}, got {n}")))
        }
        Some(n) if !(min..=max).contains(&n) => {
            Err(RequestError::invalid(param, format!("must be between {min} and {max}, got {n}")))
        }
        other => Ok(other),
    }
}

pub(super) fn number(param: &'static str, value: Option<f64>, min: f64, max: f64) -> Result<Option<f32>, RequestError> {
    match value {
        // Written so that NaN fails too.
        Some(x) if !(x >= min && x <= max) => {
            Err(RequestError::invalid(param, format!("must be between {min} and {max}, got {x}")))
        }
        other => Ok(other.map(|x| x as f32)),
    }
}
