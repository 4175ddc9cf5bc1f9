//! What policies see of the live sequences.

use crate::request::Priority;
use crate::units::{Micros, SeqId};

/// What a policy may know of a live sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionView {
    pub id: SeqId,
    pub priority: Priority,
    /// When it came.
    pub received: Micros,
    /// All its tokens but the one drawn last are computed.
    pub decoding: bool,
    /// The token that its next decode step reads is there, or is being drawn.
    pub has_token: bool,
    pub generated: usize,
    /// Place in the order of submission.
    pub arrival: u64,
    /// Tokens to compute before it decodes; 0 while it does.
    pub prefill_remaining: usize,
}

impl SessionView {
    /// Its prompt is not computed yet.
    pub fn is_prompt(&self) -> bool {
        !self.decoding && self.prefill_remaining > 0
    }

    /// Its class lets no policy keep it waiting: above normal.
    pub fn is_urgent(&self) -> bool {
        self.priority <= Priority::High
    }
}

/// Whose prompts are not computed, by class and within one by `key`.
pub(super) fn prefills<K: Ord>(sessions: &[SessionView], key: impl Fn(&SessionView) -> K) -> Vec<SeqId> {
    ids_by(sessions.iter().filter(|session| session.is_prompt()), |session| (session.priority, key(session)))
}

pub(super) fn ids_by<'a, K: Ord>(
    sessions: impl Iterator<Item = &'a SessionView>,
    key: impl Fn(&SessionView) -> K,
) -> Vec<SeqId> {
    let mut sessions: Vec<&SessionView> = sessions.collect();
    sessions.sort_by_key(|session| key(session));
    sessions.into_iter().map(|session| session.id).collect()
}
