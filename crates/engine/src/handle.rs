//! The engine as the rest of the house sees it.

use tokio::sync::{mpsc, oneshot};

use super::command::{Accepted, EngineCommand, Submission};
use super::permit::{Gate, Permit};
use super::trace::Trace;
use crate::stats::{EngineStats, Recent};
use forebay_core::report::BlockUse;
use forebay_core::request::{Event, Priority, Request, RequestError};
use forebay_core::scheduler::thermal::{Level, Reading};
use forebay_core::units::{Micros, SeqId};
use forebay_turn::control::{ChangeSet, Changed};
use forebay_turn::history::Record;
use forebay_turn::stats::LiveSequence;

/// The sending end of channel 1. Cheap to clone; when the last clone is gone the loop ends.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    commands: mpsc::Sender<EngineCommand>,
    gate: Gate,
}

impl EngineHandle {
    pub fn new(commands: mpsc::Sender<EngineCommand>, gate: Gate) -> EngineHandle {
        EngineHandle { commands, gate }
    }

    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Places in the queue for `sequences` of a class, of at most `tokens` prompt tokens together, or why there are none: to be asked
    /// for before any work is done. `jitter` is from 0 to 1.
    pub fn permit(
        &self,
        class: Priority,
        sequences: usize,
        tokens: usize,
        jitter: f64,
    ) -> Result<Permit, RequestError> {
        self.gate.enter(class, sequences, tokens, jitter)
    }

    /// Queues all of `group` or none of it. One receiver per request, in order; each holds everything its sequence can
    /// ever say. Waits for room while the command channel is full.
    pub async fn submit(
        &self,
        group: Vec<Request>,
        mut permit: Permit,
    ) -> Result<(Accepted, Vec<mpsc::Receiver<Event>>), RequestError> {
        permit.true_up(group.iter().map(|request| request.prompt().len()).sum());
        let open = |request: Request| {
            // The first event, each token, the last event, and one to spare.
            let (events, receiver) = mpsc::channel(request.max_tokens() as usize + 3);
            let permit = permit.split(request.prompt().len());
            (Submission { request, events, permit }, receiver)
        };
        let (group, receivers) = group.into_iter().map(open).unzip();
        let accepted = self.ask(|reply| EngineCommand::Submit { group, reply }).await??;
        Ok((accepted, receivers))
    }

    /// Ends a sequence; unknown ones are ignored. Never waits: when the command channel is full the order is lost, and the
    /// loop finds the closed event channel instead.
    pub fn abort(&self, seq: SeqId) {
        let _ = self.commands.try_send(EngineCommand::Abort { seq });
    }

    pub async fn stats(&self) -> Result<EngineStats, RequestError> {
        self.ask(|reply| EngineCommand::Stats { reply }).await
    }

    /// No step starts until [`EngineHandle::resume`].
    pub async fn pause(&self) -> Result<(), RequestError> {
        self.send(EngineCommand::Pause).await
    }

    pub async fn resume(&self) -> Result<(), RequestError> {
        self.send(EngineCommand::Resume).await
    }

    /// Returns when nothing is left to run; new requests are refused from now on.
    pub async fn drain(&self) -> Result<(), RequestError> {
        self.ask(|reply| EngineCommand::Drain { reply }).await
    }

    /// Ends what is live, and the loop.
    pub async fn shutdown(&self) -> Result<(), RequestError> {
        self.send(EngineCommand::Shutdown).await
    }

    /// Puts a set of changes in force from the next step on, all of it or nothing; no request is lost by it. One [`Change`]
    /// is a set of one.
    ///
    /// [`Change`]: forebay_turn::control::Change
    pub async fn change(&self, set: impl Into<ChangeSet>) -> Result<Vec<Changed>, RequestError> {
        let set = set.into();
        self.ask(|reply| EngineCommand::Change { set, reply }).await?
    }

    /// Holds a thermal level, or returns to the sensor's. Returns the level before.
    pub async fn force_thermal(&self, force: Option<Level>) -> Result<Level, RequestError> {
        self.ask(|reply| EngineCommand::Thermal { force, reply }).await
    }

    pub async fn temperature(&self, reading: Reading) -> Result<(), RequestError> {
        self.send(EngineCommand::Temperature(reading)).await
    }

    pub async fn reset_stats(&self) -> Result<(), RequestError> {
        self.send(EngineCommand::ResetStats).await
    }

    /// All live sequences.
    pub async fn requests(&self) -> Result<Vec<LiveSequence>, RequestError> {
        self.ask(|reply| EngineCommand::Requests { reply }).await
    }

    /// Of each sequence of a request; empty if it is unknown or forgotten.
    pub async fn traces(&self, id: String) -> Result<Vec<Trace>, RequestError> {
        self.ask(|reply| EngineCommand::Trace { id, reply }).await
    }

    /// The newest sequences with their traces: live ones, then ended ones, at most `most` of each.
    pub async fn recent(&self, most: usize) -> Result<Vec<Recent>, RequestError> {
        self.ask(|reply| EngineCommand::Recent { most, reply }).await
    }

    /// What each block is used for. Comes once no step runs.
    pub async fn blocks(&self) -> Result<Vec<BlockUse>, RequestError> {
        self.ask(|reply| EngineCommand::Blocks { reply }).await
    }

    /// What came in the last `window`, and what the engine is made of.
    pub async fn history(&self, window: Micros) -> Result<Record, RequestError> {
        self.ask(|reply| EngineCommand::History { window, reply }).await
    }

    /// Ends a request; its clients hear [`RequestError::Aborted`]. Returns how many sequences it had.
    pub async fn cancel(&self, id: String) -> Result<usize, RequestError> {
        self.ask(|reply| EngineCommand::Cancel { id, reply }).await
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> EngineCommand) -> Result<T, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply)).await?;
        answer.await.map_err(|_| RequestError::EngineStopped)
    }

    async fn send(&self, command: EngineCommand) -> Result<(), RequestError> {
        self.commands.send(command).await.map_err(|_| RequestError::EngineStopped)
    }
}
