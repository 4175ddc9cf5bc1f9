//! A request under way at one worker.

use super::pool::Pool;
use super::upstream::Upstream;
use crate::EngineHandle;
use forebay_core::units::SeqId;
use forebay_core::workers::breaker::{Ticket, Verdict};

/// Counts in its worker's load until dropped. Dropped without a verdict, it counts for nothing: the client left.
pub struct Lease {
    pool: Pool,
    worker: usize,
    sequences: usize,
    ticket: Option<Ticket>,
    /// The loop that was there when it began; the next one knows nothing of it.
    engine: Option<EngineHandle>,
}

impl Lease {
    pub(super) fn new(pool: Pool, worker: usize, sequences: usize, ticket: Ticket) -> Lease {
        let engine = pool.worker(worker).local().and_then(|local| local.handle());
        Lease { pool, worker, sequences, ticket: Some(ticket), engine }
    }

    pub fn worker(&self) -> usize {
        self.worker
    }

    pub fn worker_id(&self) -> &str {
        self.pool.worker(self.worker).id()
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    pub fn upstream(&self) -> Option<&Upstream> {
        self.pool.worker(self.worker).upstream()
    }

    pub fn engine(&self) -> Option<&EngineHandle> {
        self.engine.as_ref()
    }

    /// It was only asked who would take it.
    pub fn withdraw(mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.pool.withdraw(self.worker, ticket);
        }
    }

    /// The first verdict counts.
    pub fn settle(&mut self, verdict: Verdict) {
        if let Some(ticket) = self.ticket.take() {
            self.pool.settle(self.worker, ticket, verdict);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.settle(Verdict::Uncounted);
        self.pool.give_back(self.worker, self.sequences);
    }
}

/// The sequences of a group that a loop may still be running for us; aborted when dropped.
pub struct Underway {
    pub lease: Lease,
    seqs: Vec<SeqId>,
}

impl Underway {
    pub(super) fn new(lease: Lease, seqs: impl Iterator<Item = SeqId>) -> Underway {
        Underway { lease, seqs: seqs.collect() }
    }

    /// The loop took none of them, or knows that all have ended.
    pub fn clear(&mut self) {
        self.seqs.clear();
    }

    /// A sequence has ended, and the loop knows it or is told now.
    pub fn ended(&mut self, seq: SeqId, engine_knows: bool) {
        self.seqs.retain(|&other| other != seq);
        if !engine_knows {
            self.abort(seq);
        }
    }

    fn abort(&self, seq: SeqId) {
        if let Some(engine) = self.lease.engine() {
            engine.abort(seq);
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.seqs.iter().for_each(|&seq| self.abort(seq));
    }
}
