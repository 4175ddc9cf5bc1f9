//! Who goes first. A policy proposes an order and never touches blocks, so none can break an invariant of the scheduler;
//! it orders tokens and victims, and never removes batching.
//!
//! ```text
//! sessions ─▶ PolicyExecutor::tick(slots) ─▶ SchedulingPlan { who decodes, whose prompt goes on, in which groups }
//! ```

mod detector;
mod fair;
mod latency_first;
pub mod thermal;
mod throughput_first;

use thiserror::Error;

use crate::units::SeqId;

pub use detector::{BatchDetector, BatchGroup, BatchSessionInfo};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// Round robin over those that decode; prompts take what is left, first come first served.
    #[default]
    Fair,
    /// Prompts before decodes, and of each the youngest first: for time to first token.
    LatencyFirst,
    /// Prompts wait until a burst of decode steps is over; the longest completions first: for full decode batches.
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
        PolicyKind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    pub kind: PolicyKind,
    /// Decode steps for which `ThroughputFirst` lets prompts wait.
    pub decode_burst_budget: usize,
    /// Fewer sessions than this are no batch: each is its own group.
    pub min_batch: usize,
    /// Sessions of one group at most.
    pub max_batch: usize,
}

impl Default for PolicyConfig {
    fn default() -> PolicyConfig {
        PolicyConfig { kind: PolicyKind::default(), decode_burst_budget: 8, min_batch: 1, max_batch: 32 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PolicyConfigError {
    #[error("decode_burst_budget must be at least 1, got {0}")]
    DecodeBurstBudget(usize),
    #[error("min_batch must be at least 1, got {0}")]
    MinBatch(usize),
    #[error("max_batch must be at least min_batch ({min_batch}), got {max_batch}")]
    MaxBatch { min_batch: usize, max_batch: usize },
}

impl PolicyConfigError {
    /// The key that is wrong.
    pub const fn param(self) -> &'static str {
        match self {
            PolicyConfigError::DecodeBurstBudget(_) => "decode_burst_budget",
            PolicyConfigError::MinBatch(_) => "min_batch",
            PolicyConfigError::MaxBatch { .. } => "max_batch",
        }
    }
}

impl PolicyConfig {
    pub fn check(&self) -> Result<(), PolicyConfigError> {
        let PolicyConfig { decode_burst_budget, min_batch, max_batch, .. } = *self;
        if decode_burst_budget == 0 {
            return Err(PolicyConfigError::DecodeBurstBudget(decode_burst_budget));
        }
        if min_batch == 0 {
            return Err(PolicyConfigError::MinBatch(min_batch));
        }
        if max_batch < min_batch {
            return Err(PolicyConfigError::MaxBatch { min_batch, max_batch });
        }
        Ok(())
    }
}

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

/// A policy's proposal for one tick; each list in the order in which its entries should be served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulingPlan {
    pub decode_ids: Vec<SeqId>,
    /// Whose prompts may go on. Empty although there are some: they are deferred.
    pub prefill_ids: Vec<SeqId>,
    /// `decode_ids` in groups, where the policy wants groups.
    pub batch_groups: Vec<BatchGroup>,
}

/// A policy and what it remembers from tick to tick.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyExecutor {
    config: PolicyConfig,
    memory: Memory,
}

#[derive(Clone, Debug, PartialEq)]
enum Memory {
    Fair(fair::RoundRobin),
    LatencyFirst,
    ThroughputFirst(throughput_first::Burst),
}

impl Memory {
    fn blank(config: &PolicyConfig) -> Memory {
        match config.kind {
            PolicyKind::Fair => Memory::Fair(fair::RoundRobin::default()),
            PolicyKind::LatencyFirst => Memory::LatencyFirst,
            PolicyKind::ThroughputFirst => Memory::ThroughputFirst(throughput_first::Burst::new(config)),
        }
    }
}

impl PolicyExecutor {
    /// `config` has passed [`PolicyConfig::check`].
    pub fn new(config: PolicyConfig) -> PolicyExecutor {
        PolicyExecutor { config, memory: Memory::blank(&config) }
    }

    /// Takes effect with the next tick; whatever order there was is forgotten.
    pub fn set_policy(&mut self, config: PolicyConfig) {
        *self = PolicyExecutor::new(config);
    }

    pub fn kind(&self) -> PolicyKind {
        self.config.kind
    }

    /// Who is served in this tick, when `slots` sequences may decode.
    pub fn tick(&mut self, sessions: &[SessionView], slots: usize) -> SchedulingPlan {
        match &mut self.memory {
            Memory::Fair(turns) => turns.tick(sessions, slots),
            Memory::LatencyFirst => latency_first::tick(sessions, slots),
            Memory::ThroughputFirst(burst) => burst.tick(sessions, slots),
        }
    }

    /// Tokens of the decode burst under way; its clients have room for more before a prompt may interrupt.
    pub fn pending_out(&self) -> usize {
        match &self.memory {
            Memory::ThroughputFirst(burst) => burst.pending_out(),
            Memory::Fair(_) | Memory::LatencyFirst => 0,
        }
    }
}

/// Whose prompts are not computed, sorted by `key`.
fn prefills<K: Ord>(sessions: &[SessionView], key: impl Fn(&SessionView) -> K) -> Vec<SeqId> {
    let wants = |session: &&SessionView| !session.decoding && session.prefill_remaining > 0;
    ids_by(sessions.iter().filter(wants), key)
}

fn ids_by<'a, K: Ord>(sessions: impl Iterator<Item = &'a SessionView>, key: impl Fn(&SessionView) -> K) -> Vec<SeqId> {
    let mut sessions: Vec<&SessionView> = sessions.collect();
    sessions.sort_by_key(|session| key(session));
    sessions.into_iter().map(|session| session.id).collect()
}

#[cfg(test)]
mod tests;
