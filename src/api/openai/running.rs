//! The generations of one HTTP request, one per prompt, merged. Dropping it aborts whatever is unfinished.

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, SelectAll, unfold};

use crate::generate::{Delta, Generation, Generator, TextDelta, TokenLogprob};
use crate::request::{FinishReason, RawRequest, RequestError};
use crate::units::{Micros, TokenId};

/// Sequences that one HTTP request may start: prompts × n.
const MAX_SEQUENCES: i64 = 128;

pub struct Running {
    streams: SelectAll<BoxStream<'static, (usize, Delta)>>,
    /// Of each prompt.
    pub prompt_tokens: Vec<Vec<TokenId>>,
    /// Choices per prompt: choice `c` of prompt `p` has the index `p * choices + c`.
    pub choices: usize,
    pub max_tokens_clamped: bool,
    /// Of the last of its prompts; `None` while nothing was measured.
    pub predicted_ttft: Option<Micros>,
}

/// A whole completion.
#[derive(Clone, Debug, Default)]
pub struct Finished {
    pub text: String,
    pub tokens: Vec<TokenId>,
    pub logprobs: Vec<TokenLogprob>,
    pub reason: Option<FinishReason>,
    pub completion_tokens: u32,
}

/// What a stream hears.
pub enum Said {
    Text(usize, TextDelta),
    Finished { index: usize, reason: FinishReason, completion_tokens: u32 },
}

impl Running {
    /// Starts all or none: when one is refused, those before it are dropped.
    pub async fn start(generator: &Generator, raws: Vec<RawRequest>) -> Result<Running, RequestError> {
        let n = raws.first().and_then(|raw| raw.n).unwrap_or(1);
        if n > 0 && n.saturating_mul(raws.len() as i64) > MAX_SEQUENCES {
            let message = format!("{} prompts with n = {n} make more than {MAX_SEQUENCES} sequences", raws.len());
            return Err(RequestError::invalid("n", message));
        }
        let mut running = Running {
            streams: SelectAll::new(),
            prompt_tokens: Vec::new(),
            choices: 1,
            max_tokens_clamped: false,
            predicted_ttft: None,
        };
        // Room for all of them before any is tokenised.
        let admitted = raws.into_iter().map(|raw| generator.admit(raw)).collect::<Result<Vec<_>, _>>()?;
        for admitted in admitted {
            running.add(generator.submit(admitted).await?);
        }
        Ok(running)
    }

    fn add(&mut self, mut generation: Generation) {
        let first = self.prompt_tokens.len() * generation.choices as usize;
        self.choices = generation.choices as usize;
        self.max_tokens_clamped |= generation.max_tokens_clamped;
        self.predicted_ttft = generation.predicted_ttft.or(self.predicted_ttft);
        self.prompt_tokens.push(std::mem::take(&mut generation.prompt_tokens));
        let deltas = unfold(generation, move |mut generation| async move {
            let (choice, delta) = generation.next().await?;
            Some(((first + choice as usize, delta), generation))
        });
        self.streams.push(deltas.boxed());
    }

    /// The number of choices of all prompts.
    pub fn total(&self) -> usize {
        self.prompt_tokens.len() * self.choices
    }

    /// Of all prompts together; a prompt counts once, however many choices it has.
    pub fn prompt_token_count(&self) -> usize {
        self.prompt_tokens.iter().map(Vec::len).sum()
    }

    /// The next thing any choice says; `None` when all have finished. An error of one choice is the request's.
    pub async fn next(&mut self) -> Option<Result<Said, RequestError>> {
        let (index, delta) = self.streams.next().await?;
        Some(match delta {
            Delta::Text(text) => Ok(Said::Text(index, text)),
            // A client that is still here did not end it.
            Delta::Finished { reason: FinishReason::Abort, .. } => Err(RequestError::Aborted),
            Delta::Finished { reason, completion_tokens } => Ok(Said::Finished { index, reason, completion_tokens }),
            Delta::Failed(error) => Err(error),
        })
    }

    /// Waits for all choices, in the order of their indices.
    pub async fn collect(mut self) -> Result<(Running, Vec<Finished>), RequestError> {
        let mut choices = vec![Finished::default(); self.total()];
        while let Some(said) = self.next().await {
            match said? {
                Said::Text(index, delta) => {
                    let Some(choice) = choices.get_mut(index) else { continue };
                    choice.text.push_str(&delta.text);
                    choice.tokens.extend(delta.tokens);
                    choice.logprobs.extend(delta.logprobs);
                }
                Said::Finished { index, reason, completion_tokens } => {
                    let Some(choice) = choices.get_mut(index) else { continue };
                    choice.reason = Some(reason);
                    choice.completion_tokens = completion_tokens;
                }
            }
        }
        Ok((self, choices))
    }
}
