//! What changes a row of logits before a token is drawn from it: penalties, biases, tokens that may not come yet.

use std::sync::Arc;

use super::check::{check_tokens, integer, number};
use super::{Limits, RequestError};
use crate::units::TokenId;

/// As a route heard it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawShaping {
    pub presence_penalty: Option<f64>,
    pub frequency_penalty: Option<f64>,
    pub repetition_penalty: Option<f64>,
    /// The name under which the route heard `repetition_penalty`.
    pub repetition_param: &'static str,
    pub logit_bias: Vec<(i64, f64)>,
    pub min_tokens: Option<i64>,
}

/// In range. The neutral values change no bit of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Shaping {
    /// Taken off the logit of each token of the completion so far, once. 0 is off.
    pub presence: f32,
    /// Taken off for each time that the token has come. 0 is off.
    pub frequency: f32,
    /// Divides positive logits and multiplies negative ones of all tokens of prompt and completion (Keskar et al., "CTRL",
    /// 2019). 1 is off.
    pub repetition: f32,
    /// Added to these tokens' logits; each token once, in ascending order.
    pub bias: Arc<[(TokenId, f32)]>,
    /// Tokens that must come before one may end the completion.
    pub min_tokens: u32,
    pub thinking: Option<ThinkingBudget>,
}

/// The tokens around a model's thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinkingTags {
    pub open: TokenId,
    pub close: TokenId,
    /// The prompt ended inside the block.
    pub begins_open: bool,
}

/// How long a model may think: when its block has `max_tokens` tokens, the next one closes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinkingBudget {
    pub max_tokens: u32,
    pub tags: ThinkingTags,
}

impl ThinkingBudget {
    /// What may come before a block in an answer is white space: so many tokens of it.
    const MAX_BEFORE: usize = 4;

    /// Whether the completion, so far `drawn`, has thought long enough.
    pub fn is_spent(&self, drawn: &[TokenId]) -> bool {
        let ThinkingTags { open, close, begins_open } = self.tags;
        let opened = || drawn.iter().take(ThinkingBudget::MAX_BEFORE).position(|&token| token == open);
        let start = if begins_open { Some(0) } else { opened().map(|at| at + 1) };
        let Some(start) = start else { return false };
        let block = &drawn[start..];
        let max = self.max_tokens as usize;
        // A block that was closed by force has its close tag right after its last allowed token.
        block.len() >= max && !block.iter().take(max + 1).any(|&token| token == close)
    }
}

impl Shaping {
    pub fn neutral() -> Shaping {
        Shaping { presence: 0.0, frequency: 0.0, repetition: 1.0, bias: Arc::default(), min_tokens: 0, thinking: None }
    }

    /// Whether it changes the row from which the `drawn`-th token of the completion comes, counted from 0.
    pub fn changes(&self, drawn: usize) -> bool {
        self.remembers() || !self.bias.is_empty() || drawn < self.min_tokens as usize
    }

    /// Whether the tokens seen so far matter.
    pub fn remembers(&self) -> bool {
        self.presence != 0.0 || self.frequency != 0.0 || self.repetition != 1.0 || self.thinking.is_some()
    }
}

impl RawShaping {
    pub(super) fn check(&self, limits: &Limits) -> Result<Shaping, RequestError> {
        let repetition_param =
            if self.repetition_param.is_empty() { "repetition_penalty" } else { self.repetition_param };
        let min_tokens = integer("min_tokens", self.min_tokens, 0, limits.max_model_len.into())?.unwrap_or(0) as u32;
        let repetition = self.repetition_penalty.or(limits.defaults.repetition_penalty);
        Ok(Shaping {
            presence: number("presence_penalty", self.presence_penalty, -2.0, 2.0)?.unwrap_or(0.0),
            frequency: number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)?.unwrap_or(0.0),
            repetition: number(repetition_param, repetition, 0.01, 10.0)?.unwrap_or(1.0),
            bias: self.bias(limits)?,
            min_tokens,
            thinking: None,
        })
    }

    fn bias(&self, limits: &Limits) -> Result<Arc<[(TokenId, f32)]>, RequestError> {
        const PARAM: &str = "logit_bias";
        if self.logit_bias.len() > limits.max_logit_bias {
            let message =
                format!("has {} entries, at most {} are allowed", self.logit_bias.len(), limits.max_logit_bias);
            return Err(RequestError::invalid(PARAM, message));
        }
        let ids: Vec<i64> = self.logit_bias.iter().map(|(id, _)| *id).collect();
        let ids = check_tokens(PARAM, &ids, limits.max_logit_bias, limits)?;
        let mut bias = Vec::with_capacity(ids.len());
        for (id, (_, value)) in ids.into_iter().zip(&self.logit_bias) {
            bias.push((id, number(PARAM, Some(*value), -100.0, 100.0)?.unwrap_or(0.0)));
        }
        bias.sort_unstable_by_key(|(id, _)| *id);
        if let Some(twice) = bias.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(RequestError::invalid(PARAM, format!("names token {} twice", twice[0].0)));
        }
        Ok(bias.into())
    }
}
