//! What the server was like, at falling resolution: each sample of the newest stretch, then ten at a time, then a hundred, until
//! the retention is covered. Memory is bounded by a few rings. Pure.

use std::collections::VecDeque;

use forebay_core::request::CLASSES;

/// Points in a ring, and how many of a ring make one of the next.
const RING: usize = 600;
const TOGETHER: u32 = 10;

/// Counted since the start; only ever rises. What happened between two points is their difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Sequences that were queued, and those that ended: completed, and otherwise.
    pub queued: u64,
    pub completed: u64,
    pub broken: u64,
    pub batches: u64,
    /// Requests in them.
    pub batched: u64,
    pub prompt_tokens: u64,
    pub generation_tokens: u64,
    /// Prompt tokens looked up in the prefix cache, and found there.
    pub cache_queries: u64,
    pub cache_hits: u64,
    pub steps: u64,
    /// Sequences in them.
    pub stepped: u64,
    /// By class that something is promised to: sequences that were served as promised, and those that were not.
    pub promises: [[u64; 2]; CLASSES - 1],
}

/// As it is at a moment; over a stretch, the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Levels {
    /// By priority, highest first.
    pub queued: [f32; CLASSES],
    pub running: [f32; CLASSES],
    /// Sequences with a seat and no blocks.
    pub waiting: f32,
    pub blocks: f32,
    pub blocks_free: f32,
    pub blocks_cached: f32,
}

/// p50, p90, p99 and p99.9 in milliseconds; `None` before the first.
pub type Percentiles = Option<[f32; 4]>;

/// Over a stretch, the greatest of each: a spike must not fade from the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latencies {
    pub whole: Percentiles,
    pub ttft: Percentiles,
    pub inter_token: Percentiles,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// The end of the stretch, in milliseconds since 1970.
    pub at_ms: i64,
    pub span_ms: u32,
    /// At the end.
    pub totals: Totals,
    pub levels: Levels,
    pub latencies: Latencies,
}

#[derive(Clone, Debug)]
pub struct Timeline {
    /// Finest first.
    tiers: Vec<Tier>,
}

#[derive(Clone, Debug)]
struct Tier {
    most: usize,
    points: VecDeque<Point>,
    /// Points of the tier before that do not make one yet, and how many they are.
    gathering: Option<(Point, u32)>,
}

impl Timeline {
    /// For a sample every `interval_ms`, kept for `retention_ms`.
    pub fn new(interval_ms: u64, retention_ms: u64) -> Timeline {
        let mut tiers = Vec::new();
        let mut step = interval_ms.max(1);
        loop {
            let needed = (retention_ms / step).max(1) as usize;
            tiers.push(Tier { most: needed.min(RING), points: VecDeque::new(), gathering: None });
            if needed <= RING {
                return Timeline { tiers };
            }
            step *= u64::from(TOGETHER);
        }
    }

    /// `point` ends after all that were added before.
    pub fn add(&mut self, point: Point) {
        let mut next = Some(point);
        for tier in &mut self.tiers {
            let Some(point) = next else { return };
            next = tier.gather(point);
            // What was gathered is the coarser tier's; this one keeps what came.
            if tier.points.len() == tier.most {
                tier.points.pop_front();
            }
            tier.points.push_back(point);
        }
    }

    /// The newest of all.
    pub fn newest(&self) -> Option<&Point> {
        self.tiers.first()?.points.back()
    }

    /// The newest point that ends at `at_ms` or before, in the finest resolution that goes back so far; or else the oldest of the
    /// finest.
    pub fn before(&self, at_ms: i64) -> Option<&Point> {
        let newest = |tier: &'_ Tier| tier.points.partition_point(|point| point.at_ms <= at_ms).checked_sub(1);
        let found = self.tiers.iter().find_map(|tier| newest(tier).and_then(|index| tier.points.get(index)));
        found.or_else(|| self.tiers.first()?.points.front())
    }

    /// What ends after `since_ms`, oldest first, each stretch once and in the finest resolution that is left of it.
    pub fn since(&self, since_ms: i64) -> Vec<Point> {
        let mut told: Vec<Point> = Vec::new();
        for (index, tier) in self.tiers.iter().enumerate().rev() {
            let finer = index.checked_sub(1).and_then(|finer| self.tiers[finer].points.front());
            // A stretch of which the finer tier has lost the beginning is told here.
            let ends = finer.map_or(i64::MAX, |first| first.at_ms - i64::from(first.span_ms));
            let begun = told.last().map_or(since_ms, |last| last.at_ms.max(since_ms));
            let part = tier.points.iter().filter(|point| point.at_ms > begun);
            told.extend(part.take_while(|point| point.at_ms - i64::from(point.span_ms) < ends));
        }
        told
    }

    /// All that ended after `since_ms` as one, if anything did.
    pub fn whole(&self, since_ms: i64) -> Option<Point> {
        self.since(since_ms).into_iter().reduce(|before, after| before.and(&after))
    }

    /// Points that are kept.
    pub fn len(&self) -> usize {
        self.tiers.iter().map(|tier| tier.points.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Tier {
    /// Returns a point of the next tier when there are enough.
    fn gather(&mut self, point: Point) -> Option<Point> {
        let (whole, count) = match self.gathering.take() {
            Some((before, count)) => (before.and(&point), count + 1),
            None => (point, 1),
        };
        if count == TOGETHER {
            return Some(whole);
        }
        self.gathering = Some((whole, count));
        None
    }
}

impl Point {
    /// This stretch and the one after it as one.
    fn and(&self, after: &Point) -> Point {
        let whole = self.span_ms + after.span_ms;
        let share = if whole == 0 { 0.5 } else { after.span_ms as f32 / whole as f32 };
        Point {
            at_ms: after.at_ms,
            span_ms: whole,
            totals: after.totals,
            levels: self.levels.towards(&after.levels, share),
            latencies: self.latencies.greatest(&after.latencies),
        }
    }
}

impl Levels {
    fn towards(&self, other: &Levels, share: f32) -> Levels {
        let mean = |one: f32, other: f32| one + (other - one) * share;
        let each = |one: &[f32; CLASSES], other: &[f32; CLASSES]| std::array::from_fn(|at| mean(one[at], other[at]));
        Levels {
            queued: each(&self.queued, &other.queued),
            running: each(&self.running, &other.running),
            waiting: mean(self.waiting, other.waiting),
            blocks: mean(self.blocks, other.blocks),
            blocks_free: mean(self.blocks_free, other.blocks_free),
            blocks_cached: mean(self.blocks_cached, other.blocks_cached),
        }
    }
}

impl Latencies {
    fn greatest(&self, other: &Latencies) -> Latencies {
        let of = |one: Percentiles, other: Percentiles| match (one, other) {
            (Some(one), Some(other)) => Some(std::array::from_fn(|at| f32::max(one[at], other[at]))),
            (one, other) => one.or(other),
        };
        Latencies {
            whole: of(self.whole, other.whole),
            ttft: of(self.ttft, other.ttft),
            inter_token: of(self.inter_token, other.inter_token),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point(n: i64) -> Point {
        Point {
            at_ms: (n + 1) * 100,
            span_ms: 100,
            totals: Totals { queued: n as u64, ..Totals::default() },
            levels: Levels { waiting: n as f32, ..Levels::default() },
            latencies: Latencies { ttft: Some([n as f32; 4]), ..Latencies::default() },
        }
    }

    fn filled(count: i64) -> Timeline {
        let mut timeline = Timeline::new(100, 3_600_000);
        (0..count).for_each(|n| timeline.add(point(n)));
        timeline
    }

    #[test]
    fn an_hour_is_kept_at_falling_resolution() {
        let timeline = filled(40_000);
        let told = timeline.since(0);
        let spans = |span| told.iter().filter(|point| point.span_ms == span).count();
        assert_eq!((spans(100), spans(1_000)), (600, 540), "a minute, and nine more");
        assert_eq!(spans(10_000), 300, "fifty minutes more");
        assert_eq!(told.len(), 1_440);
        let hour: i64 = told.iter().map(|point| i64::from(point.span_ms)).sum();
        assert_eq!(hour, 3_600_000);
        assert_eq!(timeline.len(), 600 + 600 + 360);
    }

    #[test]
    fn ten_points_become_their_mean_their_greatest_and_their_last() {
        let timeline = filled(700);
        let first = timeline.since(0)[0];
        assert_eq!((first.at_ms, first.span_ms), (1_000, 1_000));
        assert_eq!(first.totals.queued, 9);
        assert!((first.levels.waiting - 4.5).abs() < 1e-3, "{}", first.levels.waiting);
        assert_eq!(first.latencies.ttft, Some([9.0; 4]));
        assert_eq!(first.latencies.whole, None);
    }

    #[test]
    fn the_newest_points_can_be_asked_for() {
        let timeline = filled(700);
        assert_eq!(timeline.newest().unwrap().at_ms, 70_000);
        assert_eq!(timeline.since(69_800).iter().map(|point| point.at_ms).collect::<Vec<_>>(), [69_900, 70_000]);
        assert_eq!(timeline.before(65_050).unwrap().at_ms, 65_000);
        assert_eq!(timeline.before(5_500).unwrap().at_ms, 5_000, "coarser");
        assert_eq!(timeline.before(0).unwrap().at_ms, 10_100, "the oldest of the finest");
        assert!(Timeline::new(100, 1_000).before(0).is_none());
        let whole = timeline.whole(69_700).unwrap();
        assert_eq!((whole.at_ms, whole.span_ms, whole.levels.waiting), (70_000, 300, 698.0));
        assert_eq!(timeline.whole(70_000), None);
    }

    proptest! {
        /// Every moment is told once, whatever the interval, and however irregular the samples are.
        #[test]
        fn no_gap_and_no_overlap(spans in proptest::collection::vec(1u32..500, 1..3_000), interval in 1u64..400) {
            let mut timeline = Timeline::new(interval, 3_600_000);
            let mut at_ms = 0;
            for span_ms in spans {
                at_ms += i64::from(span_ms);
                timeline.add(Point { at_ms, span_ms, ..Point::default() });
            }
            let told = timeline.since(i64::MIN);
            for pair in told.windows(2) {
                prop_assert_eq!(pair[0].at_ms, pair[1].at_ms - i64::from(pair[1].span_ms));
            }
            prop_assert_eq!(told.last().unwrap().at_ms, at_ms);
            prop_assert!(timeline.len() <= timeline.tiers.len() * RING);
        }

        /// Memory does not depend on how long the server has run, only on the ratio of retention to interval, and on that as a logarithm.
        #[test]
        fn rings_are_few(interval in 1u64..60_000, retention in 1u64..604_800_000) {
            prop_assert!(Timeline::new(interval, retention).tiers.len() <= 8);
        }
    }
}
