//! A sequence in its two states, and the ways between them.

use crate::kv::BlockTable;
use crate::report::{SequenceView, Stage};
use crate::request::{FinishReason, Request};
use crate::units::{Micros, SeqId, TokenId};

use super::plan::Chunk;

/// Without blocks: new, or preempted and to be recomputed.
#[derive(Debug)]
pub struct Waiting {
    request: Request,
    /// Already sent to the client; kept through preemption, so that its stream just continues.
    emitted: Vec<TokenId>,
    /// Place in the order of submission.
    pub arrival: u64,
}

/// With blocks for at least its computed tokens.
#[derive(Debug)]
pub struct Running {
    request: Request,
    /// Prompt and emitted tokens.
    tokens: Vec<TokenId>,
    /// Tokens whose K and V are in the cache.
    pub computed: u32,
    pub table: BlockTable,
    pub arrival: u64,
    /// When a chunk of it was last planned, or when it took its seat.
    pub last_turn: Micros,
}

/// What a new token means for its sequence.
#[derive(Debug, PartialEq, Eq)]
pub enum Advance {
    Continues,
    Ends(FinishReason),
}

impl Waiting {
    pub fn new(request: Request, arrival: u64) -> Waiting {
        Waiting { request, emitted: Vec::new(), arrival }
    }

    pub fn id(&self) -> SeqId {
        self.request.id()
    }

    pub fn request(&self) -> &Request {
        &self.request
    }

    pub fn view(&self) -> SequenceView {
        view(&self.request, Stage::Waiting, 0, self.emitted.len(), 0)
    }

    /// Tokens to compute before the next one can be drawn.
    pub fn known(&self) -> usize {
        self.request.prompt().len() + self.emitted.len()
    }

    pub fn admit(self, table: BlockTable, now: Micros) -> Running {
        let tokens = [self.request.prompt(), &self.emitted].concat();
        Running { request: self.request, tokens, computed: 0, table, arrival: self.arrival, last_turn: now }
    }
}

impl Running {
    pub fn preempt(self) -> (Waiting, BlockTable) {
        let emitted = self.tokens[self.request.prompt().len()..].to_vec();
        (Waiting { request: self.request, emitted, arrival: self.arrival }, self.table)
    }

    pub fn id(&self) -> SeqId {
        self.request.id()
    }

    pub fn request(&self) -> &Request {
        &self.request
    }

    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    pub fn generated(&self) -> usize {
        self.tokens.len() - self.request.prompt().len()
    }

    /// Only its newest token is missing from the cache.
    pub fn decodes(&self) -> bool {
        self.remaining() == 1
    }

    pub fn view(&self) -> SequenceView {
        let stage = if self.decodes() { Stage::Decode } else { Stage::Prefill };
        view(&self.request, stage, self.computed as usize, self.generated(), self.table.ids().count())
    }

    /// Known tokens that are not computed; never 0 between steps. 1 once only the newest token is missing.
    pub fn remaining(&self) -> usize {
        self.tokens.len() - self.computed as usize
    }

    /// Its part of a step that may compute `budget` tokens, at least 1.
    pub fn chunk(&self, budget: usize) -> Chunk {
        let count = self.remaining().min(budget);
        let end = self.computed + count as u32;
        let sample = end as usize == self.tokens.len();
        Chunk {
            seq: self.id(),
            tokens: self.computed..end,
            sample,
            decode: count == 1 && sample && self.tokens.len() > self.request.prompt().len(),
        }
    }

    /// Appends a drawn token.
    pub fn emit(&mut self, token: TokenId, max_model_len: usize) -> Advance {
        self.tokens.push(token);
        let emitted = self.tokens.len() - self.request.prompt().len();
        if self.request.is_stop(token) {
            Advance::Ends(FinishReason::Stop)
        } else if emitted >= self.request.max_tokens() as usize || self.tokens.len() >= max_model_len {
            Advance::Ends(FinishReason::Length)
        } else {
            Advance::Continues
        }
    }
}

fn view(request: &Request, stage: Stage, computed: usize, generated: usize, blocks: usize) -> SequenceView {
    SequenceView {
        seq: request.id(),
        origin: request.origin().clone(),
        priority: request.priority(),
        stage,
        deadline: request.deadline(),
        prompt_tokens: request.prompt().len(),
        max_tokens: request.max_tokens() as usize,
        computed_tokens: computed,
        generated_tokens: generated,
        blocks,
    }
}
