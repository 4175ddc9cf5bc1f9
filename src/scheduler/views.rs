//! What others may read of the scheduler between two steps.

use crate::kv::BlockTable;
use crate::report::SequenceView;
use crate::request::RequestError;
use crate::units::{Micros, SeqId};

use super::Scheduler;
use super::policy::thermal::Level;
use super::sequence::{Running, Waiting};

/// The work that lies ahead, as far as it is known.
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
        let requests = self.running.iter().map(Running::request).chain(self.waiting.iter().map(Waiting::request));
        requests.filter(|request| request.is_overdue(now)).map(|request| (request.id(), request.timed_out())).collect()
    }

    /// Everything live, running ones first.
    pub fn sequences(&self) -> Vec<SequenceView> {
        self.running.iter().map(Running::view).chain(self.waiting.iter().map(Waiting::view)).collect()
    }

    pub fn backlog(&self) -> Backlog {
        let waiting: usize = self.waiting.iter().map(Waiting::known).sum();
        let running: usize = self.running.iter().map(Running::prefill_remaining).sum();
        let decoding = || self.running.iter().filter(|r| r.is_decoding());
        Backlog {
            prefill_tokens: waiting + running,
            prompts: self.waiting.len() + self.running.len() - decoding().count(),
            decoding: decoding().count(),
            context_tokens: decoding().map(|r| r.tokens().len()).sum(),
            waiting: self.waiting.len(),
        }
    }

    /// Sequences that may run at once, as hot as it is. More may be running: then none is admitted.
    pub fn seats(&self) -> usize {
        match self.heat {
            Level::Nominal | Level::Fair => self.config.max_num_seqs,
            Level::Serious | Level::Critical => (self.config.max_num_seqs / 2).max(1),
            Level::Emergency => 0,
        }
    }

    /// How many more sequences could run if there were blocks.
    pub fn free_seats(&self) -> usize {
        self.seats().saturating_sub(self.running.len() + self.waiting.len())
    }

    /// Sequences without blocks: new ones and preempted ones.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn running(&self) -> usize {
        self.running.len()
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
        self.running.iter().map(|running| &running.table)
    }
}
