//! A sequence in its two states, and the ways between them.

use crate::kv::{BlockPool, BlockTable, Node};
use crate::report::{SequenceView, Stage};
use crate::request::{FinishReason, Priority, Request};
use crate::units::{Micros, SeqId, TokenId};

use super::chunk::Chunk;
use super::lookup::{AcceptanceRate, MOST_GUESSES, Speculative, lookup};
use super::policy::SessionView;

/// Without blocks: new, or preempted and to be recomputed.
#[derive(Debug)]
pub struct Waiting {
    request: Request,
    /// Already sent to the client; kept through preemption, so that its stream just continues.
    emitted: Vec<TokenId>,
    /// Place in the order of submission.
    pub arrival: u64,
    /// It ran before and was preempted.
    pub ran: bool,
    /// Steps in a row that went by without it, as of [`Running::passed_over`].
    pub passed_over: u32,
}

/// Where a sequence's blocks come from and go to in the prefix cache.
#[derive(Debug)]
pub struct Place {
    /// Below which its next full block hangs.
    pub node: Node,
    /// Its full blocks that are in the tree.
    pub published: usize,
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
    /// `None` where it has no part in the prefix cache.
    pub place: Option<Place>,
    pub arrival: u64,
    /// Steps in a row that went by without it, those not counted in which its policy meant it to wait.
    pub passed_over: u32,
    /// When the plan after its newest token was made; `None` until then.
    pub token_at: Option<Micros>,
    pub acceptance: AcceptanceRate,
    /// Tokens that its grammar says must come next.
    pub forced: Vec<TokenId>,
}

/// What a new token means for its sequence.
#[derive(Debug, PartialEq, Eq)]
pub enum Advance {
    Continues,
    Ends(FinishReason),
}

impl Waiting {
    pub fn new(request: Request, arrival: u64) -> Waiting {
        Waiting { request, emitted: Vec::new(), arrival, ran: false, passed_over: 0 }
    }

    pub fn id(&self) -> SeqId {
        self.request.id()
    }

    pub fn request(&self) -> &Request {
        &self.request
    }

    /// It yields to everyone who is no batch's.
    pub fn is_batch(&self) -> bool {
        self.request.priority() == Priority::Batch
    }

    /// Who goes first of those that wait, the smaller before the larger. Whoever ran already goes on before anyone of normal
    /// or below begins: its client is in the middle of an answer.
    pub fn rank(&self) -> usize {
        let rank = 2 * self.request.priority().index();
        let after_high = 2 * Priority::High.index() + 1;
        if self.ran { rank.min(after_high) } else { rank }
    }

    /// Tokens to compute before the next one can be drawn.
    pub fn known(&self) -> usize {
        self.request.prompt().len() + self.emitted.len()
    }

    /// How many of the beginning of `tokens`, a sequence's of `request`, the prefix cache will have once this prompt is computed;
    /// `None` where that is less than a block.
    pub fn will_share(&self, request: &Request, tokens: &[TokenId], block_size: usize) -> Option<usize> {
        let leads = self.request.may_use_cache() && may_lead(&self.request, request);
        let common = || beginning(tokens, self.request.prompt());
        leads.then(common).filter(|common| *common >= block_size)
    }

    /// What it knows so far, in order.
    pub fn tokens(&self) -> Vec<TokenId> {
        [self.request.prompt(), &self.emitted].concat()
    }

    /// `table` holds its first `computed` tokens already.
    pub fn admit(self, table: BlockTable, computed: usize, place: Option<Place>) -> Running {
        let tokens = self.tokens();
        Running {
            request: self.request,
            tokens,
            computed: computed as u32,
            table,
            place,
            arrival: self.arrival,
            passed_over: 0,
            token_at: None,
            acceptance: AcceptanceRate::default(),
            forced: Vec::new(),
        }
    }

    /// As a policy sees it.
    pub fn session(&self) -> SessionView {
        SessionView {
            id: self.id(),
            priority: self.request.priority(),
            received: self.request.origin().received,
            decoding: false,
            has_token: false,
            generated: self.emitted.len(),
            arrival: self.arrival,
            prefill_remaining: self.known(),
        }
    }

    pub fn view(&self) -> SequenceView {
        view(&self.request, Stage::Waiting, self.emitted.len())
    }
}

impl Running {
    /// Gives its blocks back, what it computed in them findable, and waits to go on.
    pub fn preempt(mut self, pool: &mut BlockPool) -> Waiting {
        self.publish_rest(pool);
        let emitted = self.tokens[self.request.prompt().len()..].to_vec();
        self.table.release(pool);
        Waiting { request: self.request, emitted, arrival: self.arrival, ran: true, passed_over: 0 }
    }

    /// Gives its blocks back for good. What a failed step left in them is nobody's.
    pub fn leave(mut self, failed: bool, pool: &mut BlockPool) {
        if !failed {
            self.publish_rest(pool);
        }
        self.table.release(pool);
    }

    /// Lets others find the full blocks that it has computed.
    pub fn publish(&mut self, pool: &mut BlockPool) {
        let Some(place) = &mut self.place else { return };
        let size = pool.block_size();
        while (place.published + 1) * size <= self.computed as usize {
            let tokens = &self.tokens[place.published * size..][..size];
            place.node = pool.publish(&place.node, tokens, &self.table.blocks()[place.published]);
            place.published += 1;
        }
    }

    /// Lets others copy from the block that it has filled in part: what is computed there stays as it is, also while more is
    /// written behind it.
    pub fn publish_rest(&mut self, pool: &mut BlockPool) {
        let Some(place) = &self.place else { return };
        let rest = &self.tokens[place.published * pool.block_size()..self.computed as usize];
        if !rest.is_empty() {
            pool.publish_rest(&place.node, rest, &self.table.blocks()[place.published]);
        }
    }

    pub fn id(&self) -> SeqId {
        self.request.id()
    }

    pub fn request(&self) -> &Request {
        &self.request
    }

    pub fn is_batch(&self) -> bool {
        self.request.priority() == Priority::Batch
    }

    /// Its prompt is being computed, and will be found in the prefix cache.
    pub fn shares_prefix(&self) -> bool {
        self.place.is_some() && !self.is_decoding()
    }

    /// How many of the beginning of `tokens`, a sequence's of `request`, the prefix cache will have once this prompt is computed;
    /// `None` unless that is at least a block more than it has now.
    pub fn will_share(&self, request: &Request, tokens: &[TokenId], block_size: usize) -> Option<usize> {
        let leads = self.shares_prefix() && may_lead(&self.request, request);
        let common = || beginning(tokens, &self.tokens);
        leads.then(common).filter(|common| *common >= self.computed as usize + block_size)
    }

    /// Its place among those that run.
    pub fn order(&self) -> (Priority, u64) {
        (self.request.priority(), self.arrival)
    }

    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Tokens drawn so far.
    pub fn generated(&self) -> usize {
        self.tokens.len() - self.request.prompt().len()
    }

    /// Appends a drawn token.
    pub fn emit(&mut self, token: TokenId, max_model_len: usize) -> Advance {
        self.tokens.push(token);
        self.token_at = None;
        if self.request.is_stop(token) {
            Advance::Ends(FinishReason::Stop)
        } else if self.generated() >= self.request.max_tokens() as usize || self.tokens.len() >= max_model_len {
            Advance::Ends(FinishReason::Length)
        } else {
            Advance::Continues
        }
    }

    /// Prompt and drawn tokens, computed or not.
    pub fn known(&self) -> usize {
        self.tokens.len()
    }

    /// Known tokens that are not computed; never 0 between steps.
    pub fn remaining(&self) -> usize {
        self.known() - self.computed as usize
    }

    /// Only the token drawn last is missing.
    pub fn is_decoding(&self) -> bool {
        self.remaining() == 1 && self.generated() > 0
    }

    /// Known tokens to compute before it decodes.
    pub fn prefill_remaining(&self) -> usize {
        if self.is_decoding() { 0 } else { self.remaining() }
    }

    /// Its part of a step that may compute `budget` tokens, at least 1.
    pub fn chunk(&self, budget: usize) -> Chunk {
        let end = self.computed as usize + self.remaining().min(budget);
        Chunk {
            seq: self.id(),
            tokens: self.computed..end as u32,
            proposed: 0,
            sample: end == self.known(),
            decode: self.is_decoding(),
        }
    }

    /// How many guesses it has, at most `room`.
    pub fn guesses(&self, room: usize, speculative: Speculative) -> usize {
        // The last token of all is drawn, not guessed.
        let left = self.request.max_tokens() as usize - self.generated() - 1;
        let most = room.min(left);
        if !self.forced.is_empty() {
            return most.min(self.forced.len());
        }
        if speculative == Speculative::Off || self.acceptance.rests(self.generated()) {
            return 0;
        }
        lookup(&self.tokens, most.min(MOST_GUESSES)).len()
    }

    /// Its first `count` guesses, of which it has as many.
    pub fn guessed(&self, count: usize) -> &[TokenId] {
        if self.forced.is_empty() { lookup(&self.tokens, count) } else { &self.forced[..count.min(self.forced.len())] }
    }

    /// As a policy sees it.
    pub fn session(&self) -> SessionView {
        SessionView {
            id: self.id(),
            priority: self.request.priority(),
            received: self.request.origin().received,
            decoding: self.is_decoding(),
            has_token: self.is_decoding(),
            generated: self.generated(),
            arrival: self.arrival,
            prefill_remaining: self.prefill_remaining(),
        }
    }

    pub fn view(&self) -> SequenceView {
        let stage = if self.is_decoding() { Stage::Decode } else { Stage::Prefill };
        let view = view(&self.request, stage, self.generated());
        let (computed_tokens, to_compute) = (self.computed as usize, self.prefill_remaining());
        SequenceView { computed_tokens, to_compute, blocks: self.table.len(), ..view }
    }
}

/// Whether `follower` may wait for what `leader` computes: one of its class or above, whose blocks it may use.
fn may_lead(leader: &Request, follower: &Request) -> bool {
    leader.priority() <= follower.priority() && leader.cache_salt() == follower.cache_salt()
}

/// How many of the beginning of `tokens` another sequence has in common, all but the last at most: that one is computed whatever
/// the cache has.
fn beginning(tokens: &[TokenId], other: &[TokenId]) -> usize {
    let own = &tokens[..tokens.len() - 1];
    own.iter().zip(other).take_while(|(mine, theirs)| mine == theirs).count()
}

/// Of a sequence without blocks.
fn view(request: &Request, stage: Stage, generated: usize) -> SequenceView {
    SequenceView {
        seq: request.id(),
        origin: request.origin().clone(),
        priority: request.priority(),
        stage,
        deadline: request.deadline(),
        prompt_tokens: request.prompt().len(),
        max_tokens: request.max_tokens() as usize,
        computed_tokens: 0,
        to_compute: request.prompt().len() + generated,
        generated_tokens: generated,
        blocks: 0,
    }
}
