//! Who goes first. A policy proposes an order and never touches blocks, so none can break an invariant of the scheduler;
//! it orders tokens and victims, and never removes batching.
//!
//! ```text
//! sessions ─▶ PolicyExecutor::tick(room, now) ─▶ SchedulingPlan { who decodes, whose prompt goes on, in which groups }
//! ```

mod config;
mod detector;
mod fair;
mod latency_first;
mod proposal;
mod session;
mod slo;
pub mod thermal;
mod throughput_first;

pub use config::{PolicyConfig, PolicyConfigError, PolicyKind};
pub use detector::{BatchDetector, BatchGroup, BatchSessionInfo};
pub use proposal::SchedulingPlan;
pub use session::SessionView;
pub use throughput_first::Room;

use crate::slo::Slo;
use crate::units::Micros;

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
    Slo,
    ThroughputFirst(throughput_first::Burst),
}

impl Memory {
    fn blank(config: &PolicyConfig) -> Memory {
        match config.kind {
            PolicyKind::Fair => Memory::Fair(fair::RoundRobin::default()),
            PolicyKind::LatencyFirst => Memory::LatencyFirst,
            PolicyKind::Slo => Memory::Slo,
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

    /// Who is served in this tick.
    pub fn tick(&mut self, sessions: &[SessionView], room: Room, slo: &Slo, now: Micros) -> SchedulingPlan {
        match &mut self.memory {
            Memory::Fair(turns) => turns.tick(sessions, room.slots),
            Memory::LatencyFirst => latency_first::tick(sessions, room.slots),
            Memory::Slo => slo::tick(slo, sessions, room.slots, now),
            Memory::ThroughputFirst(burst) => burst.tick(sessions, room),
        }
    }

    /// Tokens of the decode burst under way; its clients have room for more before a prompt may interrupt.
    pub fn pending_out(&self) -> usize {
        match &self.memory {
            Memory::ThroughputFirst(burst) => burst.pending_out(),
            Memory::Fair(_) | Memory::LatencyFirst | Memory::Slo => 0,
        }
    }
}

#[cfg(test)]
mod tests;
