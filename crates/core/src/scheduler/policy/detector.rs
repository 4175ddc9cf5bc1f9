//! Which sessions decode together.

use crate::units::SeqId;

use super::session::SessionView;

/// What the detector reads of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSessionInfo {
    pub id: SeqId,
    pub decoding: bool,
    pub has_token: bool,
    /// Tokens that it computes in the batch.
    pub tokens: usize,
}

impl BatchSessionInfo {
    /// Only who decodes and has the token that its step reads can join a batch.
    pub fn is_eligible(&self) -> bool {
        self.decoding && self.has_token
    }
}

impl From<&SessionView> for BatchSessionInfo {
    fn from(session: &SessionView) -> BatchSessionInfo {
        let SessionView { id, decoding, has_token, .. } = *session;
        BatchSessionInfo { id, decoding, has_token, tokens: 1 }
    }
}

/// Sessions that run as one batch; both lists have the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchGroup {
    pub session_ids: Vec<SeqId>,
    pub tokens_per_session: Vec<usize>,
}

impl BatchGroup {
    fn of(sessions: &[BatchSessionInfo]) -> BatchGroup {
        BatchGroup {
            session_ids: sessions.iter().map(|session| session.id).collect(),
            tokens_per_session: sessions.iter().map(|session| session.tokens).collect(),
        }
    }

    pub fn size(&self) -> usize {
        self.session_ids.len()
    }

    pub fn total_tokens(&self) -> usize {
        self.tokens_per_session.iter().sum()
    }

    /// The same sessions in the same order, in groups of at most `max` (at least 1); none for an empty group.
    pub fn split(self, max: usize) -> Vec<BatchGroup> {
        let max = max.max(1);
        let sessions = self.session_ids.chunks(max).zip(self.tokens_per_session.chunks(max));
        let group = |(ids, tokens): (&[SeqId], &[usize])| BatchGroup {
            session_ids: ids.to_vec(),
            tokens_per_session: tokens.to_vec(),
        };
        sessions.map(group).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchDetector {
    pub min_batch: usize,
    pub max_batch: usize,
}

impl BatchDetector {
    /// The eligible sessions in groups, their order kept: each alone when there are fewer than `min_batch`, else together
    /// in groups of at most `max_batch`.
    pub fn detect(&self, sessions: &[BatchSessionInfo]) -> Vec<BatchGroup> {
        let eligible: Vec<BatchSessionInfo> = sessions.iter().copied().filter(BatchSessionInfo::is_eligible).collect();
        let size = if eligible.len() < self.min_batch { 1 } else { self.max_batch };
        BatchGroup::of(&eligible).split(size)
    }
}
