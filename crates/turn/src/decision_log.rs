//! What a loop was told and decided, in order, for the simulator to do again. Pure.
//!
//! Off unless a loop is asked to record. Entries hold requests as they came, prompts included: a decision log is for tests and
//! debugging, and stays in memory.

use std::ops::Range;

use forebay_core::report::StepReport;
use forebay_core::request::{Event, Request};
use forebay_core::scheduler::StepPlan;
use forebay_core::step::{Outcome, Sampled, SequenceFault};
use forebay_core::units::{Micros, SeqId};

use super::control::ChangeSet;

#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A group came.
    Submitted {
        now: Micros,
        group: Vec<Request>,
        accepted: bool,
    },
    Aborted {
        seq: SeqId,
    },
    Paused,
    Resumed,
    /// All at once.
    Changed(ChangeSet),
    /// The core was home; who was released, in order, and in which batch.
    Settled {
        now: Micros,
        batch: Option<(u64, Vec<SeqId>)>,
    },
    /// What was to be computed; nothing when there was nothing to do.
    Planned {
        now: Micros,
        plan: Option<Planned>,
    },
    /// What the step brought.
    Stepped {
        elapsed: Micros,
        outcomes: Vec<(SeqId, Outcome)>,
    },
    /// The driver took the report to the clients: beside the next step, or before. Not where a settlement took it.
    Delivered {
        now: Micros,
    },
}

/// The decisions of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub chunks: Vec<(SeqId, Range<u32>)>,
    pub preempted: Vec<SeqId>,
    /// From each admitted sequence's prefix.
    pub cached: Vec<(SeqId, usize)>,
}

impl Planned {
    pub fn of(plan: &StepPlan) -> Planned {
        Planned {
            chunks: plan.chunks.iter().map(|chunk| (chunk.seq, chunk.tokens.clone())).collect(),
            preempted: plan.preempted.iter().map(|lost| lost.seq).collect(),
            cached: plan.found.iter().map(|found| (found.seq, found.cached_tokens)).collect(),
        }
    }
}

/// What the executor must have said for these events to come.
pub fn outcomes(report: &StepReport) -> Vec<(SeqId, Outcome)> {
    let outcome = |(seq, event): &(SeqId, Event)| match event {
        // Logprobs decide nothing, and are large.
        Event::Token(sampled) => Some((*seq, Outcome::Token(Sampled { token: sampled.token, logprobs: None }))),
        Event::Embedded(_) => Some((*seq, Outcome::Embedded(Vec::new()))),
        Event::Failed(_) => Some((*seq, Outcome::Failed(SequenceFault::Forward))),
        Event::Admitted { .. } | Event::Finished(_) => None,
    };
    report.events.iter().filter_map(outcome).collect()
}
