//! When a gathered group goes: a small strategy says how long it may gather and whether it is ready.
//!
//! What gathering is worth in continuous batching: each step with a prompt in it keeps the sequences that decode waiting for
//! longer than a step without. Prompts that come one by one disturb nearly every step; a group that is computed at once, in few
//! large steps, disturbs few of them, and between two groups decodes run undisturbed. So a strategy's timeout is also the pause
//! that decodes get between two groups. On an idle engine every microsecond of gathering is lost, so the intake releases at once
//! there (`idle_release`) whatever the strategy. `idle_release: false` keeps the classical meaning, timers on an idle engine too.
//!
//! | strategy        | the pause between two groups of prompts                               | who joins a group that is computed |
//! |-----------------|-----------------------------------------------------------------------|------------------------------------|
//! | `fixed`         | `max_wait`                                                            | nobody: newcomers wait             |
//! | `queue_depth`   | `max_wait` when the queue is short, `min_wait` when long, none for    | newcomers                          |
//! |                 | what fills a step                                                     |                                    |
//! | `latency_aware` | as `queue_depth`, × 0.8 over the latency target, × 1.2 well under it  | newcomers                          |
//! | `immediate`     | none                                                                  | newcomers                          |
//! | `cost_aware`    | none                                                                  | whoever gains more than it costs   |

mod config;
mod cost_aware;
mod fixed;
mod flush;
mod immediate;
mod latency_aware;
mod queue_depth;

use crate::units::Micros;

pub use config::{FlushConfig, StrategyKind};
pub use cost_aware::CostAware;
pub use fixed::Fixed;
pub use flush::{FlushMetrics, FlushStrategy, Gathering, Joining, Pause, Prices};
pub use immediate::Immediate;
pub use latency_aware::LatencyAware;
pub use queue_depth::QueueDepth;

/// A strategy with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    Fixed(Fixed),
    QueueDepth(QueueDepth),
    LatencyAware(LatencyAware),
    Immediate(Immediate),
    CostAware(CostAware),
}

/// The configured strategy.
pub fn strategy(config: &FlushConfig) -> Strategy {
    match config.strategy {
        StrategyKind::Fixed => Strategy::Fixed(Fixed::new(config)),
        StrategyKind::QueueDepth => Strategy::QueueDepth(QueueDepth::new(config)),
        StrategyKind::LatencyAware => Strategy::LatencyAware(LatencyAware::new(config)),
        StrategyKind::Immediate => Strategy::Immediate(Immediate),
        StrategyKind::CostAware => Strategy::CostAware(CostAware),
    }
}

impl FlushStrategy for Strategy {
    fn calculate_timeout(&self, queue_depth: usize, metrics: &FlushMetrics) -> Micros {
        match self {
            Strategy::Fixed(strategy) => strategy.calculate_timeout(queue_depth, metrics),
            Strategy::QueueDepth(strategy) => strategy.calculate_timeout(queue_depth, metrics),
            Strategy::LatencyAware(strategy) => strategy.calculate_timeout(queue_depth, metrics),
            Strategy::Immediate(strategy) => strategy.calculate_timeout(queue_depth, metrics),
            Strategy::CostAware(strategy) => strategy.calculate_timeout(queue_depth, metrics),
        }
    }

    fn should_flush(&self, batch: &Gathering, queue_depth: usize) -> bool {
        match self {
            Strategy::Fixed(strategy) => strategy.should_flush(batch, queue_depth),
            Strategy::QueueDepth(strategy) => strategy.should_flush(batch, queue_depth),
            Strategy::LatencyAware(strategy) => strategy.should_flush(batch, queue_depth),
            Strategy::Immediate(strategy) => strategy.should_flush(batch, queue_depth),
            Strategy::CostAware(strategy) => strategy.should_flush(batch, queue_depth),
        }
    }

    fn interrupts(&self, pause: &Pause) -> bool {
        match self {
            Strategy::Fixed(strategy) => strategy.interrupts(pause),
            Strategy::QueueDepth(strategy) => strategy.interrupts(pause),
            Strategy::LatencyAware(strategy) => strategy.interrupts(pause),
            Strategy::Immediate(strategy) => strategy.interrupts(pause),
            Strategy::CostAware(strategy) => strategy.interrupts(pause),
        }
    }

    fn closes_groups(&self) -> bool {
        match self {
            Strategy::Fixed(strategy) => strategy.closes_groups(),
            Strategy::QueueDepth(strategy) => strategy.closes_groups(),
            Strategy::LatencyAware(strategy) => strategy.closes_groups(),
            Strategy::Immediate(strategy) => strategy.closes_groups(),
            Strategy::CostAware(strategy) => strategy.closes_groups(),
        }
    }

    fn admits(&self, joining: &Joining) -> bool {
        match self {
            Strategy::Fixed(strategy) => strategy.admits(joining),
            Strategy::QueueDepth(strategy) => strategy.admits(joining),
            Strategy::LatencyAware(strategy) => strategy.admits(joining),
            Strategy::Immediate(strategy) => strategy.admits(joining),
            Strategy::CostAware(strategy) => strategy.admits(joining),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;

    /// Timeouts in microseconds under the default configuration, for each depth.
    fn check(kind: StrategyKind, p99_ms: Option<u64>, expected: &[(usize, u64)]) {
        let strategy = strategy(&FlushConfig { strategy: kind, ..FlushConfig::default() });
        let metrics = FlushMetrics { p99_ttft: p99_ms.map(Micros::from_millis) };
        for &(depth, timeout) in expected {
            assert_eq!(strategy.calculate_timeout(depth, &metrics), Micros(timeout), "{kind:?} {p99_ms:?} {depth}");
        }
    }

    #[test]
    fn timeouts_of_every_strategy() {
        use StrategyKind::{Fixed, Immediate, LatencyAware, QueueDepth};
        check(Fixed, Some(9_999), &[(0, 100 * MS), (10, 100 * MS), (100, 100 * MS), (9_999, 100 * MS)]);
        check(Immediate, Some(9_999), &[(0, 0), (100, 0)]);
        // 95 ms over 90 requests.
        let linear =
            [(0, 100_000), (10, 100_000), (11, 98_945), (55, 52_500), (99, 6_056), (100, 5_000), (5_000, 5_000)];
        check(QueueDepth, None, &linear);
        check(QueueDepth, Some(9_999), &linear);
        check(LatencyAware, None, &linear);
        // The target is 500 ms: unchanged from 400 to 550, both included.
        for p99 in [400, 500, 550] {
            check(LatencyAware, Some(p99), &linear);
        }
        check(LatencyAware, Some(551), &[(0, 80 * MS), (55, 42 * MS), (100, 4 * MS)]);
        check(LatencyAware, Some(399), &[(0, 120 * MS), (55, 63 * MS), (100, 6 * MS)]);
        check(LatencyAware, Some(0), &[(0, 120 * MS)]);
    }

    #[test]
    fn thresholds_that_meet_or_cross_divide_nothing_by_zero() {
        for (low, high) in [(10, 10), (20, 10), (0, 0)] {
            let config = FlushConfig { queue_depth_low: low, queue_depth_high: high, ..FlushConfig::default() };
            let timeout = |depth| strategy(&config).calculate_timeout(depth, &FlushMetrics::default());
            assert_eq!((timeout(low), timeout(low + 1)), (config.max_wait, config.min_wait));
        }
        let endless = FlushConfig { max_wait: Micros(u64::MAX), min_wait: Micros(u64::MAX), ..FlushConfig::default() };
        for kind in StrategyKind::ALL {
            let strategy = strategy(&FlushConfig { strategy: kind, ..endless });
            strategy.calculate_timeout(50, &FlushMetrics { p99_ttft: Some(Micros(u64::MAX)) });
        }
    }

    #[test]
    fn a_group_goes_when_full_or_due() {
        let gathering = |size, waited| Gathering { size, tokens: 0, waited: Micros(waited), timeout: Micros(100) };
        for kind in [StrategyKind::Fixed, StrategyKind::QueueDepth, StrategyKind::LatencyAware] {
            let strategy = strategy(&FlushConfig { strategy: kind, ..FlushConfig::default() });
            for (size, waited, expected) in
                [(0, 500, false), (1, 99, false), (1, 100, true), (31, 0, false), (32, 0, true)]
            {
                assert_eq!(strategy.should_flush(&gathering(size, waited), size), expected, "{kind:?} {size} {waited}");
            }
        }
        assert!(Immediate.should_flush(&gathering(1, 0), 1) && !Immediate.should_flush(&gathering(0, 0), 1));
    }

    #[test]
    fn names_lead_back() {
        for kind in StrategyKind::ALL {
            assert_eq!(StrategyKind::from_name(&kind.name().to_uppercase()), Some(kind));
        }
        assert_eq!(StrategyKind::from_name("cost"), None);
    }
}
