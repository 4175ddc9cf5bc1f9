//! Facts that the engine gives away: metrics, traces, the dashboard and the simulator read them. Pure.

use crate::request::Event;
use crate::units::SeqId;

/// What one blocking call of the core did: one step, or a few (`engine.multi_step_count`).
#[derive(Debug, Default)]
pub struct StepReport {
    /// For the clients, in the order in which they happened.
    pub events: Vec<(SeqId, Event)>,
    /// One entry per forward pass.
    pub steps: Vec<StepFacts>,
    /// The state after the last of them.
    pub after: Snapshot,
}

/// One forward pass in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepFacts {
    pub sequences: usize,
    /// Tokens of chunks that computed prompt (or recomputed) tokens.
    pub prefill_tokens: usize,
    /// Tokens of chunks that only extended a running completion.
    pub decode_tokens: usize,
    /// Sequences preempted while this step was planned.
    pub preempted: usize,
    /// The pass failed as a whole and was rerun one sequence at a time.
    pub rerun: bool,
}

/// The engine's state between two steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Queued in the intake.
    pub queued: usize,
    /// Admitted, without blocks: waiting for their first or (after preemption) next turn.
    pub waiting: usize,
    pub running: usize,
    pub blocks_total: usize,
    pub blocks_used: usize,
    pub preemptions_total: u64,
    pub steps_total: u64,
    pub paused: bool,
    pub draining: bool,
}
