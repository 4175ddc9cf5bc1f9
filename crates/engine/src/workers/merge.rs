//! Several loops in numbers as if they were one. Pure.

use crate::stats::{EngineStats, WindowStats};
use forebay_core::report::Snapshot;
use forebay_core::units::Micros;
use forebay_turn::stats::QueueStats;

/// Counts are added; of times the longest is told, for that is who has to be looked at. `None` of none.
pub fn stats(all: Vec<EngineStats>) -> Option<EngineStats> {
    all.into_iter().reduce(|one, other| EngineStats {
        now: one.now.max(other.now),
        snapshot: snapshot(&one.snapshot, &other.snapshot),
        total_tokens_generated: one.total_tokens_generated + other.total_tokens_generated,
        queue: queue(one.queue, other.queue),
        window: window(&one.window, &other.window),
        pending_out: one.pending_out + other.pending_out,
        // They are tuned alike and share a machine.
        tuning: one.tuning,
        start: one.start,
        thermal: one.thermal,
    })
}

fn snapshot(one: &Snapshot, other: &Snapshot) -> Snapshot {
    Snapshot {
        queued: one.queued + other.queued,
        waiting: one.waiting + other.waiting,
        running: one.running + other.running,
        blocks_total: one.blocks_total + other.blocks_total,
        blocks_used: one.blocks_used + other.blocks_used,
        blocks_cached: one.blocks_cached + other.blocks_cached,
        preemptions_total: one.preemptions_total + other.preemptions_total,
        steps_total: one.steps_total + other.steps_total,
        paused: one.paused && other.paused,
        draining: one.draining && other.draining,
    }
}

fn queue(one: QueueStats, other: QueueStats) -> QueueStats {
    let batches = (one.batches_formed + other.batches_formed).max(1) as f64;
    let mut last_batches = one.last_batches;
    last_batches.extend(other.last_batches);
    last_batches.sort_by_key(|batch| batch.at);
    QueueStats {
        depths: std::array::from_fn(|class| one.depths[class] + other.depths[class]),
        gathering: one.gathering + other.gathering,
        prompt_tokens: one.prompt_tokens + other.prompt_tokens,
        timeout: one.timeout.max(other.timeout),
        batches_formed: one.batches_formed + other.batches_formed,
        requests_batched: one.requests_batched + other.requests_batched,
        avg_batch_size: (one.avg_batch_size * one.batches_formed as f64
            + other.avg_batch_size * other.batches_formed as f64)
            / batches,
        last_batches,
        drained_per_s: one.drained_per_s + other.drained_per_s,
    }
}

fn window(one: &WindowStats, other: &WindowStats) -> WindowStats {
    let longest = |of: fn(&WindowStats) -> Option<Micros>| of(one).max(of(other));
    WindowStats {
        seconds: one.seconds.max(other.seconds),
        tokens: one.tokens + other.tokens,
        step_last: longest(|window| window.step_last),
        step_mean: longest(|window| window.step_mean),
        step_p50: longest(|window| window.step_p50),
        step_p99: longest(|window| window.step_p99),
        gap_p50: longest(|window| window.gap_p50),
        gap_p99: longest(|window| window.gap_p99),
        ttft_p50: longest(|window| window.ttft_p50),
        ttft_p99: longest(|window| window.ttft_p99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_times_are_the_longest() {
        let one =
            QueueStats { batches_formed: 1, avg_batch_size: 4.0, depths: [1, 0, 2, 0, 2], ..QueueStats::default() };
        let other =
            QueueStats { batches_formed: 3, avg_batch_size: 8.0, depths: [0, 1, 2, 0, 0], ..QueueStats::default() };
        let both = queue(one, other);
        assert_eq!((both.batches_formed, both.avg_batch_size, both.depths), (4, 7.0, [1, 1, 4, 0, 2]));
        let quick = WindowStats { tokens: 5, step_p99: Some(Micros(10)), seconds: 2.0, ..WindowStats::default() };
        let slow = WindowStats { tokens: 3, step_p99: Some(Micros(90)), seconds: 2.0, ..WindowStats::default() };
        let both = window(&quick, &slow);
        assert_eq!((both.step_p99, both.ttft_p99, both.tok_per_sec()), (Some(Micros(90)), None, 4.0));
        let idle = Snapshot { running: 1, draining: true, ..Snapshot::default() };
        let both = snapshot(&idle, &Snapshot { running: 2, ..Snapshot::default() });
        assert_eq!((both.running, both.draining), (3, false));
    }
}
