//! Who goes first: an order of sequences, never a limit to batching.
//!
//! ```text
//! sessions ─ fair.rs | latency_first.rs | throughput_first.rs ─▶ SchedulingPlan { decode_ids, prefill_ids, batch_groups }
//!                                            detector.rs groups what decodes
//! ```
//! [`PolicyExecutor::tick`] is asked once per step. With as many slots as sequences everyone who decodes does so, and the
//! policy only orders; with fewer it chooses. It touches no blocks, so no policy can break an invariant.

mod detector;
mod fair;
mod latency_first;
mod throughput_first;

use crate::units::{SeqId, TokenId};

pub use detector::{BatchDetector, BatchGroup, BatchSessionInfo};

/// The policies by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// Round robin.
    #[default]
    Fair,
    /// Prefill always wins; of those that decode, who has generated least goes first.
    LatencyFirst,
    /// Prefill waits behind a burst of decode steps; who has generated most goes first.
    ThroughputFirst,
}

impl PolicyKind {
    pub const ALL: [PolicyKind; 3] = [PolicyKind::Fair, PolicyKind::LatencyFirst, PolicyKind::ThroughputFirst];

    pub const fn name(self) -> &'static str {
        match self {
            PolicyKind::Fair => "fair",
            PolicyKind::LatencyFirst => "latency_first",
            PolicyKind::ThroughputFirst => "throughput_first",
        }
    }

    pub fn from_name(name: &str) -> Option<PolicyKind> {
        PolicyKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    pub kind: PolicyKind,
    /// Steps that [`PolicyKind::ThroughputFirst`] decodes before prefills get one.
    pub decode_burst_budget: usize,
    /// Of [`BatchDetector`].
    pub min_batch: usize,
    pub max_batch: usize,
}

impl Default for PolicyConfig {
    fn default() -> PolicyConfig {
        PolicyConfig { kind: PolicyKind::Fair, decode_burst_budget: 8, min_batch: 1, max_batch: 32 }
    }
}

impl PolicyConfig {
    /// The parameter that makes no sense, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if self.decode_burst_budget == 0 {
            return Err(("decode_burst_budget", "must be at least 1".into()));
        }
        if self.min_batch == 0 || self.min_batch > self.max_batch {
            return Err(("min_batch", format!("must be from 1 to max_batch ({})", self.max_batch)));
        }
        Ok(())
    }
}

/// A sequence as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionView {
    pub id: SeqId,
    /// Only the newest token is missing from its cache.
    pub decoding: bool,
    /// That token.
    pub current_token: Option<TokenId>,
    pub generated: usize,
    /// Place in the order of submission.
    pub arrival: u64,
    /// Known tokens that are to be computed before it decodes; 0 while it does.
    pub prefill_remaining: usize,
}

/// Whose turn it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulingPlan {
    /// Who decodes, in order.
    pub decode_ids: Vec<SeqId>,
    /// Whose prompt may be computed, in order.
    pub prefill_ids: Vec<SeqId>,
    /// Those who decode, in groups.
    pub batch_groups: Vec<BatchGroup>,
}

/// A policy with what it remembers between two ticks.
#[derive(Clone, Debug, Default)]
pub struct PolicyExecutor {
    config: PolicyConfig,
    rotation: fair::Rotation,
    burst: throughput_first::Burst,
}

impl PolicyExecutor {
    pub fn new(config: PolicyConfig) -> PolicyExecutor {
        PolicyExecutor { config, ..PolicyExecutor::default() }
    }

    pub fn config(&self) -> &PolicyConfig {
        &self.config
    }

    /// Another policy, or other parameters. The ordering is cleared; sessions are not touched.
    pub fn set_policy(&mut self, config: PolicyConfig) {
        *self = PolicyExecutor::new(config);
    }

    /// Whose turn it is, when `slots` sequences may compute.
    pub fn tick(&mut self, sessions: &[SessionView], slots: usize) -> SchedulingPlan {
        let (decode_ids, prefill_ids) = match self.config.kind {
            PolicyKind::Fair => fair::tick(&mut self.rotation, sessions, slots),
            PolicyKind::LatencyFirst => latency_first::tick(sessions, slots),
            PolicyKind::ThroughputFirst => {
                throughput_first::tick(&mut self.burst, sessions, slots, self.config.decode_burst_budget)
            }
        };
        let detector = BatchDetector::new(self.config.min_batch, self.config.max_batch);
        let info = |session: &SessionView| BatchSessionInfo {
            id: session.id,
            decoding: session.decoding,
            current_token: session.current_token,
        };
        // In the order of the turn; a map would be faster for thousands of sessions, which no step has.
        let chosen = decode_ids.iter().filter_map(|id| sessions.iter().find(|session| session.id == *id));
        let batch_groups = detector.detect(&chosen.map(info).collect::<Vec<_>>());
        SchedulingPlan { decode_ids, prefill_ids, batch_groups }
    }

    /// Tokens decoded in the burst under way: their streams wait for nothing but the burst's end to be followed by others.
    pub fn pending_out(&self) -> usize {
        self.burst.pending_out
    }
}

/// Ids by ascending key.
fn sorted_by<K: Ord>(sessions: impl Iterator<Item = SessionView>, key: impl Fn(&SessionView) -> K) -> Vec<SeqId> {
    let mut sorted: Vec<SessionView> = sessions.collect();
    sorted.sort_by_key(key);
    sorted.into_iter().map(|session| session.id).collect()
}

fn prefilling(sessions: &[SessionView]) -> impl Iterator<Item = SessionView> + '_ {
    sessions.iter().copied().filter(|session| !session.decoding)
}

fn decoding(sessions: &[SessionView]) -> impl Iterator<Item = SessionView> + '_ {
    sessions.iter().copied().filter(|session| session.decoding)
}

#[cfg(test)]
mod tests;
