//! What others may read of the scheduler between two steps.

use crate::kv::BlockTable;
use crate::report::SequenceView;
use crate::request::RequestError;
use crate::units::{Micros, SeqId};

use super::sequence::{Running, Waiting};
use super::state::Scheduler;

/// The work that lies ahead, as far as it is known, without that of batches: nobody waits behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Known tokens that are not computed, of waiting and running sequences that do not decode yet.
    pub prefill_tokens: usize,
    /// Sequences that these belong to.
    pub prompts: usize,
    /// Sequences that decode.
    pub decoding: usize,
    /// KV entries that one decode step of all of them reads.
    pub context_tokens: usize,
    pub waiting: usize,
}

impl Scheduler {
    /// Live sequences whose deadline has passed. Looks once at each; allocates only for those.
    pub fn overdue(&self, now: Micros) -> Vec<(SeqId, RequestError)> {
        let requests =
            self.queues.running.iter().map(Running::request).chain(self.queues.waiting.iter().map(Waiting::request));
        requests.filter(|request| request.is_overdue(now)).map(|request| (request.id(), request.timed_out())).collect()
    }

    /// Everything live, running ones first.
    pub fn sequences(&self) -> Vec<SequenceView> {
        self.queues.running.iter().map(Running::view).chain(self.queues.waiting.iter().map(Waiting::view)).collect()
    }

    pub fn backlog(&self) -> Backlog {
        let urgent = || self.queues.running.iter().filter(|r| !r.is_batch());
        let queued = || self.queues.waiting.iter().filter(|w| !w.is_batch());
        let waiting: usize = queued().map(Waiting::known).sum();
        let running: usize = urgent().map(Running::prefill_remaining).sum();
        let decoding = || urgent().filter(|running| running.is_decoding());
        Backlog {
            prefill_tokens: waiting + running,
            prompts: self.queues.waiting.len() + self.queues.running.len() - decoding().count(),
            decoding: decoding().count(),
            context_tokens: decoding().map(Running::known).sum(),
            waiting: queued().count(),
        }
    }

    /// Sequences that may run at once, as hot as it is. More may be running: then none is admitted.
    pub fn seats(&self) -> usize {
        self.config.open_seats(self.heat)
    }

    /// How many more sequences could run if there were blocks, and if batches gave up their seats.
    pub fn free_seats(&self) -> usize {
        self.seats().saturating_sub(self.urgent())
    }

    /// How many more could run beside everyone.
    pub fn idle_seats(&self) -> usize {
        self.seats().saturating_sub(self.queues.running.len() + self.queues.waiting.len())
    }

    /// Live sequences that are no batch's.
    pub fn urgent(&self) -> usize {
        let running = self.queues.running.iter().filter(|r| !r.is_batch()).count();
        running + self.queues.waiting.iter().filter(|w| !w.is_batch()).count()
    }

    /// Sequences without blocks: new ones and preempted ones.
    pub fn waiting(&self) -> usize {
        self.queues.waiting.len()
    }

    pub fn running(&self) -> usize {
        self.queues.running.len()
    }

    /// Tokens of `ThroughputFirst`'s decode burst under way.
    pub fn pending_out(&self) -> usize {
        self.policy.pending_out()
    }

    pub fn preemptions_total(&self) -> u64 {
        self.preemptions_total
    }

    /// For recounts in tests: every table that holds blocks.
    pub fn tables(&self) -> impl Iterator<Item = &BlockTable> + '_ {
        self.queues.running.iter().map(|running| &running.table)
    }
}
