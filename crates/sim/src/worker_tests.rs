//! Several workers: who gets what, and what happens when one is gone.

use super::measure::{End, Measured, Slo, Summary};
use super::setup::{Outage, Setup, Workers};
use super::simulate::{simulate_all, tests::setup};
use super::trace::Trace;
use super::workload::Workload;
use forebay_core::scheduler::Preemption;
use forebay_core::units::Micros;
use forebay_core::workers::balance::Balancer;
use forebay_core::workers::breaker::BreakerConfig;

fn fleet(workload: &Workload, count: usize, balancer: Balancer) -> Setup {
    let workers = Workers { count, balancer, ..Workers::default() };
    Setup { workers, ..setup().for_lengths(workload.longest()) }
}

/// At a share of what all workers together can do.
fn run(workload: &Workload, setup: &Setup, load: f64) -> Measured {
    let factor = workload.factor(load, &setup.cost, &setup.capacity()) * setup.workers.count as f64;
    let measured = simulate_all(setup, &workload.scaled(factor), 0..1, &mut |_| ());
    assert!(measured.records.iter().all(|record| record.end != End::Open));
    measured
}

fn steady() -> Workload {
    Workload::all().remove(0)
}

fn summary(measured: &Measured) -> Summary {
    measured.summary(&Slo::default())
}

fn outage(worker: usize, from_ms: u64, to_ms: u64) -> Outage {
    Outage { worker, from: Micros::from_millis(from_ms), to: Micros::from_millis(to_ms) }
}

#[test]
fn three_workers_do_three_times_as_much() {
    let one = summary(&run(&steady(), &fleet(&steady(), 1, Balancer::RoundRobin), 0.7));
    for balancer in Balancer::ALL {
        let measured = run(&steady(), &fleet(&steady(), 3, balancer), 0.7);
        let three = summary(&measured);
        assert_eq!(three.completed, measured.records.len(), "{balancer:?}");
        let ratio = three.output_throughput / one.output_throughput;
        assert!((ratio - 3.0).abs() < 0.25, "{balancer:?}: {ratio}");
        let sent = &measured.inside.by_worker;
        let (least, most) = (*sent.iter().min().unwrap(), *sent.iter().max().unwrap());
        assert!(least * 4 > most * 3, "{balancer:?}: {sent:?}");
        assert!(balancer != Balancer::RoundRobin || most - least <= 1, "{sent:?}");
    }
}

#[test]
fn whoever_has_the_beginning_gets_the_conversation() {
    let conversations = Workload::from(Trace::built_in("mooncake_conversations").unwrap());
    let of = |balancer| run(&conversations, &fleet(&conversations, 4, balancer), 0.9);
    let (aware, blind) = (of(Balancer::PrefixAware), of(Balancer::RoundRobin));
    let cached = |measured: &Measured| measured.inside.cached_tokens as f64;
    assert!(cached(&aware) > 1.3 * cached(&blind), "{} {}", cached(&aware), cached(&blind));
    assert!(summary(&aware).ttft.mean < 0.9 * summary(&blind).ttft.mean);
}

#[test]
fn who_has_had_no_token_goes_elsewhere_and_the_others_fail() {
    let mut setup = fleet(&steady(), 3, Balancer::LeastLoaded);
    setup.workers.breaker = BreakerConfig { failures: 5, open_for: Micros::from_millis(4_000) };
    setup.workers.check_interval = Micros::from_millis(1_000);
    let well = run(&steady(), &setup, 0.8);
    setup.workers.outages = vec![outage(1, 20_000, 40_000)];
    let measured = run(&steady(), &setup, 0.8);
    let Summary { completed, failed, refused, .. } = summary(&measured);
    assert_eq!((completed + failed, refused), (measured.records.len(), 0));
    // What was decoding there, and nobody else.
    assert!(failed > 0 && failed <= 64, "{failed}");
    for record in measured.records.iter().filter(|record| record.end == End::Failed) {
        assert!(record.first_token.is_some() && record.last == Micros::from_millis(20_000), "{record:?}");
    }
    assert!(measured.inside.retried > 0 && measured.inside.breaker_openings >= 1, "{:?}", measured.inside);
    // It is gone for a third of the time, and has its share of the rest.
    let (there, gone) = (well.inside.by_worker[1] as f64, measured.inside.by_worker[1] as f64);
    assert!(gone > 0.4 * there && gone < 0.85 * there, "{gone} of {there}");
}

#[test]
fn where_nobody_is_left_requests_fail_at_once() {
    let mut setup = fleet(&steady(), 2, Balancer::PowerOfTwo);
    setup.workers.outages = vec![outage(0, 10_000, 70_000), outage(1, 10_000, 30_000)];
    let measured = run(&steady(), &setup, 0.5);
    let after = Micros::from_millis(10_000);
    let failed = |record: &&super::measure::Record| record.end == End::Failed && record.sent > after;
    let failed: Vec<_> = measured.records.iter().filter(failed).collect();
    assert!(!failed.is_empty() && failed.iter().all(|record| record.last == record.sent));
    assert!(
        measured.records.iter().any(|record| record.end == End::Completed && record.sent > after),
        "the second returns"
    );
}

#[test]
fn choices_of_victims_show_where_blocks_are_few() {
    let mut shown = Vec::new();
    for preemption in Preemption::ALL {
        let mut setup = fleet(&steady(), 1, Balancer::default());
        (setup.num_blocks, setup.scheduler.preemption) = (Some(200), preemption);
        let measured = run(&steady().mixed(), &setup, 1.1);
        let summary = summary(&measured);
        assert!(measured.inside.preemptions > 0, "{preemption:?}");
        assert_eq!(summary.completed, measured.records.len());
        shown.push(format!("{:.1} {:.1} {:.1}", summary.ttft.mean, summary.e2el.mean, summary.itl.p99));
    }
    // The least urgent goes first under each of them, so the third says no more than the first.
    assert!(shown[0] != shown[1] && shown[0] == shown[2], "{shown:?}");
}
