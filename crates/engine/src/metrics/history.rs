//! What `/metrics/json` tells and Prometheus would have to compute: percentiles, and how things were a while ago.

use super::part::Part;
use super::recent::{Time, lock};
use super::record::Metrics;
use super::timeline::{Latencies, Levels, Point, Totals};

impl Metrics {
    /// The server at this moment, the wall clock's.
    pub fn look(&self, at_ms: i64) -> Point {
        let (batches, batched) = counted(&self.flushed_requests);
        let (steps, stepped) = counted(&self.batch_size);
        let level = |part: &Part| part.sum() as f32;
        let [used, blocks, cached] = self.kv_blocks.each_ref().map(level);
        let percentiles = |what| self.recent.percentiles(what);
        Point {
            at_ms,
            span_ms: 0,
            totals: Totals {
                queued: self.admitted.get(),
                completed: self.stopped.get() + self.length.get(),
                broken: self.cancelled.get() + self.failed.get(),
                batches,
                batched,
                prompt_tokens: self.prompt_done(),
                generation_tokens: self.generation_tokens.get(),
                cache_queries: self.prefix_queries.get(),
                cache_hits: self.prefix_hits.get(),
                steps,
                stepped,
                promises: self.promises.each_ref().map(|class| class.each_ref().map(::prometheus::IntCounter::get)),
            },
            levels: Levels {
                queued: self.queue_depth.each_ref().map(level),
                running: self.running_by_priority.each_ref().map(level),
                waiting: level(&self.seatless),
                blocks,
                blocks_free: (blocks - used).max(0.0),
                blocks_cached: cached,
            },
            latencies: Latencies {
                whole: percentiles(Time::Whole),
                ttft: percentiles(Time::FirstToken),
                inter_token: percentiles(Time::InterToken),
            },
        }
    }

    /// Adds the present to the history. To be called at each interval, and by one only.
    pub fn sample(&self, at_ms: i64) {
        self.process.refresh(at_ms);
        let mut point = self.look(at_ms);
        let mut timeline = lock(&self.recent.timeline);
        let Some(before) = timeline.newest().map(|newest| newest.at_ms) else {
            return timeline.add(point);
        };
        // A wall clock that was set back: nothing is told until it has caught up.
        if let Ok(span_ms) = u32::try_from(at_ms - before)
            && span_ms > 0
        {
            point.span_ms = span_ms;
            timeline.add(point);
        }
    }

    /// Samples that end after `since_ms`, oldest first, the older ones in coarser steps.
    pub fn history(&self, since_ms: i64) -> Vec<Point> {
        lock(&self.recent.timeline).since(since_ms)
    }

    /// All samples that end after `since_ms` as one.
    pub fn stretch(&self, since_ms: i64) -> Option<Point> {
        lock(&self.recent.timeline).whole(since_ms)
    }

    /// The newest sample that is as old as `at_ms`, or the oldest of the recent ones.
    pub fn sample_before(&self, at_ms: i64) -> Option<Point> {
        lock(&self.recent.timeline).before(at_ms).copied()
    }
}

/// How often something was observed, and the sum.
fn counted(histogram: &::prometheus::Histogram) -> (u64, u64) {
    (histogram.get_sample_count(), histogram.get_sample_sum() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::request::{FinishReason, Priority};
    use forebay_core::units::Micros;

    #[test]
    fn samples_tell_what_was_counted_and_measured_until_then() {
        let metrics = Metrics::new();
        metrics.sample(1_000);
        metrics.admitted(2, 30);
        metrics.prompt_computed(20, 5);
        metrics.released([Micros(1), Micros(2)].into_iter(), "full");
        metrics.queue([0, 3, 0, 0, 1], 0.0);
        metrics.first_token(Micros::from_millis(40), None, Micros(50_000));
        metrics.finished(FinishReason::Stop, Micros::from_millis(90), Micros(90_000));
        metrics.promised(Priority::High, true);
        metrics.promised(Priority::High, false);
        metrics.promised(Priority::Low, false);
        metrics.promised(Priority::Batch, true);
        metrics.sample(1_100);
        let [before, after] = metrics.history(0).try_into().unwrap();
        assert_eq!((before.totals, before.latencies), (Totals::default(), Latencies::default()));
        assert_eq!((after.at_ms, after.span_ms), (1_100, 100));
        let told = after.totals;
        assert_eq!((told.queued, told.completed, told.batches, told.batched), (2, 1, 1, 2));
        assert_eq!(told.promises, [[0, 0], [1, 1], [0, 0], [0, 1]], "nothing is promised to batches");
        assert_eq!(told.prompt_tokens, 20, "what was computed, not what was queued");
        assert_eq!(after.levels.queued, [0.0, 3.0, 0.0, 0.0, 1.0]);
        assert_eq!(after.latencies.ttft, Some([40.0; 4]));
        assert_eq!(after.latencies.whole, Some([90.0; 4]));
        assert_eq!(after.latencies.inter_token, None);
    }

    #[test]
    fn a_clock_that_is_set_back_adds_nothing_until_it_has_caught_up() {
        let metrics = Metrics::new();
        for at in [1_000, 1_100, 500, 1_100, 1_200] {
            metrics.sample(at);
        }
        let told: Vec<(i64, u32)> = metrics.history(0).iter().map(|point| (point.at_ms, point.span_ms)).collect();
        assert_eq!(told, [(1_000, 0), (1_100, 100), (1_200, 100)]);
    }
}
