//! Who takes a request, and how it gets there.

use std::hash::{BuildHasher, Hasher, RandomState};

use tokio::sync::mpsc;

use super::lease::{Lease, Underway};
use super::pool::Pool;
use crate::command::Accepted;
use crate::permit::Permit;
use forebay_core::request::{Event, Priority, Request, RequestError};
use forebay_core::workers::board::{Refusal, Want};
use forebay_core::workers::breaker::Verdict;
use forebay_core::workers::prefix::Chain;

/// A group that was queued at a worker.
pub struct Dispatched {
    pub accepted: Accepted,
    /// Of each request, in order.
    pub events: Vec<mpsc::Receiver<Event>>,
    pub underway: Underway,
    /// The group once more, to be begun elsewhere if this worker fails it before its first token; `None` where there is
    /// nobody else, or it has been begun elsewhere already.
    pub again: Option<Vec<Request>>,
}

impl Pool {
    /// Queues all of `group`, the choices of one prompt, at one loop. A loop that fails at once is not the end: it is tried
    /// once elsewhere.
    pub async fn submit(&self, group: Vec<Request>, permit: Permit) -> Result<Dispatched, RequestError> {
        let again = (self.locals().count() > 1).then(|| group.clone());
        // Where there is no choice there is nothing to look up.
        let chain = if again.is_some() { chain(&group) } else { Chain::default() };
        let lease = self.lease(group.len(), &chain, &|worker| self.is_local(worker))?;
        let worker = lease.worker();
        match (send(lease, group, permit).await, again) {
            (Ok(dispatched), again) => Ok(Dispatched { again, ..dispatched }),
            (Err(error), Some(group)) if error.is_worker_fault() => {
                self.resubmit(group, worker).await.map_err(|_| error)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Queues a group again that `failed` did not begin to answer; somewhere else, and for the last time.
    pub async fn resubmit(&self, group: Vec<Request>, failed: usize) -> Result<Dispatched, RequestError> {
        let tokens = group.iter().map(|request| request.prompt().len()).sum();
        let permit = self.permit(class_of(&group), group.len(), tokens, 0.5)?;
        let elsewhere = |worker| worker != failed && self.is_local(worker);
        let lease = self.lease(group.len(), &chain(&group), &elsewhere)?;
        self.retried(failed);
        send(lease, group, permit).await
    }

    /// A worker for `sequences` of a prompt, of those that `among` allows.
    pub fn lease(&self, sequences: usize, chain: &Chain, among: &dyn Fn(usize) -> bool) -> Result<Lease, RequestError> {
        if self.is_draining() {
            return Err(RequestError::ShuttingDown);
        }
        let now = self.0.clock.now();
        let want = Want { sequences, chain, among, dice: dice() };
        let taken = self.board(|board| board.take(&want, now));
        match taken {
            Ok((worker, ticket)) => Ok(Lease::new(self.clone(), worker, sequences, ticket)),
            Err(Refusal::Open { retry_after }) => {
                let retry_after_s = retry_after.unwrap_or(self.0.config.check_interval).as_secs_f64().ceil() as u32;
                Err(RequestError::CircuitOpen { retry_after_s: retry_after_s.max(1) })
            }
            Err(Refusal::Down) => Err(RequestError::EngineStopped),
        }
    }
}

/// Dropped while it waits, it leaves nothing behind in the loop.
async fn send(lease: Lease, group: Vec<Request>, permit: Permit) -> Result<Dispatched, RequestError> {
    let mut underway = Underway::new(lease, group.iter().map(Request::id));
    let submitted = match underway.lease.engine() {
        Some(engine) => engine.submit(group, permit).await,
        None => Err(RequestError::EngineStopped),
    };
    match submitted {
        Ok((accepted, events)) => Ok(Dispatched { accepted, events, underway, again: None }),
        Err(error) => {
            underway.clear();
            if error.is_worker_fault() {
                underway.lease.settle(Verdict::Failure);
            }
            Err(error)
        }
    }
}

/// The class of a group, whose requests are alike.
fn class_of(group: &[Request]) -> Priority {
    group.first().map(Request::priority).unwrap_or_default()
}

/// Of the prompt that all requests of a group have.
fn chain(group: &[Request]) -> Chain {
    let cached = group.first().filter(|request| request.may_use_cache());
    cached.map(|request| Chain::of_tokens(request.cache_salt(), request.prompt())).unwrap_or_default()
}

/// The standard library's hash keys are random, and differ from call to call.
fn dice() -> u64 {
    RandomState::new().build_hasher().finish()
}
