//! What policies see of the live sequences.

use crate::units::SeqId;

/// What a policy may know of a live sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionView {
    pub id: SeqId,
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

/// Whose prompts are not computed, sorted by `key`.
pub(super) fn prefills<K: Ord>(sessions: &[SessionView], key: impl Fn(&SessionView) -> K) -> Vec<SeqId> {
    let wants = |session: &&SessionView| !session.decoding && session.prefill_remaining > 0;
    ids_by(sessions.iter().filter(wants), key)
}

pub(super) fn ids_by<'a, K: Ord>(
    sessions: impl Iterator<Item = &'a SessionView>,
    key: impl Fn(&SessionView) -> K,
) -> Vec<SeqId> {
    let mut sessions: Vec<&SessionView> = sessions.collect();
    sessions.sort_by_key(|session| key(session));
    sessions.into_iter().map(|session| session.id).collect()
}
