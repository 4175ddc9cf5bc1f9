//! One sequence's events become text: detokenised, cut at stop strings, each token reported with the text it began in.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Delta, TextDelta, TokenLogprob, TopLogprob};
use crate::request::{Event, FinishReason, Request, RequestError};
use crate::step::{Logprobs, Sampled};
use crate::text::{Detokenizer, Scan, StopMatcher, Tokenizer, TokenizerError};
use crate::units::{SeqId, TokenId};

/// How a completion is written and cut.
pub struct Manner {
    pub stop: Vec<String>,
    /// What ended the completion is part of its text.
    pub include_stop: bool,
    /// Special tokens are spelled out.
    pub keep_special_tokens: bool,
}

pub struct Choice {
    seq: SeqId,
    stop_tokens: Vec<TokenId>,
    include_stop: bool,
    keep_special_tokens: bool,
    /// Stop strings count from the token after these.
    min_tokens: u32,
    logprobs: bool,
    /// Until the first token has brought their logprobs.
    prompt: Option<Vec<TokenId>>,
    tokenizer: Arc<Tokenizer>,
    detokenizer: Detokenizer,
    stops: StopMatcher,
    /// Drawn and not reported yet, oldest first.
    waiting: VecDeque<Waiting>,
    /// Bytes of text assembled so far, and of those the ones reported. What lies between is held for stop strings.
    assembled: usize,
    reported: usize,
    completion_tokens: u32,
}

struct Waiting {
    sampled: Sampled,
    /// Where in the text the token begins.
    start: usize,
}

impl Choice {
    pub fn new(tokenizer: &Arc<Tokenizer>, request: &Request, manner: &Manner) -> Choice {
        Choice {
            seq: request.id(),
            stop_tokens: request.stop_tokens().to_vec(),
            include_stop: manner.include_stop,
            keep_special_tokens: manner.keep_special_tokens,
            min_tokens: request.shaping().min_tokens,
            logprobs: request.logprobs().is_some(),
            prompt: request.prompt_logprobs().map(|_| request.prompt().to_vec()),
            tokenizer: Arc::clone(tokenizer),
            detokenizer: match request.grammar() {
                Some(_) => Detokenizer::verbatim(Arc::clone(tokenizer)),
                None => Detokenizer::new(Arc::clone(tokenizer)),
            },
            stops: StopMatcher::new(manner.stop.clone()),
            waiting: VecDeque::new(),
            assembled: 0,
            reported: 0,
            completion_tokens: 0,
        }
    }

    pub fn seq(&self) -> SeqId {
        self.seq
    }

    /// What the client hears of an event. After `Finished` or `Failed` nothing more may be asked.
    pub fn hear(&mut self, event: Event) -> Vec<Delta> {
        let deltas = match event {
            Event::Admitted { cached_tokens } => Ok(vec![Delta::Admitted { cached_tokens }]),
            Event::Token(sampled) => self.token(sampled),
            Event::Finished(reason) => self.finish(reason),
            Event::Failed(error) => Ok(vec![Delta::Failed(error)]),
        };
        // Only decoders of crafted files fail, and their messages may quote the text.
        deltas.unwrap_or_else(|_| vec![Delta::Failed(RequestError::Internal)])
    }

    fn token(&mut self, mut sampled: Sampled) -> Result<Vec<Delta>, TokenizerError> {
        let prompt = self.prompt_logprobs(&mut sampled);
        let deltas = self.completion(sampled)?;
        Ok(prompt.into_iter().chain(deltas).collect())
    }

    /// Comes with the first token.
    fn prompt_logprobs(&mut self, sampled: &mut Sampled) -> Option<Delta> {
        let tokens = self.prompt.take()?;
        let logprobs = sampled.logprobs.as_mut().map(|logprobs| std::mem::take(&mut logprobs.prompt));
        let spell = |(token, logprobs): (&TokenId, Logprobs)| self.spell(*token, logprobs);
        Some(Delta::Prompt(tokens.iter().skip(1).zip(logprobs.unwrap_or_default()).map(spell).collect()))
    }

    fn completion(&mut self, sampled: Sampled) -> Result<Vec<Delta>, TokenizerError> {
        self.completion_tokens += 1;
        let token = sampled.token;
        self.waiting.push_back(Waiting { sampled, start: self.assembled });
        if self.stop_tokens.contains(&token) && !self.include_stop {
            // Ends the completion and is no part of its text, even if it is a word. `Finished` follows.
            return Ok(Vec::new());
        }
        let text = self.text_of(token)?;
        self.assembled += text.len();
        if self.completion_tokens <= self.min_tokens {
            return Ok(self.pass(text).into_iter().collect());
        }
        Ok(match self.stops.push(&text) {
            Scan::Pass(text) => self.pass(text).into_iter().collect(),
            Scan::Stop(text) => self.end(text, FinishReason::Stop),
        })
    }

    fn text_of(&mut self, token: TokenId) -> Result<String, TokenizerError> {
        if self.keep_special_tokens && !self.tokenizer.is_text(token) {
            return Ok(self.detokenizer.finish()? + &self.tokenizer.token_text(token));
        }
        self.detokenizer.push(token)
    }

    fn finish(&mut self, reason: FinishReason) -> Result<Vec<Delta>, TokenizerError> {
        let rest = self.detokenizer.finish()?;
        Ok(match self.stops.push(&rest) {
            Scan::Pass(text) => {
                let text = text + &self.stops.finish();
                self.end(text, reason)
            }
            Scan::Stop(text) => self.end(text, FinishReason::Stop),
        })
    }

    /// Reports released text with the tokens that begin in it.
    fn pass(&mut self, text: String) -> Option<Delta> {
        if text.is_empty() {
            return None;
        }
        self.reported += text.len();
        let begun = self.waiting.partition_point(|waiting| waiting.start < self.reported);
        Some(Delta::Text(self.report(text, begun)))
    }

    /// Reports all that is left.
    fn end(&mut self, text: String, reason: FinishReason) -> Vec<Delta> {
        let stop = self.stops.matched().filter(|_| self.include_stop).unwrap_or_default();
        let text = text + stop;
        let last = self.report(text, self.waiting.len());
        let text = (!last.text.is_empty() || !last.tokens.is_empty()).then_some(Delta::Text(last));
        let finished = Delta::Finished { reason, completion_tokens: self.completion_tokens };
        text.into_iter().chain([finished]).collect()
    }

    fn report(&mut self, text: String, tokens: usize) -> TextDelta {
        let mut delta = TextDelta { text, ..TextDelta::default() };
        for Waiting { sampled, .. } in self.waiting.drain(..tokens).collect::<Vec<_>>() {
            delta.tokens.push(sampled.token);
            let logprobs = sampled.logprobs.filter(|_| self.logprobs);
            delta.logprobs.extend(logprobs.map(|logprobs| self.spell(sampled.token, logprobs)));
        }
        delta
    }

    fn spell(&self, token: TokenId, logprobs: Logprobs) -> TokenLogprob {
        let top = |(token, logprob)| spelled(&self.tokenizer, token, logprob);
        let hidden = !self.keep_special_tokens && !self.tokenizer.is_text(token);
        let TopLogprob { text, bytes, logprob, .. } = top((token, logprobs.sampled));
        TokenLogprob { token, text, bytes, hidden, logprob, top: logprobs.top.into_iter().map(top).collect() }
    }
}

/// A token on its own.
pub fn spelled(tokenizer: &Tokenizer, token: TokenId, logprob: f32) -> TopLogprob {
    TopLogprob { token, text: tokenizer.token_text(token), bytes: tokenizer.token_bytes(token).to_vec(), logprob }
}
