//! The simulator against arithmetic, against itself, and against its bounds.

use super::*;
use crate::cost::CostModel;
use crate::measure::{End, Slo};
use crate::scenario::Scenario;
use crate::setup::Workers;
use forebay_core::intake;
use forebay_core::intake::{Capacity as QueueCapacity, StrategyKind};
use forebay_core::scheduler::policy::{PolicyConfig, PolicyKind};
use forebay_core::scheduler::{self, Preemption, Speculative};
use forebay_core::units::Micros;

pub(crate) fn setup() -> Setup {
    Setup {
        intake: intake::Config::default(),
        scheduler: scheduler::Config {
            max_num_seqs: 64,
            max_num_batched_tokens: 512,
            max_model_len: 1_024,
            preemption: Preemption::MostRecent,
            policy: PolicyConfig::default(),
            slo: forebay_core::slo::Slo::default(),
            max_stall: Some(Micros::from_millis(250)),
            prefix_caching: true,
            speculative: Speculative::Off,
            whole_prompts: false,
        },
        block_size: 32,
        num_blocks: None,
        cost: CostModel::simulated_worker(),
        timeout: None,
        workers: Workers::default(),
    }
}

fn silent(setup: &Setup) -> Setup {
    Setup { cost: CostModel { base_noise: 0.0, ..setup.cost }, ..setup.clone() }
}

fn arrival(at_ms: u64, prompt_tokens: u32, output_tokens: u32) -> Arrival {
    Arrival {
        at: Micros::from_millis(at_ms),
        class: 0,
        priority: forebay_core::request::Priority::Normal,
        prompt_tokens,
        output_tokens,
        shared: None,
    }
}

fn run(setup: &Setup, arrivals: &[Arrival], seed: u64) -> Measured {
    simulate(setup, &["chat".into()], arrivals, seed, &mut |_| ())
}

fn scaled(name: &str, setup: &Setup) -> (Scenario, Vec<Arrival>) {
    let scenario = Scenario::built_in(name).unwrap();
    let scenario = scenario.scaled(scenario.factor(0.7, &setup.cost, &setup.capacity()));
    let arrivals = scenario.arrivals(11);
    (scenario, arrivals)
}

#[test]
fn times_are_those_of_arithmetic() {
    // Alone: a prompt of 100 is a step of 10 + 50 ms, each later token one of 10.5 ms.
    let alone = run(&silent(&setup()), &[arrival(7, 100, 3)], 1);
    let record = &alone.records[0];
    assert_eq!(record.first_token, Some(Micros(67_000)));
    assert_eq!((record.last, record.output_tokens, record.end), (Micros(88_000), 3, End::Completed));
    assert_eq!(alone.gaps, [[10_500, 10_500]]);

    // The second comes while the first prompt computes. Decodes are to run undisturbed for 100 ms after that, but at 88 ms none is
    // left, and nothing speaks against computing it.
    let fixed = |mut setup: Setup| {
        setup.intake.flush.strategy = StrategyKind::Fixed;
        setup
    };
    let two = run(&fixed(silent(&setup())), &[arrival(7, 100, 3), arrival(10, 20, 1)], 1);
    assert_eq!(two.records[1].first_token, Some(Micros(88_000 + 10_000 + 20 * 500)));
}

#[test]
fn the_same_seed_gives_the_same_bits_and_another_does_not() {
    let setup = setup();
    let (_, arrivals) = scaled("long_tail", &setup);
    let (one, two, other) =
        (run_classes(&setup, &arrivals, 3), run_classes(&setup, &arrivals, 3), run_classes(&setup, &arrivals, 4));
    assert!(one == two && one != other);
}

fn run_classes(setup: &Setup, arrivals: &[Arrival], seed: u64) -> Measured {
    simulate(setup, &["short".into(), "long".into()], arrivals, seed, &mut |_| ())
}

#[test]
fn every_request_ends_once_under_every_strategy_and_policy() {
    let (_, arrivals) = scaled("spike_test", &setup());
    let arrivals = &arrivals[..150];
    for strategy in StrategyKind::ALL {
        for policy in PolicyKind::ALL {
            let mut setup = setup();
            setup.intake.flush.strategy = strategy;
            setup.scheduler.policy.kind = policy;
            let measured = run(&setup, arrivals, 1);
            for (record, arrival) in measured.records.iter().zip(arrivals) {
                assert_eq!(record.end, End::Completed);
                assert_eq!(record.output_tokens, arrival.output_tokens);
                assert!(record.first_token.unwrap() > record.sent && record.last >= record.first_token.unwrap());
            }
            let gaps: usize = measured.gaps.iter().map(Vec::len).sum();
            assert_eq!(gaps, arrivals.iter().map(|a| a.output_tokens as usize - 1).sum::<usize>());
        }
    }
}

#[test]
fn a_full_queue_refuses_and_a_small_pool_preempts_but_loses_nobody() {
    let arrivals: Vec<Arrival> = (0..60).map(|n| arrival(n, 100, 50)).collect();
    let mut small = setup();
    small.intake.capacity = QueueCapacity { requests: 4, ..small.intake.capacity };
    small.num_blocks = Some(40);
    let measured = run(&small, &arrivals, 1);
    let summary = measured.summary(&Slo::default());
    assert!(summary.refused > 0 && summary.completed > 4, "{summary:?}");
    assert_eq!(summary.refused + summary.completed, 60);
}

#[test]
fn who_waits_too_long_is_given_up() {
    let mut impatient = setup();
    impatient.scheduler.max_num_seqs = 1;
    impatient.intake.queue_timeout = Micros::from_millis(300);
    let measured = run(&impatient, &[arrival(0, 10, 100), arrival(1, 10, 1)], 1);
    assert_eq!(measured.records[1].end, End::Failed);
    // A turn of the loop notices, so one step later at most.
    assert!(measured.records[1].last.since(Micros::from_millis(301)) < Micros::from_millis(13));
}

/// Mean queueing delay of a queue with one server, Poisson arrivals and constant service is `ρ·S / 2(1 − ρ)` (Pollaczek and
/// Khinchine): a check of the whole that needs none of its code.
#[test]
fn a_single_seat_is_an_m_d_1_queue() {
    let mut one = silent(&setup());
    one.scheduler.max_num_seqs = 1;
    one.intake.flush.strategy = StrategyKind::Immediate;
    // One token: the whole request is a step of 10 + 40 · 0.5 = 30 ms.
    let scenario = Scenario::parse(
        "name: m\narrivals: {process: poisson, rate: [{at_s: 0, rps: 20}, {at_s: 2000, rps: 20}]}\n\
         requests: [{name: x, share: 1, prompt_tokens: 40, output_tokens: 1}]",
    )
    .unwrap();
    let measured = run(&one, &scenario.arrivals(1), 1);
    let (service, load) = (30.0, 0.6);
    let expected = service + load * service / (2.0 * (1.0 - load));
    let found = measured.summary(&Slo::default()).ttft.mean;
    assert!((found / expected - 1.0).abs() < 0.03, "{found} ms, not {expected}");
}
