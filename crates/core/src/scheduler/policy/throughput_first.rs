//! Prompts wait while the decode batch is full enough to pay.

use std::cmp::Reverse;

use super::config::PolicyConfig;
use super::detector::{BatchDetector, BatchSessionInfo};
use super::proposal::SchedulingPlan;
use super::session::{SessionView, prefills};

/// A decode batch is full when this share of the seats decodes, in eighths.
const FULL_EIGHTHS: usize = 7;

/// What a tick may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Sequences that may decode in this step.
    pub slots: usize,
    /// Sequences that may run at once.
    pub seats: usize,
    /// Tokens that one step may compute.
    pub step_tokens: usize,
}

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

    /// Seats are filled first. While nearly all of them decode, prompts are put off until they fill a step, for at most
    /// `decode_burst_budget` steps: a step costs the same however many share it, so few prompts in it waste it, and few decodes do.
    pub(super) fn tick(&mut self, sessions: &[SessionView], room: Room) -> SchedulingPlan {
        let mut eligible = self.eligible(sessions);
        if !self.is_full(eligible.len(), room.seats) || self.is_due(sessions, room) {
            (self.ticks, self.pending_out) = (0, 0);
            let prefill_ids = prefills(sessions, |session| session.arrival);
            return SchedulingPlan { prefill_ids, ..self.decodes(eligible, room.slots) };
        }
        eligible.truncate(room.slots);
        self.ticks += 1;
        self.pending_out += eligible.len();
        self.decodes(eligible, room.slots)
    }

    /// At least `min_batch` sequences decode, and nearly all that may.
    fn is_full(&self, decoding: usize, seats: usize) -> bool {
        decoding >= self.detector.min_batch && decoding * 8 >= seats * FULL_EIGHTHS
    }

    /// The prompts that wait are worth a step, or have waited long enough.
    fn is_due(&self, sessions: &[SessionView], room: Room) -> bool {
        let prompts = || sessions.iter().filter(|session| session.is_prompt());
        let tokens: usize = prompts().map(|session| session.prefill_remaining).sum();
        let urgent = prompts().any(SessionView::is_urgent);
        urgent || tokens + room.slots.min(room.seats) >= room.step_tokens || self.ticks >= self.budget_ticks
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
