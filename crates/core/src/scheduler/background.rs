//! Batches: they run on what the others leave of a step, and give up seats and blocks to whoever wants them.
//!
//! ```text
//! set aside ─▶ everyone else plans as if there were no batches ─▶ bring back ─▶ batches fill the step
//!                    │ no seat, no block: the newest batch gives its own
//! ```
//! So a sequence that is no batch's is planned in the first step after it came, before any batch. Alone, batches are planned
//! like anyone.

use crate::report::Wait;
use crate::request::Priority;
use crate::units::SeqId;

use super::cost::StepLoad;
use super::lookup::{MOST_GUESSES, Speculative};
use super::planner::Planner;
use super::sequence::{Running, Waiting};

impl Planner<'_> {
    /// What the others left goes to batches, the oldest first: decodes within the time that decoding sequences may wait,
    /// prompts within what is left of it, newcomers. Returns what newcomers wait for.
    pub fn fill_with_batches(&mut self) -> Option<Wait> {
        self.queues.bring_back(std::mem::take(&mut self.aside));
        let kept = self.room_for_guesses();
        self.draft.tokens -= kept;
        let waits = self.fill_within_time();
        self.draft.tokens += kept;
        self.extend_oldest_if_nobody();
        waits
    }

    /// Tokens that the decodes planned so far may still take for guesses, and the time for them; guesses come last of all.
    fn room_for_guesses(&mut self) -> usize {
        self.draft.to_come = StepLoad::default();
        if self.config.speculative == Speculative::Off {
            return 0;
        }
        let plan = &self.draft.plan;
        let ends = plan.chunks.iter().filter(|chunk| chunk.decode).map(|chunk| chunk.tokens.end as usize);
        let guesses: Vec<usize> = ends.flat_map(|end| end + 1..=end + MOST_GUESSES).take(self.draft.tokens).collect();
        self.draft.to_come = guesses.iter().fold(StepLoad::default(), |sum, &at| sum + StepLoad::decode(at));
        guesses.len()
    }

    fn fill_within_time(&mut self) -> Option<Wait> {
        let batches =
            |decoding: bool| move |running: &&Running| running.is_batch() && running.is_decoding() == decoding;
        let decodes = self.queues.running.iter().filter(batches(true));
        let decodes: Vec<(SeqId, usize)> = decodes.map(|running| (running.id(), running.known())).collect();
        for (seq, known) in decodes {
            if self.draft.slots() == 0 || !self.fits_time(StepLoad::decode(known)) {
                break;
            }
            self.extend(seq, 1);
        }
        let prompts: Vec<SeqId> = self.queues.running.iter().filter(batches(false)).map(Running::id).collect();
        if !self.fits_time(StepLoad::default()) {
            return Some(Wait::StallLimit);
        }
        self.extend_prompts(prompts.into_iter());
        // Where others wait before them, why is known.
        if self.queues.waiting.front().is_some_and(Waiting::is_batch) { self.admit(Priority::Batch) } else { None }
    }

    /// Whether those that decode would not wait for too long if the step held this, too.
    fn fits_time(&self, load: StepLoad) -> bool {
        let predicted = self.cost.predict(&(self.draft.plan.load + self.draft.to_come + load));
        self.draft.limit.zip(predicted).is_none_or(|(limit, predicted)| predicted <= limit)
    }
}
