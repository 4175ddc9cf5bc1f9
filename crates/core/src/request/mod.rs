//! The vocabulary of a request: what a client asks of the engine ([`Parameters`]), what the engine may see ([`Request`]),
//! what comes back ([`Event`]) and what can go wrong ([`RequestError`]).
//!
//! A `Request` is built in one place, [`Checked::into_requests`], so every route has the same checks.

mod check;
mod checked;
mod error;
mod event;
mod goal;
mod limits;
mod parameters;
mod payer;
mod priority;
mod shaping;

use std::sync::Arc;

use crate::constraint::Constraint;
use crate::units::{Micros, SeqId, TokenId};

pub use check::{check_prompt_length, check_tokens};
pub use checked::{Built, Checked, Truncated};
pub use error::RequestError;
pub use event::{Event, FinishReason};
pub use goal::{Goal, Pooling};
pub use limits::{Defaults, Limits};
pub use parameters::{MAX_SALT_BYTES, Parameters};
pub use payer::{Payer, Weight};
pub use priority::{CLASSES, Priority};
pub use shaping::{RawShaping, Shaping, ThinkingBudget, ThinkingTags};

/// Whose request it is and when it came; the same for all its sequences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The id that the client reads in its answer.
    pub id: Arc<str>,
    /// Whom the fair share counts it for; empty is everyone who did not say.
    pub tenant: Arc<str>,
    /// Of the tenant.
    pub weight: Weight,
    pub received: Micros,
    /// Where its request is traced.
    pub span: Option<SpanParent>,
}

/// The span of a request in a distributed trace, for those inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanParent {
    pub trace: u128,
    pub span: u64,
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

/// What an answer has to be, and the thinking that may come before it.
#[derive(Clone, Debug)]
pub struct Guided {
    pub grammar: Arc<dyn Constraint>,
    pub thinking: Option<ThinkingTags>,
}

impl PartialEq for Guided {
    /// The same compiled grammar, not merely an equal one.
    fn eq(&self, other: &Guided) -> bool {
        Arc::ptr_eq(&self.grammar, &other.grammar) && self.thinking == other.thinking
    }
}

/// One sequence's orders, checked: the prompt fits, the numbers are in range.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    id: SeqId,
    goal: Goal,
    prompt: Vec<TokenId>,
    max_tokens: u32,
    stop_tokens: Vec<TokenId>,
    sampling: SamplingParams,
    shaping: Shaping,
    logprobs: Option<u32>,
    prompt_logprobs: Option<u32>,
    adapter: Option<u32>,
    cache: CacheUse,
    priority: Priority,
    deadline: Option<Micros>,
    grammar: Option<Guided>,
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

    pub fn goal(&self) -> Goal {
        self.goal
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

    /// What its completion has to be.
    pub fn grammar(&self) -> Option<&Guided> {
        self.grammar.as_ref()
    }

    /// How many alternatives to report for each token of the prompt but the first.
    pub fn prompt_logprobs(&self) -> Option<u32> {
        self.prompt_logprobs
    }

    /// Whether its prompt may begin with blocks that others computed, and others' with its own. Not where the client said
    /// so, nor where all rows of the prompt must be computed, for their logprobs or to be pooled.
    pub fn may_use_cache(&self) -> bool {
        let pooled = matches!(self.goal, Goal::Embedding(pooling) if !pooling.reads_only_the_last());
        !self.cache.declined && self.prompt_logprobs.is_none() && !pooled
    }

    /// Which of the model's adapters its tokens go through.
    pub fn adapter(&self) -> Option<u32> {
        self.adapter
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

#[cfg(test)]
mod tests;
