//! Prompts before decodes, the shortest first, and of the decodes the youngest.

use super::proposal::SchedulingPlan;
use super::session::{SessionView, ids_by, prefills};

/// Every prompt takes a slot before any decode does; of a class the one with the fewest tokens left goes first, which makes
/// the mean time to the first token least (shortest remaining processing time; Schrage 1968). Of the decodes, who has
/// generated least; among equals who came first, or a stream of newcomers would keep the first of them waiting.
pub(super) fn tick(sessions: &[SessionView], slots: usize) -> SchedulingPlan {
    let prefill_ids = prefills(sessions, |session| (session.prefill_remaining, session.arrival));
    let youngest = |session: &SessionView| (session.generated, session.arrival);
    let mut decode_ids = ids_by(sessions.iter().filter(|session| session.decoding), youngest);
    decode_ids.truncate(slots.saturating_sub(prefill_ids.len()));
    SchedulingPlan { decode_ids, prefill_ids, batch_groups: Vec::new() }
}
