//! The vocabulary of a request: what a route heard ([`RawRequest`]), what the engine may see ([`Request`]), what comes
//! back ([`Event`]) and what can go wrong ([`RequestError`]). Pure.
//!
//! A `Request` is built in one place, [`Checked::into_requests`], so every route has the same checks.

mod check;
mod error;
mod priority;
mod shaping;
mod template;

use std::sync::Arc;

use crate::step::Sampled;
use crate::units::{Micros, SeqId, TokenId};

use check::{check_prompt_length, check_stops, integer, number};

pub use check::check_tokens;
pub use error::RequestError;
pub use priority::Priority;
pub use shaping::{RawShaping, Shaping};
pub use template::TemplateOptions;

/// What a route understood of its JSON, before any limit was checked. Numbers are as wide as JSON's.
#[derive(Clone, Debug, Default)]
pub struct RawRequest {
    pub prompt: Prompt,
    /// The text of the prompt is wanted too.
    pub echo: bool,
    /// A `max_tokens` beyond the context is refused instead of clamped.
    pub strict: bool,
    pub template: TemplateOptions,
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
    pub stop: Vec<String>,
    /// The stop string or token that ended the completion is part of its text.
    pub include_stop: bool,
    /// Special tokens are spelled out in the text.
    pub keep_special_tokens: bool,
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

/// Whose request it is and when it came; the same for all its sequences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The id that the client reads in its answer.
    pub id: Arc<str>,
    /// Whom the fair share counts it for; empty is everyone who did not say.
    pub tenant: Arc<str>,
    pub received: Micros,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    Text(String),
    Tokens(Vec<i64>),
    Chat(Vec<ChatMessage>),
    /// The text before and after a hole that the model is to fill.
    Infill {
        before: String,
        after: String,
    },
}

impl Default for Prompt {
    fn default() -> Prompt {
        Prompt::Text(String::new())
    }
}

/// One message of a chat, its content parts already joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatMessage {
    pub role: String,
    pub content: String,
    pub name: Option<String>,
}

/// What the model and the server allow.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Prompt and completion together, in tokens.
    pub max_model_len: u32,
    /// Width of the logits; every token id of a request lies below it.
    pub vocab_size: u32,
    /// The longest token's text in bytes: bounds a prompt's bytes before it is tokenised.
    pub max_token_bytes: usize,
    /// Largest `n`.
    pub max_choices: u32,
    pub max_stop_strings: usize,
    pub max_stop_bytes: usize,
    pub max_stop_tokens: usize,
    pub max_logprobs: u32,
    pub max_logit_bias: usize,
    /// What a request gets that says nothing.
    pub defaults: Defaults,
}

/// How a model's makers want its tokens drawn (`generation_config.json`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Defaults {
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub top_k: Option<i64>,
    pub min_p: Option<f64>,
    pub typical_p: Option<f64>,
    pub repetition_penalty: Option<f64>,
}

impl Limits {
    pub fn new(max_model_len: u32, vocab_size: u32, max_token_bytes: usize) -> Limits {
        Limits {
            max_model_len,
            vocab_size,
            max_token_bytes,
            max_choices: 8,
            max_stop_strings: 4,
            max_stop_bytes: 256,
            max_stop_tokens: 128,
            max_logprobs: 20,
            max_logit_bias: 1_024,
            defaults: Defaults::default(),
        }
    }
}

/// How a token is drawn. The draw for position `p` is keyed by `(seed, p)` alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy: the highest logit, ties by lowest id.
    pub temperature: f32,
    pub top_p: f32,
    /// 0 is off.
    pub top_k: u32,
    pub min_p: f32,
    /// Locally typical sampling; 1 is off.
    pub typical_p: f32,
    pub seed: u64,
}

impl SamplingParams {
    pub const GREEDY: SamplingParams =
        SamplingParams { temperature: 0.0, top_p: 1.0, top_k: 0, min_p: 0.0, typical_p: 1.0, seed: 0 };
}

/// One sequence's orders, checked: the prompt fits, the numbers are in range.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    id: SeqId,
    prompt: Vec<TokenId>,
    max_tokens: u32,
    stop_tokens: Vec<TokenId>,
    sampling: SamplingParams,
    shaping: Shaping,
    logprobs: Option<u32>,
    prompt_logprobs: Option<u32>,
    cache: CacheUse,
    priority: Priority,
    deadline: Option<Micros>,
    origin: Origin,
}

/// Whether and with whom a request shares blocks of the KV cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CacheUse {
    declined: bool,
    salt: Arc<str>,
}

impl Request {
    pub fn id(&self) -> SeqId {
        self.id
    }

    /// Never empty, and shorter than the context.
    pub fn prompt(&self) -> &[TokenId] {
        &self.prompt
    }

    /// At least 1; prompt and completion together fit the context.
    pub fn max_tokens(&self) -> u32 {
        self.max_tokens
    }

    /// Ends the completion when sampled: the model's EOS tokens (unless `ignore_eos`) and the request's own.
    pub fn is_stop(&self, token: TokenId) -> bool {
        self.stop_tokens.contains(&token)
    }

    /// The tokens for which [`Request::is_stop`] holds.
    pub fn stop_tokens(&self) -> &[TokenId] {
        &self.stop_tokens
    }

    pub fn sampling(&self) -> &SamplingParams {
        &self.sampling
    }

    pub fn shaping(&self) -> &Shaping {
        &self.shaping
    }

    pub fn logprobs(&self) -> Option<u32> {
        self.logprobs
    }

    /// How many alternatives to report for each token of the prompt but the first.
    pub fn prompt_logprobs(&self) -> Option<u32> {
        self.prompt_logprobs
    }

    /// Whether its prompt may begin with blocks that others computed, and others' with its own. Not where the client said
    /// so, nor where all rows of the prompt must be computed for their logprobs.
    pub fn may_use_cache(&self) -> bool {
        !self.cache.declined && self.prompt_logprobs.is_none()
    }

    /// Only requests with the same one share blocks.
    pub fn cache_salt(&self) -> &Arc<str> {
        &self.cache.salt
    }

    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// The point in time by which its last token must be there.
    pub fn deadline(&self) -> Option<Micros> {
        self.deadline
    }

    pub fn is_overdue(&self, now: Micros) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// What a client hears when its deadline has passed.
    pub fn timed_out(&self) -> RequestError {
        let allowed = self.deadline.map_or(Micros::ZERO, |deadline| deadline.since(self.origin.received));
        RequestError::Timeout { after_ms: allowed.as_millis() }
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Prompt and longest completion: what intake and fair share estimate its work by.
    pub fn estimated_tokens(&self) -> usize {
        self.prompt.len() + self.max_tokens as usize
    }
}

/// A raw request whose numbers are in range; only its prompt is not tokens yet.
#[derive(Clone, Debug)]
pub struct Checked {
    strict: bool,
    max_tokens: Option<u32>,
    default_max_tokens: Option<u32>,
    choices: u32,
    sampling: SamplingParams,
    shaping: Shaping,
    stop_tokens: Vec<TokenId>,
    ignore_eos: bool,
    logprobs: Option<u32>,
    prompt_logprobs: Option<u32>,
    /// At most as many tokens of the prompt are used, its last ones.
    truncate: Option<u32>,
    cache: CacheUse,
    priority: Priority,
    deadline: Option<Micros>,
    origin: Origin,
}

/// What [`Checked::into_requests`] made: one request per choice.
#[derive(Clone, Debug)]
pub struct Built {
    pub requests: Vec<Request>,
    /// The client asked for more tokens than the context leaves; it gets what is left.
    pub max_tokens_clamped: bool,
}

/// A salt is kept with each first block of its requests.
const MAX_SALT_BYTES: usize = 256;

impl RawRequest {
    /// Checks everything that needs no tokenizer. `entropy` becomes the seed when the client gave none.
    pub fn check(&self, limits: &Limits, entropy: u64) -> Result<Checked, RequestError> {
        let param = |name: &'static str, fallback: &'static str| if name.is_empty() { fallback } else { name };
        let max_tokens_param = param(self.max_tokens_param, "max_tokens");
        let logprobs_param = param(self.logprobs_param, "logprobs");
        let prompt_logprobs_param = param(self.prompt_logprobs_param, "prompt_logprobs");
        let truncate = self.truncation(limits)?;
        match &self.prompt {
            // Cut before its length matters.
            Prompt::Tokens(tokens) if truncate.is_some() && !tokens.is_empty() => {}
            prompt => prompt.check_size(limits)?,
        }
        check_stops(&self.stop, limits)?;
        self.template.check()?;
        let defaults = &limits.defaults;
        let shaping = self.shaping.check(limits)?;
        if let Some(most) = self.max_tokens.filter(|most| *most > 0 && i64::from(shaping.min_tokens) > *most) {
            let message = format!("is {}, but {max_tokens_param} is {most}", shaping.min_tokens);
            return Err(RequestError::invalid("min_tokens", message));
        }
        Ok(Checked {
            strict: self.strict,
            // More than the context is clamped later, so only the sign matters here.
            max_tokens: integer(max_tokens_param, self.max_tokens, 1, i64::MAX)?.map(|n| n.min(u32::MAX.into()) as u32),
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
            stop_tokens: check_tokens("stop_token_ids", &self.stop_token_ids, limits.max_stop_tokens, limits)?,
            ignore_eos: self.ignore_eos,
            logprobs: integer(logprobs_param, self.logprobs, 0, limits.max_logprobs.into())?.map(|n| n as u32),
            prompt_logprobs: integer(prompt_logprobs_param, self.prompt_logprobs, 0, limits.max_logprobs.into())?
                .map(|n| n as u32),
            truncate,
            cache: self.cache_use()?,
            priority: self.priority,
            deadline: self.deadline()?,
            origin: self.origin.clone(),
        })
    }

    fn cache_use(&self) -> Result<CacheUse, RequestError> {
        let salt = self.cache_salt.as_deref().unwrap_or_default();
        let odd = salt.is_empty() || salt.len() > MAX_SALT_BYTES || salt.chars().any(char::is_control);
        if self.cache_salt.is_some() && odd {
            let message = format!("must have 1 to {MAX_SALT_BYTES} bytes and no control characters");
            return Err(RequestError::invalid("cache_salt", message));
        }
        Ok(CacheUse { declined: self.cache_prompt == Some(false), salt: salt.into() })
    }

    fn truncation(&self, limits: &Limits) -> Result<Option<u32>, RequestError> {
        // One must be left to generate.
        let fit = i64::from(limits.max_model_len) - 1;
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

impl Prompt {
    /// A prompt of more bytes than the context's longest tokens could hold is refused before it is tokenised.
    pub fn check_size(&self, limits: &Limits) -> Result<(), RequestError> {
        let bytes = match self {
            Prompt::Text(text) => text.len(),
            Prompt::Infill { before, after } => before.len() + after.len(),
            Prompt::Chat(messages) => messages.iter().map(|m| m.content.len()).sum(),
            Prompt::Tokens(tokens) => return check_prompt_length(tokens.len(), limits),
        };
        if bytes > limits.max_token_bytes.saturating_mul(limits.max_model_len as usize) {
            let at_least = bytes.div_ceil(limits.max_token_bytes.max(1));
            return Err(RequestError::ContextLength { prompt: at_least, limit: limits.max_model_len });
        }
        Ok(())
    }
}

impl Checked {
    pub fn choices(&self) -> u32 {
        self.choices
    }

    /// Builds one request per choice. `ids` yields fresh sequence ids; `eos` are the model's end tokens.
    pub fn into_requests(
        self,
        mut prompt: Vec<TokenId>,
        eos: &[TokenId],
        limits: &Limits,
        mut ids: impl FnMut() -> SeqId,
    ) -> Result<Built, RequestError> {
        let cut = self.truncate.map_or(0, |most| prompt.len().saturating_sub(most as usize));
        prompt.drain(..cut);
        check_prompt_length(prompt.len(), limits)?;
        let room = limits.max_model_len - prompt.len() as u32;
        if let Some(most) = self.max_tokens.filter(|most| self.strict && *most > room) {
            let message = format!("is {most}, but the prompt of {} leaves {room} in the context", prompt.len());
            return Err(RequestError::invalid("max_tokens", message));
        }
        let asked = self.max_tokens.or(self.default_max_tokens);
        let mut stop_tokens = self.stop_tokens;
        if !self.ignore_eos {
            stop_tokens.extend_from_slice(eos);
        }
        let requests = (0..self.choices).map(|choice| Request {
            id: ids(),
            prompt: prompt.clone(),
            max_tokens: asked.unwrap_or(room).min(room),
            stop_tokens: stop_tokens.clone(),
            sampling: SamplingParams { seed: choice_seed(self.sampling.seed, choice), ..self.sampling },
            shaping: self.shaping.clone(),
            logprobs: self.logprobs,
            prompt_logprobs: self.prompt_logprobs,
            cache: self.cache.clone(),
            priority: self.priority,
            deadline: self.deadline,
            origin: self.origin.clone(),
        });
        Ok(Built { requests: requests.collect(), max_tokens_clamped: self.max_tokens.is_some_and(|n| n > room) })
    }
}

/// Choice 0 keeps the request's seed, so that `n` = 1 and the first of `n` = 4 agree; the others are spread by the
/// golden-ratio increment of SplitMix64 (Steele, Lea, Flood 2014).
fn choice_seed(seed: u64, choice: u32) -> u64 {
    seed.wrapping_add(u64::from(choice).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// What a sequence tells its client. Exactly one of `Finished` and `Failed` comes, last.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It has its seat; so many tokens of its prompt were in the KV cache already. Comes once, before all else.
    Admitted {
        cached_tokens: usize,
    },
    /// A token, the one that ended the completion included.
    Token(Sampled),
    Finished(FinishReason),
    Failed(RequestError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// An EOS or stop token was drawn (it is the last `Token` event), or a stop string was found.
    Stop,
    /// `max_tokens` or the context is full.
    Length,
    /// The client went away or the operator ended it.
    Abort,
}

impl FinishReason {
    pub const fn name(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Abort => "abort",
        }
    }
}

#[cfg(test)]
mod tests;
