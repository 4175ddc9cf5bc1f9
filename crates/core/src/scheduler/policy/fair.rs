//! Round robin.

use std::collections::HashMap;

use crate::units::SeqId;

use super::proposal::SchedulingPlan;
use super::session::{SessionView, prefills};

/// Each decoding sequence holds a numbered ticket. Who was served draws a new one, so the lowest number has waited longest.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RoundRobin {
    tickets: HashMap<SeqId, u64>,
    next: u64,
}

impl RoundRobin {
    pub(super) fn tick(&mut self, sessions: &[SessionView], slots: usize) -> SchedulingPlan {
        let mut queue = self.queue(sessions);
        queue.truncate(slots);
        for &seq in &queue {
            self.tickets.insert(seq, self.next);
            self.next += 1;
        }
        SchedulingPlan {
            decode_ids: queue,
            prefill_ids: prefills(sessions, |session| session.arrival),
            batch_groups: Vec::new(),
        }
    }

    /// Those that decode, longest unserved first; newcomers at the end. Tickets of those that left are dropped.
    fn queue(&mut self, sessions: &[SessionView]) -> Vec<SeqId> {
        let mut old = std::mem::take(&mut self.tickets);
        let mut queue = Vec::with_capacity(sessions.len());
        for session in sessions.iter().filter(|session| session.decoding) {
            let ticket = old.remove(&session.id).unwrap_or(self.next);
            self.next += u64::from(ticket == self.next);
            self.tickets.insert(session.id, ticket);
            queue.push((ticket, session.id));
        }
        queue.sort_unstable();
        queue.into_iter().map(|(_, seq)| seq).collect()
    }
}
