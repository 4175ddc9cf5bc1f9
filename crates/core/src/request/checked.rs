//! A raw request whose numbers are in range, and the only place where a [`Request`] is built.

use crate::units::{Micros, SeqId, TokenId};

use super::check::check_prompt_length;
use super::{
    CacheUse, Goal, Guided, Limits, Origin, Priority, Request, RequestError, SamplingParams, Shaping, ThinkingBudget,
};

/// A raw request whose numbers are in range; only its prompt is not tokens yet.
#[derive(Clone, Debug)]
pub struct Checked {
    pub(super) goal: Goal,
    pub(super) strict: bool,
    pub(super) max_tokens: Option<u32>,
    pub(super) max_tokens_param: &'static str,
    pub(super) default_max_tokens: Option<u32>,
    pub(super) choices: u32,
    pub(super) sampling: SamplingParams,
    pub(super) shaping: Shaping,
    pub(super) max_thinking_tokens: Option<u32>,
    pub(super) stop_tokens: Vec<TokenId>,
    pub(super) ignore_eos: bool,
    pub(super) logprobs: Option<u32>,
    pub(super) prompt_logprobs: Option<u32>,
    /// At most as many tokens of the prompt are used.
    pub(super) truncate: Option<u32>,
    pub(super) truncated: Truncated,
    pub(super) adapter: Option<u32>,
    pub(super) cache: CacheUse,
    pub(super) priority: Priority,
    pub(super) deadline: Option<Micros>,
    pub(super) grammar: Option<Guided>,
    pub(super) origin: Origin,
}

/// Which part of a prompt that is cut is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncated {
    End,
    Beginning,
    /// The last token is one that the tokenizer puts behind every text.
    BeginningAndLast,
}

/// What [`Checked::into_requests`] made: one request per choice.
#[derive(Clone, Debug)]
pub struct Built {
    pub requests: Vec<Request>,
    /// The parameter that asked for more tokens than the context leaves; the client gets what is left.
    pub clamped: Option<&'static str>,
}

impl Checked {
    pub fn choices(&self) -> u32 {
        self.choices
    }

    pub fn priority(&self) -> Priority {
        self.priority
    }

    pub fn max_thinking_tokens(&self) -> Option<u32> {
        self.max_thinking_tokens
    }

    pub fn limit_thinking(&mut self, budget: ThinkingBudget) {
        self.shaping.thinking = Some(budget);
    }

    /// Which part of the prompt is left where it is cut.
    pub fn cutting(self, truncated: Truncated) -> Checked {
        Checked { truncated, ..self }
    }

    /// What all choices have to be, once it is compiled.
    pub fn with_grammar(self, grammar: Option<Guided>) -> Checked {
        Checked { grammar, ..self }
    }

    /// Leaves as many of a prompt's tokens as the client wants.
    pub fn truncate(&self, prompt: &mut Vec<TokenId>) {
        let cut = self.truncate.map_or(0, |most| prompt.len().saturating_sub(most as usize));
        let end = match self.truncated {
            Truncated::End => cut,
            Truncated::Beginning => prompt.len(),
            Truncated::BeginningAndLast => prompt.len().saturating_sub(1).max(cut),
        };
        prompt.drain(end - cut..end);
    }

    /// Builds one request per choice. `ids` yields fresh sequence ids; `eos` are the model's end tokens.
    pub fn into_requests(
        self,
        mut prompt: Vec<TokenId>,
        eos: &[TokenId],
        limits: &Limits,
        mut ids: impl FnMut() -> SeqId,
    ) -> Result<Built, RequestError> {
        self.truncate(&mut prompt);
        check_prompt_length(prompt.len(), limits)?;
        let room = limits.max_model_len - prompt.len() as u32;
        if let Some(most) = self.max_tokens.filter(|most| self.strict && *most > room) {
            let message = format!("is {most}, but the prompt of {} leaves {room} in the context", prompt.len());
            return Err(RequestError::invalid(self.max_tokens_param, message));
        }
        let asked = match self.goal {
            Goal::Completion => self.max_tokens.or(self.default_max_tokens),
            Goal::Embedding(_) => None,
        };
        let mut stop_tokens = self.stop_tokens;
        if !self.ignore_eos {
            stop_tokens.extend_from_slice(eos);
        }
        let requests = (0..self.choices).map(|choice| Request {
            id: ids(),
            goal: self.goal,
            prompt: prompt.clone(),
            max_tokens: match self.goal {
                Goal::Completion => asked.unwrap_or(room).min(room),
                Goal::Embedding(_) => 1, // its one step
            },
            stop_tokens: stop_tokens.clone(),
            sampling: SamplingParams { seed: choice_seed(self.sampling.seed, choice), ..self.sampling },
            shaping: self.shaping.clone(),
            logprobs: self.logprobs,
            prompt_logprobs: self.prompt_logprobs,
            adapter: self.adapter,
            cache: self.cache.clone(),
            priority: self.priority,
            deadline: self.deadline,
            grammar: self.grammar.clone(),
            origin: self.origin.clone(),
        });
        let clamped = self.max_tokens.is_some_and(|n| n > room).then_some(self.max_tokens_param);
        Ok(Built { requests: requests.collect(), clamped })
    }
}

/// Choice 0 keeps the request's seed, so that `n` = 1 and the first of `n` = 4 agree; the others are spread by the
/// golden-ratio increment of SplitMix64 (Steele, Lea, Flood 2014).
fn choice_seed(seed: u64, choice: u32) -> u64 {
    seed.wrapping_add(u64::from(choice).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
