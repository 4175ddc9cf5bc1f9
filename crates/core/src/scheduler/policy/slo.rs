//! Prompts by their promises.

use super::proposal::SchedulingPlan;
use super::session::{SessionView, ids_by, prefills};
use crate::slo::Slo;
use crate::units::Micros;

/// Of a class the prompt with the earliest promise goes first, but those whose promise has passed go last: computing them first
/// would break the promises of others and keep none. Every decode goes on; how long a step may take follows from what is
/// promised to those that decode.
pub(super) fn tick(slo: &Slo, sessions: &[SessionView], slots: usize, now: Micros) -> SchedulingPlan {
    let promised = |session: &SessionView| slo.promised(session.priority, session.received);
    let by_promise = |session: &SessionView| (promised(session) < now, promised(session), session.arrival);
    let mut decode_ids = ids_by(sessions.iter().filter(|session| session.decoding), |session| session.arrival);
    decode_ids.truncate(slots);
    SchedulingPlan { decode_ids, prefill_ids: prefills(sessions, by_promise), batch_groups: Vec::new() }
}
