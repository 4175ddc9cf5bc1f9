//! What docs/strategies.md and docs/batching.md claim of strategies and policies, in virtual time: the same seeds, the same numbers on every machine.

use std::collections::BTreeMap;

use super::measure::{Measured, Record, Slo};
use super::scenario::Scenario;
use super::simulate::{simulate, tests::setup};
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

/// A scenario at 1.2 times capacity under a policy, two seeds.
fn saturated(scenario: &Scenario, policy: PolicyKind) -> Measured {
    let mut setup = setup().for_lengths(scenario.longest());
    setup.scheduler.max_stall = scheduler::Config::default().max_stall;
    setup.scheduler.policy.kind = policy;
    let scenario = scenario.scaled(scenario.factor(1.2, &setup.cost, &setup.capacity()));
    let classes: Vec<String> = scenario.classes.iter().map(|class| class.name.clone()).collect();
    let mut all = simulate(&setup, &classes, &scenario.arrivals(0), 0, &mut |_| ());
    all.append(simulate(&setup, &classes, &scenario.arrivals(1), 1, &mut |_| ()));
    all
}

/// Requests that were served as the default promises say.
fn kept(measured: &Measured) -> usize {
    let promises = forebay_core::slo::Slo::default();
    let keeps = |record: &&Record| {
        let promise = promises.promise(record.priority).expect("no batches here");
        let ttft = record.ttft_ms().is_some_and(|ttft| ttft <= promise.ttft.0 as f64 / 1e3);
        ttft && record.tpot_ms().is_none_or(|tpot| tpot <= promise.itl.0 as f64 / 1e3)
    };
    measured.records.iter().filter(keeps).count()
}

/// What docs/batching.md says of the policies, in every scenario, with margins.
#[test]
fn each_policy_wins_its_own_measure_where_the_engine_is_saturated() {
    for scenario in Scenario::all() {
        let found: Vec<(PolicyKind, Measured)> =
            PolicyKind::ALL.map(|policy| (policy, saturated(&scenario, policy))).into();
        let of = |wanted: PolicyKind| &found.iter().find(|(policy, _)| *policy == wanted).expect("all ran").1;
        let summary = |policy: PolicyKind| of(policy).summary(&Slo::default());
        let (fair, latency) = (summary(PolicyKind::Fair), summary(PolicyKind::LatencyFirst));
        let throughput = summary(PolicyKind::ThroughputFirst);
        let name = &scenario.name;
        assert!(throughput.output_throughput >= 1.03 * fair.output_throughput, "{name}: {throughput:?} {fair:?}");
        for other in [&fair, &throughput] {
            assert!(latency.ttft.mean <= 0.9 * other.ttft.mean, "{name}: {latency:?} {other:?}");
            assert!(latency.ttft.p50 <= 0.5 * other.ttft.p50, "{name}: {latency:?} {other:?}");
            assert!(latency.e2el.mean <= 0.95 * other.e2el.mean, "{name}: {latency:?} {other:?}");
        }
        assert!(fair.ttft.p99 < latency.ttft.p99, "{name}: nobody waits as long as under the shortest first");
        let slo = kept(of(PolicyKind::Slo));
        for (policy, measured) in found.iter().filter(|(policy, _)| *policy != PolicyKind::Slo) {
            assert!(
                slo as f64 >= 1.02 * kept(measured) as f64,
                "{name}: {slo} promises, {policy:?} {}",
                kept(measured)
            );
        }
    }
}
