//! The tables of the four strategies.

use super::*;

fn config(strategy: StrategyKind) -> FlushConfig {
    FlushConfig { strategy, ..FlushConfig::default() }
}

fn timeout(config: &FlushConfig, depth: usize, p99_ms: Option<u64>) -> f64 {
    let metrics = FlushMetrics { p99_ttft: p99_ms.map(Micros::from_millis) };
    selected(config).calculate_timeout(depth, &metrics).0 as f64 / 1e3
}

fn flushes(strategy: StrategyKind, size: usize, waited_ms: u64, timeout_ms: u64) -> bool {
    let (waited, timeout) = (Micros::from_millis(waited_ms), Micros::from_millis(timeout_ms));
    selected(&config(strategy)).should_flush(&Gathering { size, tokens: size, waited, timeout }, size)
}

#[test]
fn names_are_unique_and_found_again() {
    for kind in StrategyKind::ALL {
        assert_eq!(StrategyKind::from_name(kind.name()), Some(kind));
    }
    assert_eq!(StrategyKind::from_name("cost_aware"), None);
}

#[test]
fn fixed_waits_the_same_at_any_depth() {
    for depth in [0, 1, 10, 55, 100, 10_000] {
        assert_eq!(timeout(&config(StrategyKind::Fixed), depth, Some(9_000)), 100.0);
    }
}

#[test]
fn queue_depth_is_linear_between_its_thresholds() {
    let table = [(0, 100.0), (10, 100.0), (11, 98.945), (55, 52.5), (99, 6.056), (100, 5.0), (5_000, 5.0)];
    for (depth, expected) in table {
        let got = timeout(&config(StrategyKind::QueueDepth), depth, Some(1));
        assert!((got - expected).abs() < 0.001, "{depth}: {got}");
    }
    let equal = FlushConfig { queue_depth_low: 20, queue_depth_high: 20, ..config(StrategyKind::QueueDepth) };
    assert_eq!([20, 21].map(|depth| timeout(&equal, depth, None)), [100.0, 5.0]);
}

#[test]
fn latency_aware_corrects_by_a_fifth() {
    let latency_aware = config(StrategyKind::LatencyAware);
    // The target is 500 ms: 550 and 400 are the edges, and neither is beyond itself.
    for (p99, expected) in [
        (None, 100.0),
        (Some(500), 100.0),
        (Some(550), 100.0),
        (Some(551), 80.0),
        (Some(400), 100.0),
        (Some(399), 120.0),
    ] {
        assert_eq!(timeout(&latency_aware, 0, p99), expected, "{p99:?}");
    }
    assert_eq!(timeout(&latency_aware, 100, Some(10_000)), 4.0);
    assert_eq!(timeout(&latency_aware, 55, Some(1)), 63.0);
}

#[test]
fn immediate_does_not_wait() {
    assert_eq!(timeout(&config(StrategyKind::Immediate), 0, Some(1)), 0.0);
    assert!(flushes(StrategyKind::Immediate, 1, 0, 0) && !flushes(StrategyKind::Immediate, 0, 0, 0));
}

#[test]
fn the_others_flush_when_full_or_due() {
    for strategy in [StrategyKind::Fixed, StrategyKind::QueueDepth, StrategyKind::LatencyAware] {
        assert!(!flushes(strategy, 31, 99, 100));
        assert!(flushes(strategy, 32, 0, 100), "full");
        assert!(flushes(strategy, 1, 100, 100), "due");
        assert!(!flushes(strategy, 0, 500, 100), "nothing there");
    }
}
