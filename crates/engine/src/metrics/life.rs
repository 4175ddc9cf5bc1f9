//! A sequence's life in numbers, and how far its prompt is.

use super::record::Metrics;
use forebay_core::units::Micros;

/// A sequence that completed. Times are since it was queued.
#[derive(Clone, Copy, Debug, Default)]
pub struct Life {
    pub prompt_tokens: usize,
    pub generated_tokens: usize,
    pub max_tokens: usize,
    /// When it left the queue.
    pub released: Micros,
    /// `None` where it ended without any.
    pub first_token: Option<Micros>,
    pub last_token: Micros,
}

/// How far a prompt is. Each of its tokens is computed once, or found in the cache once; what is computed again, after a
/// preemption, is another matter.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    len: usize,
    /// Before this place nothing is new.
    reached: usize,
    counted: usize,
}

impl Progress {
    /// A prompt of `len` tokens that was queued.
    pub fn new(len: usize) -> Progress {
        Progress { len, reached: 0, counted: 0 }
    }

    /// The cache had so many of the sequence's first tokens; returns how many of them are news.
    pub fn found(&mut self, cached: usize) -> usize {
        self.pass(0, cached)
    }

    /// Its tokens from `from` to `to` were computed; returns how many of the prompt's for the first time, and how many tokens
    /// of it or after it again.
    pub fn computed(&mut self, from: usize, to: usize) -> (usize, usize) {
        let new = self.pass(from, to);
        (new, to.saturating_sub(from) - new)
    }

    /// What is still to come. A place that was passed over stays missing for ever, and the sums of what was queued and what was
    /// done tell of it.
    pub fn missing(&self) -> usize {
        self.len - self.counted
    }

    fn pass(&mut self, from: usize, to: usize) -> usize {
        let to = to.min(self.len);
        let new = to.saturating_sub(from.max(self.reached));
        self.reached = self.reached.max(to);
        self.counted += new;
        new
    }
}

impl Metrics {
    /// Prompt tokens were found in the cache.
    pub fn prompt_cached(&self, tokens: usize) {
        self.prompt_by_source[1].inc_by(tokens as u64);
        self.prompt_pending.part.add(-(tokens as i64));
    }

    /// Prompt tokens were computed, `again` counting those that had been before.
    pub fn prompt_computed(&self, new: usize, again: usize) {
        self.prompt_by_source[0].inc_by(new as u64);
        self.prompt_pending.part.add(-(new as i64));
        self.recomputed.inc_by(again as u64);
    }

    /// A sequence ended before its prompt did. Those that completed have no right to that: what is `missing` then is missing in
    /// the sums, too.
    pub fn prompt_ended(&self, missing: usize, completed: bool) {
        self.prompt_pending.part.add(-(missing as i64));
        if !completed {
            self.prompt_abandoned.inc_by(missing as u64);
        }
    }

    /// A sequence completed.
    pub fn lived(&self, life: &Life) {
        let observe = |histogram: &::prometheus::Histogram, time: Micros| histogram.observe(time.as_secs_f64());
        self.request_prompt_tokens.observe(life.prompt_tokens as f64);
        self.request_generation_tokens.observe(life.generated_tokens as f64);
        self.request_max_tokens.observe(life.max_tokens as f64);
        let tokens = (life.prompt_tokens + life.generated_tokens) as i64;
        // Two loops may do this at once: the shorter sequence may win, until the next.
        if tokens > self.longest.get() {
            self.longest.set(tokens);
        }
        let Some(first) = life.first_token else { return };
        observe(&self.prefill_time, first.since(life.released));
        observe(&self.decode_time, life.last_token.since(first));
        observe(&self.inference_time, life.last_token.since(life.released));
        if let Some(later) = life.generated_tokens.checked_sub(1).filter(|later| *later > 0) {
            self.time_per_token.observe(life.last_token.since(first).as_secs_f64() / later as f64);
        }
    }

    /// Prompt tokens that need no more work.
    pub(super) fn prompt_done(&self) -> u64 {
        self.prompt_by_source.iter().map(::prometheus::IntCounter::get).sum()
    }

    /// Tokens per block, and blocks.
    pub(super) fn cache(&self) -> (i64, i64) {
        (self.block_size.get(), self.kv_blocks[1].sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_of_a_prompt_counts_once() {
        let mut progress = Progress::new(10);
        assert_eq!(progress.found(4), 4);
        assert_eq!(progress.computed(4, 8), (4, 0));
        // Preempted; others have computed more of the same meanwhile.
        assert_eq!(progress.found(6), 0);
        assert_eq!(progress.computed(6, 9), (1, 2));
        assert_eq!(progress.missing(), 1);
        // With tokens that it had generated.
        assert_eq!(progress.computed(9, 12), (1, 2));
        assert_eq!(progress.missing(), 0);
        assert_eq!(progress.computed(0, 12), (0, 12));
    }

    #[test]
    fn a_place_that_was_passed_over_is_missing_for_ever() {
        let mut progress = Progress::new(10);
        progress.computed(0, 4);
        progress.computed(5, 10);
        assert_eq!(progress.missing(), 1);
        assert_eq!((progress.computed(0, 10), progress.missing()), ((0, 10), 1));
    }
}
