//! What a client asks of the engine, as wide as JSON's numbers are, and the checks that need no tokenizer.

use crate::units::Micros;

use super::check::{check_tokens, integer, number};
use super::checked::Truncated;
use super::{CacheUse, Checked, Goal, Limits, Origin, Priority, RawShaping, RequestError, SamplingParams};

/// A salt is kept with each first block of its requests.
pub const MAX_SALT_BYTES: usize = 128;

/// Parameters of a client's request before any limit is checked. Numbers are as wide as JSON's.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    pub goal: Goal,
    /// A `max_tokens` beyond the context is refused instead of clamped.
    pub strict: bool,
    pub max_tokens: Option<i64>,
    /// The name under which the route knows `max_tokens`, for error messages.
    pub max_tokens_param: &'static str,
    /// Used when `max_tokens` is absent; `None` means the rest of the context.
    pub default_max_tokens: Option<u32>,
    pub n: Option<i64>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub top_k: Option<i64>,
    pub min_p: Option<f64>,
    pub typical_p: Option<f64>,
    pub seed: Option<i64>,
    pub shaping: RawShaping,
    /// After so many tokens of its block, a model's thinking ends.
    pub max_thinking_tokens: Option<i64>,
    pub stop_token_ids: Vec<i64>,
    pub ignore_eos: bool,
    /// How many alternatives to report beside each sampled token's own logprob; `None` reports nothing.
    pub logprobs: Option<i64>,
    /// The name under which the route knows `logprobs`.
    pub logprobs_param: &'static str,
    /// The same for each token of the prompt but the first.
    pub prompt_logprobs: Option<i64>,
    /// The name under which the route knows `prompt_logprobs`.
    pub prompt_logprobs_param: &'static str,
    /// Only so many of the prompt's last tokens are used; -1 is as many as fit.
    pub truncate_prompt_tokens: Option<i64>,
    /// Which of the model's adapters its tokens go through.
    pub adapter: Option<u32>,
    pub priority: Priority,
    /// Whether blocks of the KV cache may be shared with other requests; `None` is yes.
    pub cache_prompt: Option<bool>,
    /// Only requests with the same one share.
    pub cache_salt: Option<String>,
    /// Milliseconds after `origin.received` by which the whole answer must be there. `deadline_ms` is its other name; of
    /// two, the shorter counts.
    pub timeout_ms: Option<i64>,
    pub deadline_ms: Option<i64>,
    pub origin: Origin,
}

impl Parameters {
    /// Checks everything but the prompt. `entropy` becomes the seed when the client gave none.
    pub fn check(&self, limits: &Limits, entropy: u64) -> Result<Checked, RequestError> {
        if limits.only_embeds && self.goal == Goal::Completion {
            return Err(RequestError::OnlyEmbeds);
        }
        let max_tokens_param = self.max_tokens_name();
        let logprobs_param = self.logprobs_name();
        let prompt_logprobs_param = self.prompt_logprobs_name();
        let truncate = self.truncation(limits)?;
        let defaults = &limits.defaults;
        let shaping = self.shaping.check(limits)?;
        if let Some(most) = self.max_tokens.filter(|most| *most > 0 && i64::from(shaping.min_tokens) > *most) {
            let message = format!("is {}, but {max_tokens_param} is {most}", shaping.min_tokens);
            return Err(RequestError::invalid("min_tokens", message));
        }
        Ok(Checked {
            goal: self.goal,
            strict: self.strict,
            // More than the context is clamped later, so only the sign matters here.
            max_tokens: integer(max_tokens_param, self.max_tokens, 1, i64::MAX)?.map(|n| n.min(u32::MAX.into()) as u32),
            max_tokens_param,
            default_max_tokens: self.default_max_tokens,
            choices: integer("n", self.n, 1, limits.max_choices.into())?.unwrap_or(1) as u32,
            sampling: SamplingParams {
                temperature: number("temperature", self.temperature.or(defaults.temperature), 0.0, 2.0)?.unwrap_or(1.0),
                top_p: number("top_p", self.top_p.or(defaults.top_p), 0.0, 1.0)?.unwrap_or(1.0),
                // -1 is vLLM's way to say "off".
                top_k: integer("top_k", self.top_k.or(defaults.top_k), -1, i64::from(u32::MAX))?.unwrap_or(0).max(0)
                    as u32,
                min_p: number("min_p", self.min_p.or(defaults.min_p), 0.0, 1.0)?.unwrap_or(0.0),
                typical_p: number("typical_p", self.typical_p.or(defaults.typical_p), 0.0, 1.0)?.unwrap_or(1.0),
                seed: self.seed.map_or(entropy, |seed| seed as u64),
            },
            shaping,
            max_thinking_tokens: integer("max_thinking_tokens", self.max_thinking_tokens, 0, u32::MAX.into())?
                .map(|n| n as u32),
            stop_tokens: check_tokens("stop_token_ids", &self.stop_token_ids, limits.max_stop_tokens, limits)?,
            ignore_eos: self.ignore_eos,
            logprobs: integer(logprobs_param, self.logprobs, 0, limits.max_logprobs.into())?.map(|n| n as u32),
            prompt_logprobs: integer(prompt_logprobs_param, self.prompt_logprobs, 0, limits.max_logprobs.into())?
                .map(|n| n as u32),
            truncate,
            // An encoder was trained on beginnings.
            truncated: if limits.only_embeds { Truncated::Beginning } else { Truncated::End },
            adapter: self.adapter,
            cache: self.cache_use()?,
            priority: self.priority,
            deadline: self.deadline()?,
            grammar: None,
            origin: self.origin.clone(),
        })
    }

    /// The name under which the client knows `max_tokens`.
    fn max_tokens_name(&self) -> &'static str {
        named(self.max_tokens_param, "max_tokens")
    }

    /// The name under which the client knows `logprobs`.
    pub fn logprobs_name(&self) -> &'static str {
        named(self.logprobs_param, "logprobs")
    }

    /// The name under which the client knows `prompt_logprobs`.
    pub fn prompt_logprobs_name(&self) -> &'static str {
        named(self.prompt_logprobs_param, "prompt_logprobs")
    }

    fn cache_use(&self) -> Result<CacheUse, RequestError> {
        let salt = self.cache_salt.as_deref().unwrap_or_default();
        // No path, no address; base64 as vLLM's documentation shows it, in its alphabet for URLs.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-+=".contains(&byte);
        let odd = salt.is_empty() || salt.len() > MAX_SALT_BYTES || !salt.bytes().all(plain);
        if self.cache_salt.is_some() && odd {
            let message = format!("must have 1 to {MAX_SALT_BYTES} characters of a-z, A-Z, 0-9, _, -, + and =");
            return Err(RequestError::invalid("cache_salt", message));
        }
        // Keys and values are an adapter's own. No client's salt holds a slash.
        let salt = self.adapter.map_or_else(|| salt.into(), |adapter| format!("{adapter}/{salt}").into());
        Ok(CacheUse { declined: self.cache_prompt == Some(false), salt })
    }

    /// At most as many of the prompt's last tokens are used; `None` is all of them.
    pub fn truncation(&self, limits: &Limits) -> Result<Option<u32>, RequestError> {
        let fit = i64::from(limits.longest_prompt());
        let asked = integer("truncate_prompt_tokens", self.truncate_prompt_tokens, -1, fit)?;
        match asked {
            Some(0) => Err(RequestError::invalid("truncate_prompt_tokens", "must be -1 or at least 1, got 0")),
            Some(-1) => Ok(Some(fit as u32)),
            other => Ok(other.map(|tokens| tokens as u32)),
        }
    }

    fn deadline(&self) -> Result<Option<Micros>, RequestError> {
        /// A day; more is a mistake in the unit.
        const LONGEST_MS: i64 = 24 * 3_600 * 1_000;
        let timeout = integer("timeout_ms", self.timeout_ms, 1, LONGEST_MS)?;
        let deadline = integer("deadline_ms", self.deadline_ms, 1, LONGEST_MS)?;
        let shorter = timeout.into_iter().chain(deadline).min();
        Ok(shorter.map(|ms| self.origin.received + Micros::from_millis(ms as u64)))
    }
}

fn named(name: &'static str, fallback: &'static str) -> &'static str {
    if name.is_empty() { fallback } else { name }
}
