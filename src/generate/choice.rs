//! One sequence's events become text: detokenised, read (`reader.rs`), each token reported with the text it began in.

use std::collections::VecDeque;
use std::sync::Arc;

use super::delta::{Delta, TextDelta, TokenLogprob, TopLogprob};
use super::manner::Manner;
use super::reader::{Heard, Reader};
use forebay_core::request::{Event, FinishReason, Request, RequestError};
use forebay_core::step::{Logprobs, Sampled};
use forebay_core::units::{SeqId, TokenId};
use forebay_text::glyph::{self, Glyph};
use forebay_text::{Detokenizer, Tokenizer, TokenizerError};

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
    reader: Reader,
    /// Special tokens that the reader must see.
    marks: Vec<TokenId>,
    /// Drawn and not reported yet, oldest first.
    waiting: VecDeque<Waiting>,
    /// Bytes of text assembled so far, marks included. Of those the reader may hold some.
    assembled: usize,
    completion_tokens: u32,
}

struct Waiting {
    sampled: Sampled,
    /// Where in the text the token begins.
    start: usize,
    /// It is a part of the model's thinking.
    thought: bool,
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
            reader: Reader::new(manner),
            marks: Reader::marks(manner).filter_map(|mark| tokenizer.token_id(mark)).collect(),
            waiting: VecDeque::new(),
            assembled: 0,
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
            Event::Embedded(vector) => Ok(vec![Delta::Embedded(vector)]),
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
        let before = self.reader.is_thinking();
        self.waiting.push_back(Waiting { sampled, start: self.assembled, thought: before });
        if self.stop_tokens.contains(&token) && !self.include_stop {
            // Ends the completion and is no part of its text, even if it is a word. `Finished` follows.
            return Ok(Vec::new());
        }
        let glyphs = self.glyphs_of(token)?;
        self.assembled += glyphs.iter().map(|glyph| glyph.c.len_utf8()).sum::<usize>();
        let heard = self.reader.push(glyphs, self.completion_tokens > self.min_tokens);
        if self.reader.is_thinking() && !before {
            // What has not been reported is the tag that just became complete.
            self.waiting.iter_mut().for_each(|waiting| waiting.thought = true);
        }
        Ok(match heard.ended {
            None => self.pass(heard).into_iter().collect(),
            Some(reason) => self.end(heard, reason),
        })
    }

    /// Text, and the spelling of special tokens that are wanted or are marks of the reader's.
    fn glyphs_of(&mut self, token: TokenId) -> Result<Vec<Glyph>, TokenizerError> {
        if self.tokenizer.is_text(token) || !self.keep_special_tokens && !self.marks.contains(&token) {
            return Ok(glyph::plain(&self.detokenizer.push(token)?).collect());
        }
        let rest = self.detokenizer.finish()?;
        let spelling = self.tokenizer.token_text(token);
        Ok(match self.keep_special_tokens {
            true => glyph::plain(&rest).chain(glyph::plain(&spelling)).collect(),
            false => glyph::plain(&rest).chain(glyph::special(&spelling)).collect(),
        })
    }

    fn finish(&mut self, reason: FinishReason) -> Result<Vec<Delta>, TokenizerError> {
        let rest = self.detokenizer.finish()?;
        let heard = self.reader.finish(glyph::plain(&rest).collect());
        let reason = heard.ended.unwrap_or(reason);
        Ok(self.end(heard, reason))
    }

    /// Reports what was released with the tokens that begin in it.
    fn pass(&mut self, heard: Heard) -> Option<Delta> {
        if heard.is_empty() {
            return None;
        }
        let released = self.assembled - self.reader.held_bytes();
        let begun = self.waiting.partition_point(|waiting| waiting.start < released);
        Some(Delta::Text(self.report(heard, begun)))
    }

    /// Reports all that is left.
    fn end(&mut self, mut heard: Heard, reason: FinishReason) -> Vec<Delta> {
        heard.text += self.reader.matched().filter(|_| self.include_stop).unwrap_or_default();
        let silent = heard.is_empty();
        let last = self.report(heard, self.waiting.len());
        let text = (!silent || !last.tokens.is_empty()).then_some(Delta::Text(last));
        let reason = match reason {
            FinishReason::Stop if self.reader.has_called() => FinishReason::ToolCalls,
            other => other,
        };
        let stop = self.reader.matched().map(str::to_owned);
        let finished = Delta::Finished { reason, completion_tokens: self.completion_tokens, stop };
        text.into_iter().chain([finished]).collect()
    }

    fn report(&mut self, heard: Heard, tokens: usize) -> TextDelta {
        let Heard { text, reasoning, calls, .. } = heard;
        let mut delta = TextDelta { text, reasoning, calls, ..TextDelta::default() };
        for Waiting { sampled, thought, .. } in self.waiting.drain(..tokens).collect::<Vec<_>>() {
            delta.reasoning_tokens += usize::from(thought);
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
        TokenLogprob {
            token,
            text,
            bytes,
            hidden,
            logprob,
            rank: logprobs.rank,
            top: logprobs.top.into_iter().map(top).collect(),
        }
    }
}

/// A token on its own.
pub fn spelled(tokenizer: &Tokenizer, token: TokenId, logprob: f32) -> TopLogprob {
    TopLogprob { token, text: tokenizer.token_text(token), bytes: tokenizer.token_bytes(token).to_vec(), logprob }
}
