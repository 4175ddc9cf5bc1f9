//! Prompts wait behind bursts of decoding.

use std::cmp::Reverse;

use super::config::PolicyConfig;
use super::detector::{BatchDetector, BatchSessionInfo};
use super::proposal::SchedulingPlan;
use super::session::{SessionView, prefills};

/// The decode burst under way.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Burst {
    detector: BatchDetector,
    budget_ticks: usize,
    ticks: usize,
    pending_out: usize,
}

impl Burst {
    pub(super) fn new(config: &PolicyConfig) -> Burst {
        let detector = BatchDetector { min_batch: config.min_batch, max_batch: config.max_batch };
        Burst { detector, budget_ticks: config.decode_burst_budget, ticks: 0, pending_out: 0 }
    }

    pub(super) fn pending_out(&self) -> usize {
        self.pending_out
    }

    /// Prompts get a tick when nothing decodes or the burst is over; decodes go on beside them.
    pub(super) fn tick(&mut self, sessions: &[SessionView], slots: usize) -> SchedulingPlan {
        let mut eligible = self.eligible(sessions);
        let nobody_decodes = eligible.is_empty();
        if nobody_decodes || self.ticks >= self.budget_ticks {
            (self.ticks, self.pending_out) = (0, 0);
            let prefill_ids = prefills(sessions, |session| session.arrival);
            if nobody_decodes || !prefill_ids.is_empty() {
                return SchedulingPlan { prefill_ids, ..self.decodes(eligible, slots) };
            }
        }
        eligible.truncate(slots);
        self.ticks += 1;
        self.pending_out += eligible.len();
        self.decodes(eligible, slots)
    }

    /// The longest completions first: they end soonest, and then their blocks are free.
    fn eligible(&self, sessions: &[SessionView]) -> Vec<BatchSessionInfo> {
        let mut sessions: Vec<&SessionView> = sessions.iter().collect();
        sessions.sort_by_key(|session| (Reverse(session.generated), session.arrival));
        sessions.into_iter().map(BatchSessionInfo::from).filter(BatchSessionInfo::is_eligible).collect()
    }

    fn decodes(&self, mut eligible: Vec<BatchSessionInfo>, slots: usize) -> SchedulingPlan {
        eligible.truncate(slots);
        SchedulingPlan {
            decode_ids: eligible.iter().map(|session| session.id).collect(),
            prefill_ids: Vec::new(),
            batch_groups: self.detector.detect(&eligible),
        }
    }
}
