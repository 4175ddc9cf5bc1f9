//! The newest requests in numbers, no text: what recommendations are made from. Pure.

use std::collections::{HashMap, VecDeque};

use forebay_core::request::Priority;
use forebay_core::scheduler::StepCost;
use forebay_core::units::{Micros, SeqId};

use super::control::Tuning;

/// Sequences that are remembered.
const MAX_PAST: usize = 16_384;

/// One sequence, live or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    pub at: Micros,
    pub priority: Priority,
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    pub first_token: Option<Micros>,
    /// When its newest token came.
    pub last: Micros,
    /// How it ended, if it has.
    pub completed: Option<bool>,
}

/// What came lately, and the engine that served it.
#[derive(Clone, Debug)]
pub struct Record {
    pub now: Micros,
    /// The beginning of what counts: of the window, of the loop, or of the tuning in force.
    pub since: Micros,
    /// Oldest first.
    pub past: Vec<Past>,
    pub tuning: Tuning,
    /// Of long memory.
    pub cost: StepCost,
    /// Mean time between two steps.
    pub gap: Micros,
    pub block_size: usize,
    pub num_blocks: usize,
}

#[derive(Debug, Default)]
pub struct History {
    ring: VecDeque<Past>,
    /// Live ones: the number of each, counted from the first that ever came.
    live: HashMap<SeqId, u64>,
    /// Of the ring's first entry.
    first: u64,
    /// When the tuning was last changed.
    changed: Micros,
}

impl History {
    pub fn begin(&mut self, seq: SeqId, priority: Priority, prompt_tokens: u32, now: Micros) {
        if self.ring.len() == MAX_PAST {
            self.ring.pop_front();
            self.first += 1;
        }
        self.live.insert(seq, self.first + self.ring.len() as u64);
        self.ring.push_back(Past {
            at: now,
            priority,
            prompt_tokens,
            output_tokens: 0,
            first_token: None,
            last: now,
            completed: None,
        });
    }

    pub fn token(&mut self, seq: SeqId, now: Micros) {
        if let Some(past) = self.find(seq) {
            past.output_tokens += 1;
            past.first_token.get_or_insert(now);
            past.last = now;
        }
    }

    /// Only its first end counts.
    pub fn end(&mut self, seq: SeqId, completed: bool, now: Micros) {
        if let Some(past) = self.find(seq) {
            past.completed = Some(completed);
            past.last = past.last.max(if completed { past.last } else { now });
        }
        self.live.remove(&seq);
    }

    /// What came before happened under another tuning.
    pub fn changed(&mut self, now: Micros) {
        self.changed = now;
    }

    pub fn since(&self, now: Micros, window: Micros) -> Micros {
        Micros(now.0.saturating_sub(window.0)).max(self.changed)
    }

    /// Those that came in the window, oldest first.
    pub fn newest(&self, now: Micros, window: Micros) -> Vec<Past> {
        let since = Micros(now.0.saturating_sub(window.0));
        let from = self.ring.partition_point(|past| past.at < since);
        self.ring.range(from..).copied().collect()
    }

    /// Of live ones that are still remembered.
    fn find(&mut self, seq: SeqId) -> Option<&mut Past> {
        let at = self.live.get(&seq)?.checked_sub(self.first)?;
        self.ring.get_mut(at as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_told_in_numbers() {
        let mut history = History::default();
        history.begin(SeqId(7), Priority::High, 30, Micros(100));
        history.begin(SeqId(8), Priority::Low, 5, Micros(200));
        for now in [500, 600] {
            history.token(SeqId(7), Micros(now));
        }
        history.end(SeqId(7), true, Micros(700));
        history.token(SeqId(7), Micros(800));
        let all = history.newest(Micros(1_000), Micros(1_000));
        let expected = Past {
            at: Micros(100),
            priority: Priority::High,
            prompt_tokens: 30,
            output_tokens: 2,
            first_token: Some(Micros(500)),
            last: Micros(600),
            completed: Some(true),
        };
        assert_eq!((all.len(), all[0]), (2, expected));
        assert_eq!(history.newest(Micros(1_000), Micros(850)).len(), 1);
        history.changed(Micros(900));
        assert_eq!(history.since(Micros(1_000), Micros(850)), Micros(900));
        assert_eq!(history.since(Micros(1_000), Micros(50)), Micros(950));
    }

    #[test]
    fn the_ring_is_bounded_and_the_forgotten_are_left_alone() {
        let mut history = History::default();
        let count = MAX_PAST as u64 + 10;
        for n in 0..count {
            history.begin(SeqId(n), Priority::Normal, 1, Micros(n));
        }
        for n in 0..count {
            history.token(SeqId(n), Micros(count));
            history.end(SeqId(n), true, Micros(count));
        }
        let all = history.newest(Micros(count), Micros(count));
        assert_eq!((all.len(), all[0].at, history.live.len()), (MAX_PAST, Micros(10), 0));
        assert!(all.iter().all(|past| past.output_tokens == 1 && past.completed == Some(true)));
    }
}
