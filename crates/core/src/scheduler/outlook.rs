//! What planning looks at: who is live and how far each has come, in numbers. No tokens and no blocks, so that it can be
//! copied, changed into what is expected, and compared with what came.

use std::collections::VecDeque;

use crate::kv::BlockPool;
use crate::request::Priority;
use crate::units::{Micros, SeqId};

use super::plan::{Chunk, StepPlan};
use super::policy::thermal::Level;
use super::policy::{PolicyExecutor, SchedulingPlan, SessionView};
use super::sequence::{Running, Waiting};
use super::{Config, Scheduler, StepCost};

/// A running sequence in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    pub seq: SeqId,
    pub arrival: u64,
    pub priority: Priority,
    pub prompt: usize,
    pub max_tokens: usize,
    /// Prompt and drawn tokens, and those of them whose K and V are in the cache.
    pub known: usize,
    pub computed: usize,
    /// That its table holds.
    pub blocks: usize,
    /// Steps in a row that went by without it, those not counted in which its policy meant it to wait.
    pub passed_over: u32,
    /// When the plan after its newest token was made; `None` until then.
    pub token_at: Option<Micros>,
}

impl Seat {
    /// Tokens drawn so far.
    pub fn generated(&self) -> usize {
        self.known - self.prompt
    }

    /// Known tokens that are not computed; never 0 between steps.
    pub fn remaining(&self) -> usize {
        self.known - self.computed
    }

    /// Only the token drawn last is missing.
    pub fn is_decoding(&self) -> bool {
        self.remaining() == 1 && self.generated() > 0
    }

    /// Known tokens to compute before it decodes.
    pub fn prefill_remaining(&self) -> usize {
        if self.is_decoding() { 0 } else { self.remaining() }
    }

    /// Its part of a step that may compute `budget` tokens, at least 1.
    pub fn chunk(&self, budget: usize) -> Chunk {
        let end = self.computed + self.remaining().min(budget);
        Chunk {
            seq: self.seq,
            tokens: self.computed as u32..end as u32,
            proposed: 0,
            sample: end == self.known,
            decode: self.is_decoding(),
        }
    }

    /// What it is without its seat.
    pub fn queued(&self) -> Queued {
        Queued {
            seq: self.seq,
            arrival: self.arrival,
            priority: self.priority,
            known: self.known,
            generated: self.generated(),
        }
    }

    /// It yields to everyone who is no batch's.
    pub fn is_batch(&self) -> bool {
        self.priority == Priority::Batch
    }

    fn session(&self) -> SessionView {
        SessionView {
            id: self.seq,
            decoding: self.is_decoding(),
            has_token: self.is_decoding(),
            generated: self.generated(),
            arrival: self.arrival,
            prefill_remaining: self.prefill_remaining(),
        }
    }
}

/// A sequence without blocks in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    pub seq: SeqId,
    pub arrival: u64,
    pub priority: Priority,
    /// Tokens to compute before the next one can be drawn, and those of them that were drawn before.
    pub known: usize,
    pub generated: usize,
}

impl Queued {
    pub fn is_batch(&self) -> bool {
        self.priority == Priority::Batch
    }

    /// Batches last; of each, preempted ones stand at the head in the order of their arrival, before everyone who never ran.
    pub fn join(self, queue: &mut VecDeque<Queued>) {
        let place = |queued: &Queued| (queued.is_batch(), queued.arrival);
        let at = queue.iter().position(|other| place(other) > place(&self)).unwrap_or(queue.len());
        queue.insert(at, self);
    }

    fn session(&self) -> SessionView {
        SessionView {
            id: self.seq,
            decoding: false,
            has_token: false,
            generated: self.generated,
            arrival: self.arrival,
            prefill_remaining: self.known,
        }
    }
}

/// All that a plan depends on, but for blocks and the time. Two that are equal have the same plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    pub(super) config: Config,
    pub(super) heat: Level,
    pub(super) policy: PolicyExecutor,
    /// Orders batches while they are alone.
    pub(super) background: PolicyExecutor,
    pub(super) cost: StepCost,
    /// In the order of arrival, oldest first.
    pub(super) seats: Vec<Seat>,
    /// In the order of admission.
    pub(super) queue: VecDeque<Queued>,
    pub(super) block_size: usize,
    /// Blocks that can be taken. Not for planning where blocks are at hand.
    pub(super) free: Free,
}

/// Free blocks as of some time: two outlooks do not differ by them, since who plans on them says how many it needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free(pub usize);

impl PartialEq for Free {
    fn eq(&self, _: &Free) -> bool {
        true
    }
}

/// Sequences that may run at once when it is so hot.
pub(super) fn open_seats(heat: Level, config: &Config) -> usize {
    match heat {
        Level::Nominal | Level::Fair => config.max_num_seqs,
        Level::Serious | Level::Critical => (config.max_num_seqs / 2).max(1),
        Level::Emergency => 0,
    }
}

impl Scheduler {
    /// As it is now.
    pub fn outlook(&self, pool: &BlockPool) -> Outlook {
        Outlook {
            config: self.config,
            heat: self.heat,
            policy: self.policy.clone(),
            background: self.background.clone(),
            cost: self.cost.clone(),
            seats: self.running.iter().map(Running::seat).collect(),
            queue: self.waiting.iter().map(Waiting::queued).collect(),
            block_size: pool.block_size(),
            free: Free(pool.free()),
        }
    }
}

impl Outlook {
    /// As it will be when `plan`, whose blocks are taken, has brought what it most likely brings: a token to each that
    /// draws, no guess that was right, and no end but those that a limit on length makes certain. Blocks that those free
    /// are not counted.
    pub fn after(mut self, plan: &StepPlan) -> Outlook {
        let longest = self.config.max_model_len;
        for chunk in &plan.chunks {
            let Some(at) = self.seats.iter().position(|seat| seat.seq == chunk.seq) else { continue };
            let seat = &mut self.seats[at];
            seat.computed = (chunk.tokens.end - chunk.proposed) as usize;
            if !chunk.sample {
                continue;
            }
            seat.known += 1;
            seat.token_at = None;
            if seat.generated() >= seat.max_tokens || seat.known >= longest {
                self.seats.remove(at);
            }
        }
        self
    }

    pub(super) fn find_mut(&mut self, seq: SeqId) -> Option<&mut Seat> {
        self.seats.iter_mut().find(|seat| seat.seq == seq)
    }

    pub(super) fn decoding(&self) -> impl Iterator<Item = &Seat> {
        self.seats.iter().filter(|seat| seat.is_decoding())
    }

    /// The policy's proposal for this step.
    pub(super) fn turn(&mut self, slots: usize) -> SchedulingPlan {
        let seated = self.seats.iter().map(Seat::session);
        let sessions: Vec<SessionView> = seated.chain(self.queue.iter().map(Queued::session)).collect();
        let policy = if self.only_batches() { &mut self.background } else { &mut self.policy };
        policy.tick(&sessions, slots)
    }

    /// Seats that may be taken, as hot as it is. More may be: then none is given away.
    pub(super) fn open_seats(&self) -> usize {
        open_seats(self.heat, &self.config)
    }

    /// Heat halves the batch; else everyone running may be in it, also while surplus seats drain.
    pub(super) fn sequences_per_step(&self) -> usize {
        match self.heat {
            Level::Nominal | Level::Fair => usize::MAX,
            Level::Serious | Level::Critical | Level::Emergency => (self.config.max_num_seqs / 2).max(1),
        }
    }

    /// Takes the place of the first in the queue.
    pub(super) fn seat(&mut self, seat: Seat) {
        self.queue.pop_front();
        let at = self.seats.partition_point(|other| other.arrival < seat.arrival);
        self.seats.insert(at, seat);
    }

    /// A running sequence loses its seat.
    pub(super) fn unseat(&mut self, seq: SeqId) {
        let Some(at) = self.seats.iter().position(|seat| seat.seq == seq) else { return };
        let seat = self.seats.remove(at);
        seat.queued().join(&mut self.queue);
    }
}
