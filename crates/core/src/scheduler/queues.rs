//! The two queues of a scheduler, and their orders. A sequence's queue is its state.

use std::collections::VecDeque;

use crate::kv::BlockPool;
use crate::units::{Micros, SeqId};

use super::config::Config;
use super::sequence::{Running, Waiting};

/// Live sequences.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// In the order of admission: [`Waiting::rank`], then arrival.
    pub waiting: VecDeque<Waiting>,
    /// By class, of each the oldest first: the first takes blocks before anyone else can.
    pub running: Vec<Running>,
}

impl Queues {
    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    pub fn find(&self, seq: SeqId) -> Option<&Running> {
        self.running.iter().find(|running| running.id() == seq)
    }

    pub fn find_mut(&mut self, seq: SeqId) -> Option<&mut Running> {
        self.running.iter_mut().find(|running| running.id() == seq)
    }

    pub fn decoding(&self) -> impl Iterator<Item = &Running> {
        self.running.iter().filter(|running| running.is_decoding())
    }

    /// How long a step may take for the sake of those that decode.
    pub fn stall_limit(&self, config: &Config) -> Option<Micros> {
        let promised = |running: &Running| config.slo.promise(running.request().priority());
        let promises = self.decoding().filter_map(promised);
        config.stall_limit(self.decoding().count(), promises.map(|promise| promise.itl).min())
    }

    /// To its place among those that wait, whether it is new or was preempted.
    pub fn join(&mut self, waiting: Waiting) {
        let place = |waiting: &Waiting| (waiting.is_batch(), waiting.rank(), waiting.arrival);
        let at = self.waiting.partition_point(|other| place(other) < place(&waiting));
        self.waiting.insert(at, waiting);
    }

    /// A sequence that has got its blocks.
    pub fn seat(&mut self, running: Running) {
        let at = self.running.partition_point(|other| other.order() < running.order());
        self.running.insert(at, running);
    }

    /// A running sequence gives its blocks and its seat back, and waits.
    pub fn preempt(&mut self, seq: SeqId, pool: &mut BlockPool) {
        if let Some(at) = self.running.iter().position(|running| running.id() == seq) {
            let preempted = self.running.remove(at).preempt(pool);
            self.join(preempted);
        }
    }

    /// Whether nobody is here but batches.
    pub fn only_batches(&self) -> bool {
        self.running.iter().all(Running::is_batch) && self.waiting.iter().all(Waiting::is_batch)
    }

    /// Takes batches out, if there are others.
    pub fn set_batches_aside(&mut self) -> Queues {
        if self.only_batches() {
            return Queues::default();
        }
        let first = self.waiting.partition_point(|waiting| !waiting.is_batch());
        Queues {
            running: self.running.extract_if(.., |running| running.is_batch()).collect(),
            waiting: self.waiting.split_off(first),
        }
    }

    /// Batches that were set aside come back, each to its place.
    pub fn bring_back(&mut self, mut batches: Queues) {
        self.running.append(&mut batches.running);
        self.running.sort_by_key(Running::order);
        self.waiting.append(&mut batches.waiting);
    }
}
