//! `latency_first`: new requests get their first token, and young streams their next, before old streams go on.

use super::{SessionView, decoding, prefilling, sorted_by};
use crate::units::SeqId;

/// Prefills take their slots first, the shortest first, since it is the one that can be done with soonest.
pub(super) fn tick(sessions: &[SessionView], slots: usize) -> (Vec<SeqId>, Vec<SeqId>) {
    let prefill_ids = sorted_by(prefilling(sessions), |session| (session.prefill_remaining, session.arrival));
    let mut decode_ids = sorted_by(decoding(sessions), |session| (session.generated, session.arrival));
    decode_ids.truncate(slots.saturating_sub(prefill_ids.len()));
    (decode_ids, prefill_ids)
}
