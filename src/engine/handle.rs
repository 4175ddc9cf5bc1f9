//! The engine as the rest of the house sees it.

use tokio::sync::{mpsc, oneshot};

use super::command::{EngineCommand, Submission};
use crate::report::Snapshot;
use crate::request::{Event, Request, RequestError};
use crate::units::SeqId;

/// The sending end of channel 1. Cheap to clone; when the last clone is gone the loop ends.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    commands: mpsc::Sender<EngineCommand>,
}

impl EngineHandle {
    pub fn new(commands: mpsc::Sender<EngineCommand>) -> EngineHandle {
        EngineHandle { commands }
    }

    /// Queues all of `group` or none of it. One receiver per request, in order; each holds everything its sequence can
    /// ever say. Waits for room while the command channel is full.
    pub async fn submit(&self, group: Vec<Request>) -> Result<Vec<mpsc::Receiver<Event>>, RequestError> {
        let open = |request: Request| {
            // Each token, the last event, and one to spare.
            let (events, receiver) = mpsc::channel(request.max_tokens() as usize + 2);
            (Submission { request, events }, receiver)
        };
        let (group, receivers) = group.into_iter().map(open).unzip();
        let (reply, answer) = oneshot::channel();
        self.send(EngineCommand::Submit { group, reply }).await?;
        answer.await.unwrap_or(Err(RequestError::EngineStopped))?;
        Ok(receivers)
    }

    /// Ends a sequence; unknown ones are ignored. Never waits: when the command channel is full the order is lost, and the
    /// loop finds the closed event channel instead.
    pub fn abort(&self, seq: SeqId) {
        let _ = self.commands.try_send(EngineCommand::Abort { seq });
    }

    pub async fn stats(&self) -> Result<Snapshot, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.send(EngineCommand::Stats { reply }).await?;
        answer.await.map_err(|_| RequestError::EngineStopped)
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
        let (reply, answer) = oneshot::channel();
        self.send(EngineCommand::Drain { reply }).await?;
        answer.await.map_err(|_| RequestError::EngineStopped)
    }

    /// Ends what is live, and the loop.
    pub async fn shutdown(&self) -> Result<(), RequestError> {
        self.send(EngineCommand::Shutdown).await
    }

    async fn send(&self, command: EngineCommand) -> Result<(), RequestError> {
        self.commands.send(command).await.map_err(|_| RequestError::EngineStopped)
    }
}
