//! Channel 1: what the outside may ask of the engine loop.

use tokio::sync::{mpsc, oneshot};

use forebay_core::report::BlockUse;
use forebay_core::request::{Event, Request, RequestError};
use forebay_core::scheduler::thermal::{Level, Reading};
use forebay_core::units::{Micros, SeqId};

use super::permit::Permit;
use super::trace::Trace;
use crate::stats::{EngineStats, Recent};
use forebay_turn::control::{ChangeSet, Changed};
use forebay_turn::history::Record;
use forebay_turn::stats::LiveSequence;

/// An order to the engine loop. Taken between steps; while a step runs they are buffered, or, where they concern only what
/// stayed home (queries, the queue), carried out at once.
#[derive(Debug)]
pub enum EngineCommand {
    /// All sequences of the group are queued, or none is.
    Submit {
        group: Vec<Submission>,
        reply: oneshot::Sender<Result<Accepted, RequestError>>,
    },
    /// Ends a sequence wherever it is; unknown or ended ones are ignored.
    Abort {
        seq: SeqId,
    },
    Stats {
        reply: oneshot::Sender<EngineStats>,
    },
    /// No step starts until `Resume`; requests are still queued.
    Pause,
    Resume,
    /// Running sequences finish; queued and new ones are refused with [`RequestError::ShuttingDown`]. The reply comes
    /// when nothing is left.
    Drain {
        reply: oneshot::Sender<()>,
    },
    /// Everything live is ended with [`RequestError::ShuttingDown`] and the loop returns.
    Shutdown,
    /// Other strategies, policies, limits or thermal thresholds, from the next step on: all of the set or nothing. An order of
    /// the operator is a set of one, a configuration read again a set of all that can change.
    Change {
        set: ChangeSet,
        reply: oneshot::Sender<Result<Vec<Changed>, RequestError>>,
    },
    /// What the sensor says.
    Temperature(Reading),
    /// The operator's word instead of the sensor's; `None` returns to the sensor. The reply is the level before.
    Thermal {
        force: Option<Level>,
        reply: oneshot::Sender<Level>,
    },
    ResetStats,
    /// All live sequences.
    Requests {
        reply: oneshot::Sender<Vec<LiveSequence>>,
    },
    /// The newest sequences with their traces: live ones, then ended ones, at most `most` of each.
    Recent {
        most: usize,
        reply: oneshot::Sender<Vec<Recent>>,
    },
    /// What each block is used for; answered when no step runs.
    Blocks {
        reply: oneshot::Sender<Vec<BlockUse>>,
    },
    /// How the sequences of a request were scheduled; empty if it is unknown or forgotten.
    Trace {
        id: String,
        reply: oneshot::Sender<Vec<Trace>>,
    },
    /// The requests of the last `window`, without their text.
    History {
        window: Micros,
        reply: oneshot::Sender<Record>,
    },
    /// Ends all sequences of a request with [`RequestError::Aborted`]; the reply is their number.
    Cancel {
        id: String,
        reply: oneshot::Sender<usize>,
    },
}

/// A request and the way back to its client. The channel holds the request's own `max_tokens` plus its last events, so
/// the loop never waits on a slow client and memory stays bounded.
#[derive(Debug)]
pub struct Submission {
    pub request: Request,
    pub events: mpsc::Sender<Event>,
    /// Its place in the queue, given back when it leaves.
    pub permit: Permit,
}

/// A group is queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// From its arrival to its first token; `None` while nothing was measured.
    pub predicted_ttft: Option<Micros>,
}
