//! The policies by name, and their numbers.

use thiserror::Error;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// Round robin over those that decode; prompts take what is left, of a class first come first served.
    #[default]
    Fair,
    /// Prompts before decodes, the shortest first: for the mean time to the first token.
    LatencyFirst,
    /// Large steps; prompts wait while nearly all seats decode: for tokens per second.
    ThroughputFirst,
    /// Prompts by what is promised to their classes, steps as short as is promised to those that decode: for promises kept.
    Slo,
}

impl PolicyKind {
    pub const ALL: [PolicyKind; 4] =
        [PolicyKind::Fair, PolicyKind::LatencyFirst, PolicyKind::ThroughputFirst, PolicyKind::Slo];

    pub const fn name(self) -> &'static str {
        match self {
            PolicyKind::Fair => "fair",
            PolicyKind::LatencyFirst => "latency_first",
            PolicyKind::ThroughputFirst => "throughput_first",
            PolicyKind::Slo => "slo",
        }
    }

    pub fn from_name(name: &str) -> Option<PolicyKind> {
        PolicyKind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    pub kind: PolicyKind,
    /// Decode steps for which `ThroughputFirst` lets prompts wait at most.
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
