//! Channel 1: what the outside may ask of the engine loop.

use tokio::sync::{mpsc, oneshot};

use crate::report::Snapshot;
use crate::request::{Event, Request, RequestError};
use crate::units::SeqId;

/// An order to the engine loop. Taken between steps; while a step runs they are buffered.
#[derive(Debug)]
pub enum EngineCommand {
    /// All sequences of the group are queued, or none is.
    Submit { group: Vec<Submission>, reply: oneshot::Sender<Result<(), RequestError>> },
    /// Ends a sequence wherever it is; unknown or ended ones are ignored.
    Abort { seq: SeqId },
    Stats { reply: oneshot::Sender<Snapshot> },
    /// No step starts until `Resume`; requests are still queued.
    Pause,
    Resume,
    /// Running sequences finish; queued and new ones are refused with [`RequestError::ShuttingDown`]. The reply comes
    /// when nothing is left.
    Drain { reply: oneshot::Sender<()> },
    /// Everything live is ended with [`RequestError::ShuttingDown`] and the loop returns.
    Shutdown,
}

/// A request and the way back to its client. The channel holds the request's own `max_tokens` plus its last event, so
/// the loop never waits on a slow client and memory stays bounded.
#[derive(Debug)]
pub struct Submission {
    pub request: Request,
    pub events: mpsc::Sender<Event>,
}
