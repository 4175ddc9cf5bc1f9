//! The policies by name, and their numbers.

use thiserror::Error;

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
