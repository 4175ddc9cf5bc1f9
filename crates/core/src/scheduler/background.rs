//! Batches: they run on what the others leave of a step, and give up seats and blocks to whoever wants them.
//!
//! ```text
//! set aside ─▶ everyone else plans as if there were no batches ─▶ bring back ─▶ batches fill the step
//!                    │ no seat, no block: the newest batch gives its own
//! ```
//! So a sequence that is no batch's is planned in the first step after it came, before any batch. Alone, batches are planned
//! like anyone.

use std::collections::VecDeque;

use crate::report::{Preempted, Wait};
use crate::units::SeqId;

use super::cost::StepLoad;
use super::outlook::{Outlook, Queued, Seat};
use super::planning::{Planner, World};
use super::speculate::{MOST_GUESSES, Speculative};

/// Batches, out of sight.
#[derive(Debug, Default)]
pub(super) struct Aside {
    seats: Vec<Seat>,
    queue: VecDeque<Queued>,
}

impl Aside {
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty() && self.queue.is_empty()
    }
}

impl Outlook {
    /// Whether nobody else is here.
    pub(super) fn only_batches(&self) -> bool {
        self.seats.iter().all(Seat::is_batch) && self.queue.iter().all(Queued::is_batch)
    }

    /// Takes batches out if there are others.
    pub(super) fn set_aside(&mut self) -> Aside {
        if self.only_batches() {
            return Aside::default();
        }
        let first = self.queue.partition_point(|queued| !queued.is_batch());
        Aside { seats: self.seats.extract_if(.., |seat| seat.is_batch()).collect(), queue: self.queue.split_off(first) }
    }
}

impl<W: World> Planner<W> {
    /// The newest batch that is aside gives its blocks and its seat to `by`. False if there is none.
    pub(super) fn evict(&mut self, by: SeqId) -> Result<bool, W::Unknown> {
        let Some(newest) = self.aside.seats.last() else { return Ok(false) };
        let seq = newest.seq;
        self.world.preempt(seq)?;
        newest.queued().join(&mut self.aside.queue);
        self.aside.seats.pop();
        self.draft.plan.preempted.push(Preempted { seq, by });
        Ok(true)
    }

    /// Batches leave until there is a seat, or none is left aside.
    pub(super) fn evict_for_seat(&mut self, by: SeqId) -> Result<(), W::Unknown> {
        while self.outlook.seats.len() + self.aside.seats.len() >= self.outlook.open_seats() && self.evict(by)? {}
        Ok(())
    }

    /// What the others left goes to batches, the oldest first: decodes within the time that decoding sequences may wait,
    /// prompts within what is left of it, newcomers. Returns what newcomers wait for.
    pub(super) fn fill_with_batches(&mut self) -> Result<Option<Wait>, W::Unknown> {
        self.outlook.seats.append(&mut self.aside.seats);
        self.outlook.seats.sort_by_key(|seat| seat.arrival);
        self.outlook.queue.append(&mut self.aside.queue);
        let kept = self.room_for_guesses();
        self.draft.tokens -= kept;
        let waits = self.fill_within_time();
        self.draft.tokens += kept;
        let waits = waits?;
        self.extend_oldest_if_nobody()?;
        Ok(waits)
    }

    /// Tokens that the decodes planned so far may still take for guesses, and the time for them; guesses come last of all.
    fn room_for_guesses(&mut self) -> usize {
        self.draft.to_come = StepLoad::default();
        if self.outlook.config.speculative == Speculative::Off {
            return 0;
        }
        let plan = &self.draft.plan;
        let ends = plan.chunks.iter().filter(|chunk| chunk.decode).map(|chunk| chunk.tokens.end as usize);
        let guesses: Vec<usize> = ends.flat_map(|end| end + 1..=end + MOST_GUESSES).take(self.draft.tokens).collect();
        self.draft.to_come = guesses.iter().fold(StepLoad::default(), |sum, &at| sum + StepLoad::decode(at));
        guesses.len()
    }

    fn fill_within_time(&mut self) -> Result<Option<Wait>, W::Unknown> {
        let batches = |decoding: bool| move |seat: &&Seat| seat.is_batch() && seat.is_decoding() == decoding;
        let decodes: Vec<Seat> = self.outlook.seats.iter().filter(batches(true)).copied().collect();
        for seat in decodes {
            if self.draft.slots() == 0 || !self.fits_time(StepLoad::decode(seat.known)) {
                break;
            }
            self.extend(seat.seq, 1)?;
        }
        let prompts: Vec<SeqId> = self.outlook.seats.iter().filter(batches(false)).map(|seat| seat.seq).collect();
        if !self.fits_time(StepLoad::default()) {
            return Ok(Some(Wait::StallLimit));
        }
        self.extend_prompts(prompts.into_iter())?;
        match self.outlook.queue.front() {
            Some(first) if first.is_batch() => self.admit(),
            // Others wait before them, and why is known.
            _ => Ok(None),
        }
    }

    /// Whether those that decode would not wait for too long if the step held this, too.
    fn fits_time(&self, load: StepLoad) -> bool {
        let predicted = self.outlook.cost.predict(&(self.draft.plan.load + self.draft.to_come + load));
        self.draft.limit.zip(predicted).is_none_or(|(limit, predicted)| predicted <= limit)
    }
}
