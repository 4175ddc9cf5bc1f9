//! Prompts before decodes, the youngest first.

use super::proposal::SchedulingPlan;
use super::session::{SessionView, ids_by, prefills};

/// Every prompt takes a slot before any decode does. Youngest is who has generated least; among equals who came first,
/// or a stream of newcomers would keep the first of them waiting.
pub(super) fn tick(sessions: &[SessionView], slots: usize) -> SchedulingPlan {
    let youngest = |session: &SessionView| (session.generated, session.arrival);
    let prefill_ids = prefills(sessions, youngest);
    let mut decode_ids = ids_by(sessions.iter().filter(|session| session.decoding), youngest);
    decode_ids.truncate(slots.saturating_sub(prefill_ids.len()));
    SchedulingPlan { decode_ids, prefill_ids, batch_groups: Vec::new() }
}
