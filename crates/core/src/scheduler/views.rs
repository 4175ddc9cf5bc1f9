//! What others may read of the scheduler between two steps.

use crate::kv::{BlockPool, BlockTable, Node};
use crate::report::SequenceView;
use crate::request::{CLASSES, Priority, Request, RequestError};
use crate::units::{Micros, SeqId};

use super::preempt::may_take;
use super::sequence::{Running, Waiting};
use super::state::Scheduler;

/// The work that lies ahead, as far as it is known, without that of batches: nobody waits behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Known tokens that are to be computed, of waiting and running sequences that do not decode yet. What one prompt computes
    /// for several counts once.
    pub prefill_tokens: usize,
    /// Sequences that these belong to.
    pub prompts: usize,
    /// Sequences that decode.
    pub decoding: usize,
    /// KV entries that one decode step of all of them reads.
    pub context_tokens: usize,
    pub waiting: usize,
    /// By class: of `prefill_tokens`, those of the class or a more urgent one.
    pub prefill: [usize; CLASSES],
}

impl Scheduler {
    /// Live sequences whose deadline has passed. Looks once at each; allocates only for those.
    pub fn overdue(&self, now: Micros) -> Vec<(SeqId, RequestError)> {
        let requests =
            self.queues.running.iter().map(Running::request).chain(self.queues.waiting.iter().map(Waiting::request));
        requests.filter(|request| request.is_overdue(now)).map(|request| (request.id(), request.timed_out())).collect()
    }

    /// Everything live, running ones first.
    pub fn sequences(&self, pool: &BlockPool) -> Vec<SequenceView> {
        let waiting = self.queues.waiting.iter().zip(self.to_compute(pool));
        let waiting = waiting.map(|(waiting, to_compute)| SequenceView { to_compute, ..waiting.view() });
        self.queues.running.iter().map(Running::view).chain(waiting).collect()
    }

    /// Of each that waits, the tokens that it will compute itself.
    fn to_compute(&self, pool: &BlockPool) -> Vec<usize> {
        let size = pool.block_size();
        let of = |(at, waiting): (usize, &Waiting)| {
            let (request, tokens) = (waiting.request(), waiting.tokens());
            if !self.shares(request) {
                return tokens.len();
            }
            let under_way = self.queues.running.iter().filter_map(|running| running.will_share(request, &tokens, size));
            let before = self.queues.waiting.range(..at).filter_map(|other| other.will_share(request, &tokens, size));
            let cached = pool.cached_tokens(Node::Root(request.cache_salt().clone()), &tokens);
            tokens.len() - under_way.chain(before).fold(cached, usize::max)
        };
        self.queues.waiting.iter().enumerate().map(of).collect()
    }

    pub fn backlog(&self, pool: &BlockPool) -> Backlog {
        let urgent = || self.queues.running.iter().filter(|r| !r.is_batch());
        let queued = || self.queues.waiting.iter().filter(|w| !w.is_batch());
        let to_compute = self.to_compute(pool);
        let waiting: usize =
            self.queues.waiting.iter().zip(&to_compute).filter(|(w, _)| !w.is_batch()).map(|(_, tokens)| tokens).sum();
        let running: usize = urgent().map(Running::prefill_remaining).sum();
        let decoding = || urgent().filter(|running| running.is_decoding());
        Backlog {
            prefill_tokens: waiting + running,
            prompts: self.queues.waiting.len() + self.queues.running.len() - decoding().count(),
            decoding: decoding().count(),
            context_tokens: decoding().map(Running::known).sum(),
            waiting: queued().count(),
            prefill: self.prefill_by_class(&to_compute),
        }
    }

    /// Sequences that may run at once, as hot as it is. More may be running: then none is admitted.
    pub fn seats(&self) -> usize {
        self.config.open_seats(self.heat)
    }

    /// By class: how many more sequences of it could run if there were blocks, and if those gave way whose seat it may take.
    pub fn seats_for(&self) -> [usize; CLASSES] {
        let live = |class: &Priority| self.live().filter(|holder| !may_take(*class, *holder)).count();
        Priority::ALL.map(|class| self.seats().saturating_sub(live(&class)))
    }

    /// How long a step may take for the sake of those that decode.
    pub fn stall_limit(&self) -> Option<Micros> {
        self.queues.stall_limit(&self.config)
    }

    fn live(&self) -> impl Iterator<Item = Priority> + '_ {
        let running = self.queues.running.iter().map(|running| running.request().priority());
        running.chain(self.queues.waiting.iter().map(|waiting| waiting.request().priority()))
    }

    fn prefill_by_class(&self, to_compute: &[usize]) -> [usize; CLASSES] {
        let mut tokens = [0; CLASSES];
        let running = self.queues.running.iter().map(|r| (r.request().priority(), r.prefill_remaining()));
        let waiting = self.queues.waiting.iter().map(|w| w.request().priority()).zip(to_compute.iter().copied());
        for (class, remaining) in running.chain(waiting) {
            tokens[class.index()..].iter_mut().for_each(|tokens| *tokens += remaining);
        }
        tokens
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

    /// How many tokens of the request's prompt the prefix cache has now.
    pub fn cached_tokens(&self, request: &Request, pool: &BlockPool) -> usize {
        if self.shares(request) {
            pool.cached_tokens(Node::Root(request.cache_salt().clone()), request.prompt())
        } else {
            0
        }
    }

    fn shares(&self, request: &Request) -> bool {
        self.config.shares_prefixes() && request.may_use_cache()
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
