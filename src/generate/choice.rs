//! One sequence's events become text: detokenised, cut at stop strings, each token reported with the text it began in.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Delta, TextDelta, TokenLogprob, TopLogprob};
use crate::request::{Event, FinishReason, Request, RequestError};
use crate::step::{Logprobs, Sampled};
use crate::text::{Detokenizer, Scan, StopMatcher, Tokenizer, TokenizerError};
use crate::units::{SeqId, TokenId};

pub struct Choice {
    seq: SeqId,
    stop_tokens: Vec<TokenId>,
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
    pub fn new(tokenizer: &Arc<Tokenizer>, request: &Request, stop: &[String]) -> Choice {
        Choice {
            seq: request.id(),
            stop_tokens: request.stop_tokens().to_vec(),
            tokenizer: Arc::clone(tokenizer),
            detokenizer: Detokenizer::new(Arc::clone(tokenizer)),
            stops: StopMatcher::new(stop.to_vec()),
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
            Event::Token(sampled) => self.token(sampled),
            Event::Finished(reason) => self.finish(reason),
            Event::Failed(error) => Ok(vec![Delta::Failed(error)]),
        };
        // Only decoders of crafted files fail, and their messages may quote the text.
        deltas.unwrap_or_else(|_| vec![Delta::Failed(RequestError::Internal)])
    }

    fn token(&mut self, sampled: Sampled) -> Result<Vec<Delta>, TokenizerError> {
        self.completion_tokens += 1;
        let token = sampled.token;
        self.waiting.push_back(Waiting { sampled, start: self.assembled });
        if self.stop_tokens.contains(&token) {
            // Ends the completion and is no part of its text, even if it is a word. `Finished` follows.
            return Ok(Vec::new());
        }
        let text = self.detokenizer.push(token)?;
        self.assembled += text.len();
        Ok(match self.stops.push(&text) {
            Scan::Pass(text) => self.pass(text).into_iter().collect(),
            Scan::Stop(text) => self.end(text, FinishReason::Stop),
        })
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
        let last = self.report(text, self.waiting.len());
        let text = (!last.text.is_empty() || !last.tokens.is_empty()).then_some(Delta::Text(last));
        let finished = Delta::Finished { reason, completion_tokens: self.completion_tokens };
        text.into_iter().chain([finished]).collect()
    }

    fn report(&mut self, text: String, tokens: usize) -> TextDelta {
        let mut delta = TextDelta { text, ..TextDelta::default() };
        for Waiting { sampled, .. } in self.waiting.drain(..tokens) {
            delta.tokens.push(sampled.token);
            delta.logprobs.extend(sampled.logprobs.map(|logprobs| spell(&self.tokenizer, sampled.token, logprobs)));
        }
        delta
    }
}

fn spell(tokenizer: &Tokenizer, token: TokenId, logprobs: Logprobs) -> TokenLogprob {
    let top = |(token, logprob)| TopLogprob {
        token,
        text: tokenizer.token_text(token),
        bytes: tokenizer.token_bytes(token).to_vec(),
        logprob,
    };
    let TopLogprob { text, bytes, logprob, .. } = top((token, logprobs.sampled));
    TokenLogprob { token, text, bytes, logprob, top: logprobs.top.into_iter().map(top).collect() }
}
