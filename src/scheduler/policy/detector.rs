//! Which sessions decode together.

use crate::units::{SeqId, TokenId};

/// What decides whether a session can be batched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSessionInfo {
    pub id: SeqId,
    pub decoding: bool,
    pub current_token: Option<TokenId>,
}

impl BatchSessionInfo {
    /// It decodes, and there is a token to go on from.
    pub fn is_eligible(&self) -> bool {
        self.decoding && self.current_token.is_some()
    }
}

/// Sessions that compute together; both lists have one length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchGroup {
    pub session_ids: Vec<SeqId>,
    pub tokens_per_session: Vec<usize>,
}

impl BatchGroup {
    /// Each session computes one token.
    fn of(ids: impl IntoIterator<Item = SeqId>) -> BatchGroup {
        let session_ids: Vec<SeqId> = ids.into_iter().collect();
        BatchGroup { tokens_per_session: vec![1; session_ids.len()], session_ids }
    }

    pub fn size(&self) -> usize {
        self.session_ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.session_ids.is_empty()
    }

    pub fn total_tokens(&self) -> usize {
        self.tokens_per_session.iter().sum()
    }

    /// Groups of at most `max` sessions, in order; none for an empty group.
    pub fn split(self, max: usize) -> Vec<BatchGroup> {
        let ids = self.session_ids.chunks(max.max(1));
        let tokens = self.tokens_per_session.chunks(max.max(1));
        let group = |(ids, tokens): (&[SeqId], &[usize])| BatchGroup {
            session_ids: ids.to_vec(),
            tokens_per_session: tokens.to_vec(),
        };
        ids.zip(tokens).map(group).collect()
    }
}

/// Groups sessions of at least `min_batch` and at most `max_batch`.
#[derive(Clone, Copy, Debug)]
pub struct BatchDetector {
    min_batch: usize,
    max_batch: usize,
}

impl BatchDetector {
    pub fn new(min_batch: usize, max_batch: usize) -> BatchDetector {
        BatchDetector { min_batch, max_batch }
    }

    /// The eligible sessions in groups, in order; fewer than the minimum are a group each.
    pub fn detect(&self, sessions: &[BatchSessionInfo]) -> Vec<BatchGroup> {
        let eligible: Vec<SeqId> =
            sessions.iter().filter(|session| session.is_eligible()).map(|session| session.id).collect();
        if eligible.len() < self.min_batch {
            return eligible.into_iter().map(|id| BatchGroup::of([id])).collect();
        }
        BatchGroup::of(eligible).split(self.max_batch)
    }
}
