//! Facts that the engine gives away: metrics, traces, the dashboard and the simulator read them. Pure.

use crate::request::{CLASSES, Event, Origin, Priority};
use crate::units::{Micros, SeqId};

/// What one blocking call of the core did: one step, or a few (`engine.multi_step_count`).
#[derive(Debug, Default)]
pub struct StepReport {
    /// For the clients, in the order in which they happened.
    pub events: Vec<(SeqId, Event)>,
    /// One entry per forward pass.
    pub steps: Vec<StepFacts>,
    /// What was decided for each sequence, in the order in which it was.
    pub decisions: Vec<(SeqId, Decision)>,
    /// Events of all steps but the last: they were ready before the call came back.
    pub pending_out: usize,
    /// Sequences whose completion a step went on with, once for each step.
    pub decoded: Vec<SeqId>,
    /// When the call began.
    pub began: Micros,
    /// How long the model computed, where the executor measures it.
    pub computed: Option<Micros>,
    /// The state after the last of them.
    pub after: Snapshot,
}

/// A turn in a sequence's life, for its trace.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// In the intake, behind so many others.
    Queued {
        depth: usize,
        predicted_ttft: Option<Micros>,
    },
    /// Out of the intake in a batch.
    Released {
        batch: u64,
        size: usize,
        strategy: &'static str,
        /// What made the strategy's group flow.
        cause: &'static str,
        /// Until its group was flushed, and from then until a seat was free.
        gathered: Micros,
        seatless: Micros,
        /// Requests that were seated meanwhile for being more urgent, or for fairness.
        passed_by_priority: usize,
        passed_by_fairness: usize,
        /// By class: all of these.
        overtaken_by: [usize; CLASSES],
    },
    /// It computes nothing in this step.
    Waits(Wait),
    /// It has blocks; so many of its known tokens were found in the cache, or why none.
    Admitted {
        cached_tokens: usize,
        miss: Option<Miss>,
    },
    /// Prompt tokens (or, after a preemption, all known ones) are computed.
    Prefill {
        from: u32,
        to: u32,
    },
    /// It lost its blocks.
    Preempted {
        by: SeqId,
    },
    FirstToken,
    /// The finish reason or the error's code.
    Ended {
        how: &'static str,
    },
}

/// Why nothing of a prompt was found in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// `kv_cache.prefix_caching` is off.
    Off,
    /// The request said so, or asks for what only computing tells (logprobs of the prompt).
    Declined,
    /// No earlier sequence of the same salt began so, or its blocks were needed since.
    NotFound,
}

impl Miss {
    pub const fn name(self) -> &'static str {
        match self {
            Miss::Off => "off",
            Miss::Declined => "declined",
            Miss::NotFound => "not_found",
        }
    }
}

/// Places in a guess that are told apart.
pub const POSITIONS: usize = 8;

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
    /// Prompt tokens that were looked up in the prefix cache for sequences that ran for the first time, and those of them
    /// that were there.
    pub prefix_queries: usize,
    pub prefix_hits: usize,
    /// Guesses that were computed, and those that were right.
    pub proposed: usize,
    pub accepted: usize,
    /// Sequences that had guesses, and the guesses that were right by their place; the last place stands for all after it.
    pub drafts: usize,
    pub accepted_at: [u32; POSITIONS],
    /// Tokens drawn by sequences with a grammar, and those of them that had an alternative.
    pub constrained: usize,
    pub choices: usize,
    /// The time that was predicted for it.
    pub predicted: Option<Micros>,
    /// How long it might take for the sake of those that decoded, where some did: `max_stall_ms`, or what the policy makes of it.
    pub limit: Option<Micros>,
    /// Why the pass failed as a whole, if it did; it was rerun one sequence at a time.
    pub rerun: Option<String>,
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
    /// Blocks with content that can be found, held by anyone or not.
    pub blocks_cached: usize,
    pub preemptions_total: u64,
    pub steps_total: u64,
    pub paused: bool,
    pub draining: bool,
}

/// Why a sequence did not get further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wait {
    /// Its group is still gathering: the strategy's timer runs.
    FlushTimer,
    /// Every seat is taken.
    Seats,
    /// Seats went to more urgent requests.
    LowerPriority,
    /// Seats went to others who had received less, or its owner holds as many as it may while others wait.
    FairShare,
    /// The step's tokens were given to others.
    TokenBudget,
    /// More prefill would have kept running streams waiting for longer than `max_stall_ms`.
    StallLimit,
    /// The policy puts the decode burst before prefills.
    DecodeBurst,
    /// A prompt that is being computed begins alike; the prefix cache will have what they share.
    SharedPrefix,
    /// The KV cache had too few free blocks.
    Blocks,
    /// The batch is smaller than usual, since the machine is hot.
    Thermal,
    /// The operator paused the engine.
    Paused,
}

impl Wait {
    pub const fn name(self) -> &'static str {
        match self {
            Wait::FlushTimer => "flush_timer",
            Wait::Seats => "seats",
            Wait::LowerPriority => "lower_priority",
            Wait::FairShare => "fair_share",
            Wait::TokenBudget => "token_budget",
            Wait::StallLimit => "stall_limit",
            Wait::SharedPrefix => "shared_prefix",
            Wait::DecodeBurst => "decode_burst",
            Wait::Blocks => "blocks",
            Wait::Thermal => "thermal",
            Wait::Paused => "paused",
        }
    }
}

/// What one block is used for, from idle to busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockUse {
    /// It can be taken, and holds nothing.
    Free,
    /// It can be taken, and until then what it holds can be found.
    Cached,
    /// One sequence holds it.
    Used,
    /// Several sequences hold it.
    Shared,
}

impl BlockUse {
    pub const ALL: [BlockUse; 4] = [BlockUse::Free, BlockUse::Cached, BlockUse::Used, BlockUse::Shared];

    pub const fn name(self) -> &'static str {
        match self {
            BlockUse::Free => "free",
            BlockUse::Cached => "cached",
            BlockUse::Used => "used",
            BlockUse::Shared => "shared",
        }
    }
}

/// A sequence that lost its blocks, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preempted {
    pub seq: SeqId,
    pub by: SeqId,
}

/// A live sequence as the operator sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceView {
    pub seq: SeqId,
    pub origin: Origin,
    pub priority: Priority,
    pub stage: Stage,
    pub deadline: Option<Micros>,
    pub prompt_tokens: usize,
    pub max_tokens: usize,
    /// Tokens whose K and V are in the cache.
    pub computed_tokens: usize,
    /// Known tokens that it must compute before it decodes: not those that the prefix cache has for it, or will have from a
    /// prompt that goes before it.
    pub to_compute: usize,
    pub generated_tokens: usize,
    pub blocks: usize,
}

/// Where a live sequence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// In the intake.
    Queued,
    /// It has a seat and no blocks: new, or preempted.
    Waiting,
    /// Its prompt is being computed, or computed again.
    Prefill,
    Decode,
}

impl Stage {
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Queued => "queued",
            Stage::Waiting => "waiting",
            Stage::Prefill => "prefill",
            Stage::Decode => "decode",
        }
    }
}
