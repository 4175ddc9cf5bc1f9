//! What docs/strategies.md and docs/batching.md claim of strategies and policies, in virtual time: the same seeds, the same numbers on every machine.

use std::collections::BTreeMap;

use super::measure::{Measured, Slo, Summary};
use super::scenario::Scenario;
use super::simulate::{simulate, simulate_all, tests::setup};
use super::workload::Workload;
use forebay_core::intake::StrategyKind;
use forebay_core::request::Priority;
use forebay_core::scheduler::{self, PolicyKind};

/// p99 TTFT in ms and requests per second of a scenario at 70 % load, over all its runs.
fn measured(scenario: &Scenario, strategy: StrategyKind, seeds: std::ops::Range<u64>) -> (f64, f64) {
    let mut setup = setup().for_lengths(scenario.longest());
    setup.intake.flush.strategy = strategy;
    let scenario = scenario.scaled(scenario.factor(0.7, &setup.cost, &setup.capacity()));
    let classes: Vec<String> = scenario.classes.iter().map(|class| class.name.clone()).collect();
    let mut runs = seeds.map(|seed| simulate(&setup, &classes, &scenario.arrivals(seed), seed, &mut |_| ()));
    let mut all = runs.next().expect("a run");
    runs.for_each(|run| all.append(run));
    let summary = all.summary(&Slo::default());
    assert_eq!(summary.completed, all.records.len());
    (summary.ttft.p99, summary.request_throughput)
}

#[test]
fn cost_aware_is_never_far_from_the_best_and_often_better() {
    let mut better = Vec::new();
    for scenario in Scenario::all() {
        let found: BTreeMap<&str, (f64, f64)> =
            StrategyKind::ALL.map(|kind| (kind.name(), measured(&scenario, kind, 0..20))).into();
        let others = || found.iter().filter(|(name, _)| **name != "cost_aware").map(|(_, found)| *found);
        let (best_ttft, best_rate) = others()
            .fold((f64::INFINITY, 0.0_f64), |(ttft, rate), (p99, throughput)| (ttft.min(p99), rate.max(throughput)));
        let (ttft, rate) = found["cost_aware"];
        assert!(ttft <= 1.02 * best_ttft && rate >= 0.98 * best_rate, "{}: {found:?}", scenario.name);
        if ttft < best_ttft && rate >= 0.999 * best_rate {
            better.push(scenario.name);
        }
    }
    assert!(better.len() >= 2, "better on {better:?} only");
}

/// Who is kept at the gate keeps its turn, so that an urgent flood gains no more than with `immediate`.
#[test]
fn the_gate_changes_no_order() {
    let scenario = Scenario::built_in("mixed_priority").unwrap();
    let mut setup = setup().for_lengths(scenario.longest());
    setup.intake.flush.strategy = StrategyKind::CostAware;
    let arrivals = scenario.scaled(scenario.factor(0.5, &setup.cost, &setup.capacity())).arrivals(3);
    let classes = ["normal", "high", "critical"].map(str::to_owned);
    let measured = simulate(&setup, &classes, &arrivals, 3, &mut |_| ());
    // Far from all seats taken, first tokens come in the order of arrival, but for those who came within one step.
    let longest_step = forebay_core::units::Micros::from_millis(260);
    for pair in measured.records.windows(2).filter(|pair| pair[0].priority == Priority::Normal) {
        let late = pair[0].first_token.unwrap().since(pair[1].first_token.unwrap());
        assert!(late == forebay_core::units::Micros::ZERO || pair[1].sent.since(pair[0].sent) < longest_step);
    }
}

/// A workload at a share of capacity under a strategy and a policy.
fn run(workload: &Workload, load: f64, seeds: u64, strategy: StrategyKind, policy: PolicyKind) -> Measured {
    let mut setup = setup().for_lengths(workload.longest());
    setup.scheduler.max_stall = scheduler::Config::default().max_stall;
    setup.scheduler.policy.kind = policy;
    setup.intake.flush.strategy = strategy;
    let workload = workload.scaled(workload.factor(load, &setup.cost, &setup.capacity()));
    simulate_all(&setup, &workload, 0..seeds, &mut |_| ())
}

/// What a table shows of a run: two that are the same to these digits would be the same to an operator.
fn shown(measured: &Measured) -> String {
    let Summary { ttft, itl, request_throughput, .. } = measured.summary(&Slo::default());
    format!("{:.1} {:.1} {:.1} {:.1} {request_throughput:.2}", ttft.p50, ttft.p99, itl.p50, itl.p99)
}

fn all_differ(rows: &[String]) -> bool {
    rows.iter().enumerate().all(|(at, row)| !rows[..at].contains(row))
}

/// What docs/batching.md says of the policies, of every workload, with margins.
#[test]
fn each_policy_wins_its_own_measure_where_the_engine_is_saturated() {
    for workload in Workload::all() {
        let found: Vec<(PolicyKind, Measured)> =
            PolicyKind::ALL.map(|policy| (policy, run(&workload, 1.2, 2, StrategyKind::default(), policy))).into();
        let of = |wanted: PolicyKind| &found.iter().find(|(policy, _)| *policy == wanted).expect("all ran").1;
        let summary = |policy: PolicyKind| of(policy).summary(&Slo::default());
        let (fair, latency) = (summary(PolicyKind::Fair), summary(PolicyKind::LatencyFirst));
        let (throughput, slo) = (summary(PolicyKind::ThroughputFirst), summary(PolicyKind::Slo));
        let name = workload.name();
        assert!(all_differ(&found.iter().map(|(_, measured)| shown(measured)).collect::<Vec<_>>()), "{name}");

        // Its prompts begin alike, so what would be 1.2 times capacity is not.
        let is_saturated = name != "mooncake_conversations";
        let least = if is_saturated { 1.03 } else { 1.01 };
        assert!(throughput.output_throughput >= least * fair.output_throughput, "{name}: {throughput:?} {fair:?}");
        for other in [&fair, &throughput] {
            assert!(latency.ttft.mean <= 0.9 * other.ttft.mean, "{name}: {latency:?} {other:?}");
            assert!(latency.ttft.p50 <= 0.5 * other.ttft.p50, "{name}: {latency:?} {other:?}");
            assert!(latency.e2el.mean <= 0.95 * other.e2el.mean, "{name}: {latency:?} {other:?}");
        }
        assert!(
            !is_saturated || fair.ttft.p99 < latency.ttft.p99,
            "{name}: nobody waits as long as under the shortest first"
        );
        for other in [&latency, &throughput, &slo] {
            assert!(fair.evenness >= 1.005 * other.evenness, "{name}: {fair:?} {other:?}");
        }
        let promises = forebay_core::slo::Slo::DEFAULT;
        let kept = |policy: PolicyKind| of(policy).kept(&promises) as f64;
        for other in [PolicyKind::Fair, PolicyKind::LatencyFirst, PolicyKind::ThroughputFirst] {
            assert!(kept(PolicyKind::Slo) >= 1.02 * kept(other), "{name}: {} {other:?}", kept(PolicyKind::Slo));
        }
    }
}

/// At many times the capacity a pause is shorter than a step, and all strategies do the same; below that they do not.
#[test]
fn strategies_differ_under_loads_that_last() {
    let (mut rows, mut different) = (0, 0);
    for scenario in Scenario::all().into_iter().map(Workload::from) {
        for load in [0.5, 0.7, 0.9, 1.2] {
            for policy in PolicyKind::ALL {
                let found = StrategyKind::ALL.map(|strategy| shown(&run(&scenario, load, 1, strategy, policy)));
                rows += 1;
                different += usize::from(all_differ(&found));
            }
        }
    }
    assert!(different * 10 >= rows * 8, "{different} of {rows}");
}

/// None of the strategies is worse than another in everything, in every scenario.
#[test]
fn every_strategy_is_good_for_something() {
    let found: Vec<Vec<Summary>> = StrategyKind::ALL
        .iter()
        .map(|strategy| {
            let of = |scenario| run(&Workload::from(scenario), 0.7, 4, *strategy, PolicyKind::Fair);
            Scenario::all().into_iter().map(|scenario| of(scenario).summary(&Slo::default())).collect()
        })
        .collect();
    let worse = |a: &Summary, b: &Summary| {
        a.ttft.p99 >= b.ttft.p99 && a.itl.p50 >= b.itl.p50 && a.output_throughput <= b.output_throughput
    };
    for (one, strategy) in found.iter().zip(StrategyKind::ALL) {
        for (other, better) in found.iter().zip(StrategyKind::ALL).filter(|(_, other)| *other != strategy) {
            let dominated = one.iter().zip(other).all(|(one, other)| worse(one, other));
            assert!(!dominated, "{strategy:?} is worse than {better:?} in everything");
        }
    }
}

/// Goodput of `cost_aware` beside the best of the others.
#[test]
fn cost_aware_keeps_as_many_promises_as_the_best() {
    let promises = forebay_core::slo::Slo::DEFAULT;
    for scenario in Scenario::all().into_iter().map(Workload::from) {
        for load in [0.7, 1.2] {
            let kept = |strategy| run(&scenario, load, 4, strategy, PolicyKind::Fair).kept(&promises) as f64;
            let found = StrategyKind::ALL.map(|strategy| (strategy, kept(strategy)));
            let best = found.iter().map(|(_, kept)| *kept).fold(0.0, f64::max);
            let own = found.iter().find(|(strategy, _)| *strategy == StrategyKind::CostAware).expect("it ran").1;
            assert!(own >= 0.95 * best, "{} at {load}: {found:?}", scenario.name());
        }
    }
}
