//! The generations of one HTTP request, one per prompt, merged. Dropping it aborts whatever is unfinished.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, SelectAll, unfold};

use super::head::Head;
use super::sampling::Delivery;
use crate::api::State;
use crate::api::request_log::RequestLog;
use crate::generate::RawRequest;
use crate::generate::{CallBegins, CallDelta, Delta, Generation, Started, TextDelta, TokenLogprob};
use forebay_clock::Clock;
use forebay_core::request::{FinishReason, RequestError};
use forebay_core::units::{Micros, TokenId};

/// Sequences that one HTTP request may start: prompts × n.
const MAX_SEQUENCES: i64 = 128;

pub struct Running {
    streams: SelectAll<BoxStream<'static, (usize, Delta)>>,
    /// Came while the request waited for a seat, and was not passed on yet.
    early: Option<(usize, Delta)>,
    /// Of each prompt.
    pub started: Vec<Started>,
    /// Choices per prompt: choice `c` of prompt `p` has the index `p * choices + c`.
    pub choices: usize,
    /// What is drawn is not shown; see [`Delivery::no_completion`].
    no_completion: bool,
    /// Tokens shown so far, of all choices.
    pub completion_tokens: usize,
    /// Of those, the ones spent on thinking.
    pub reasoning_tokens: usize,
    clock: Clock,
    received: Micros,
    first: Option<Micros>,
    log: Option<RequestLog>,
}

/// A whole completion.
#[derive(Clone, Debug, Default)]
pub struct Finished {
    /// Of the prompt's tokens from the second on, where asked for.
    pub prompt: Option<Vec<TokenLogprob>>,
    pub text: String,
    pub reasoning: String,
    pub calls: Vec<Call>,
    pub tokens: Vec<TokenId>,
    pub logprobs: Vec<TokenLogprob>,
    pub reason: Option<FinishReason>,
}

impl Finished {
    fn add_call(&mut self, delta: CallDelta) {
        if let Some(CallBegins { id, name }) = delta.begins {
            self.calls.push(Call { id, name, arguments: String::new() });
        }
        if let Some(call) = self.calls.get_mut(delta.index) {
            call.arguments.push_str(&delta.arguments);
        }
    }
}

/// A whole call of a tool.
#[derive(Clone, Debug, Default)]
pub struct Call {
    pub id: String,
    pub name: String,
    pub arguments: String,
}

/// What happens to a choice.
pub enum ChoiceEvent {
    Prompt(usize, Vec<TokenLogprob>),
    Text(usize, TextDelta),
    Finished {
        index: usize,
        reason: FinishReason,
        /// The stop string that ended it.
        stop: Option<String>,
    },
}

/// How long it took, as the HTTP side saw it.
#[derive(Clone, Copy, Debug)]
pub struct RunTimes {
    pub prompt_tokens: usize,
    /// Of those, in the KV cache already.
    pub cached_tokens: usize,
    /// From the request's arrival to the first token: queueing included.
    pub prompt: Micros,
    pub completion_tokens: usize,
    pub completion: Micros,
}

impl Running {
    /// Starts all or none: when one is refused, those before it are dropped.
    pub async fn start(
        state: &State,
        head: &Head,
        raws: Vec<RawRequest>,
        delivery: Delivery,
    ) -> Result<Running, RequestError> {
        let n = raws.first().and_then(|raw| raw.parameters.n).unwrap_or(1);
        if n > 0 && n.saturating_mul(raws.len() as i64) > MAX_SEQUENCES {
            let message = format!("{} prompts with n = {n} make more than {MAX_SEQUENCES} sequences", raws.len());
            return Err(RequestError::invalid("n", message));
        }
        let mut running = Running {
            streams: SelectAll::new(),
            early: None,
            started: Vec::new(),
            choices: 1,
            no_completion: delivery.no_completion,
            completion_tokens: 0,
            reasoning_tokens: 0,
            clock: state.clock.clone(),
            received: head.received,
            first: None,
            log: head.log.clone(),
        };
        // Room for all of them before any is tokenised.
        let admitted = raws.into_iter().map(|raw| state.generator.admit(raw)).collect::<Result<Vec<_>, _>>()?;
        for admitted in admitted {
            running.add(state.generator.submit(admitted).await?);
        }
        running.tell(|log| {
            log.prompt_tokens(running.prompt_token_count());
            log.completion_tokens(0);
        });
        Ok(running)
    }

    fn tell(&self, what: impl FnOnce(&RequestLog)) {
        if let Some(log) = &self.log {
            what(log);
        }
    }

    fn add(&mut self, generation: Generation) {
        let first = self.started.len() * generation.choices as usize;
        self.choices = generation.choices as usize;
        self.started.push(generation.started.clone());
        let deltas = unfold(generation, move |mut generation| async move {
            let (choice, delta) = generation.next().await?;
            Some(((first + choice as usize, delta), generation))
        });
        self.streams.push(deltas.boxed());
    }

    /// The number of choices of all prompts.
    pub fn total(&self) -> usize {
        self.started.len() * self.choices
    }

    /// The prompt of a choice.
    pub fn prompt_of(&self, index: usize) -> Option<&Started> {
        self.started.get(index / self.choices)
    }

    /// Of all prompts together; a prompt counts once, however many choices it has.
    pub fn prompt_token_count(&self) -> usize {
        self.started.iter().map(|started| started.prompt_tokens.len()).sum()
    }

    /// Of those, the ones that were in the KV cache.
    pub fn cached_token_count(&self) -> usize {
        self.started.iter().map(|started| started.cached_tokens).sum()
    }

    pub fn times(&self) -> RunTimes {
        let now = self.clock.now();
        let first = self.first.unwrap_or(now);
        RunTimes {
            prompt_tokens: self.prompt_token_count(),
            cached_tokens: self.cached_token_count(),
            prompt: first.since(self.received),
            completion_tokens: self.completion_tokens,
            completion: now.since(first),
        }
    }

    /// Waits until one of its sequences has its seat, but no longer than `hold`. What ends it before that can still be
    /// told by a status, which clients understand and balancers try elsewhere.
    pub async fn seated(&mut self, hold: Duration) -> Result<(), RequestError> {
        let Ok(early) = tokio::time::timeout(hold, self.streams.next()).await else { return Ok(()) };
        match early {
            Some((_, Delta::Failed(error))) => Err(error),
            early => {
                self.early = early;
                Ok(())
            }
        }
    }

    /// The next thing that happens to any choice; `None` when all have finished. An error of one choice is the request's.
    pub async fn next(&mut self) -> Option<Result<ChoiceEvent, RequestError>> {
        loop {
            let early = self.early.take();
            let (index, delta) = match early {
                Some(early) => early,
                None => self.streams.next().await?,
            };
            if !matches!(delta, Delta::Admitted { .. }) {
                self.first.get_or_insert_with(|| self.clock.now());
            }
            return Some(match delta {
                Delta::Prompt(logprobs) => Ok(ChoiceEvent::Prompt(index, logprobs)),
                // Of requests that ask for one; see `embeddings.rs`.
                Delta::Embedded(_) => continue,
                Delta::Text(_) if self.no_completion => continue,
                Delta::Text(text) => {
                    self.completion_tokens += text.tokens.len();
                    self.reasoning_tokens += text.reasoning_tokens;
                    self.tell(|log| log.completion_tokens(self.completion_tokens));
                    Ok(ChoiceEvent::Text(index, text))
                }
                // A client that is still here did not end it.
                Delta::Finished { reason: FinishReason::Abort, .. } => Err(RequestError::Aborted),
                Delta::Finished { .. } if self.no_completion => {
                    Ok(ChoiceEvent::Finished { index, reason: FinishReason::Length, stop: None })
                }
                Delta::Finished { reason, stop, .. } => {
                    self.tell(|log| log.finished(reason));
                    Ok(ChoiceEvent::Finished { index, reason, stop })
                }
                Delta::Failed(error) => Err(error),
                Delta::Admitted { cached_tokens } => {
                    // Of a prompt's choices the first counts: the others find what it computed.
                    if index.is_multiple_of(self.choices) {
                        self.started[index / self.choices].cached_tokens = cached_tokens;
                        self.tell(|log| log.cached_tokens(self.cached_token_count()));
                    }
                    continue;
                }
            });
        }
    }

    /// Waits for all choices, in the order of their indices.
    pub async fn collect(mut self) -> Result<(Running, Vec<Finished>), RequestError> {
        let mut choices = vec![Finished::default(); self.total()];
        while let Some(event) = self.next().await {
            let event = event?;
            let (ChoiceEvent::Prompt(index, _) | ChoiceEvent::Text(index, _) | ChoiceEvent::Finished { index, .. }) =
                &event;
            let Some(choice) = choices.get_mut(*index) else { continue };
            match event {
                ChoiceEvent::Prompt(_, logprobs) => choice.prompt = Some(logprobs),
                ChoiceEvent::Text(_, delta) => {
                    choice.text.push_str(&delta.text);
                    choice.reasoning.push_str(&delta.reasoning);
                    delta.calls.into_iter().for_each(|call| choice.add_call(call));
                    choice.tokens.extend(delta.tokens);
                    choice.logprobs.extend(delta.logprobs);
                }
                ChoiceEvent::Finished { reason, .. } => choice.reason = Some(reason),
            }
        }
        Ok((self, choices))
    }
}
