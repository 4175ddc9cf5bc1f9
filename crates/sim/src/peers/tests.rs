//! Peers against arithmetic, and what each is known for.

use super::*;
use crate::arrival::Shared;
use crate::cost::CostModel;
use crate::measure::{End, Slo};
use crate::simulate::tests::setup;
use crate::workload::Workload;
use forebay_core::request::Priority;
use forebay_core::units::Micros;

fn silent() -> Setup {
    let setup = setup();
    Setup { cost: CostModel { base_noise: 0.0, ..setup.cost }, ..setup }
}

fn arrival(at_ms: u64, prompt_tokens: u32, output_tokens: u32) -> Arrival {
    let at = Micros::from_millis(at_ms);
    Arrival { at, class: 0, priority: Priority::Normal, prompt_tokens, output_tokens, shared: None }
}

fn run(peer: Peer, setup: &Setup, arrivals: &[Arrival]) -> Measured {
    peer.simulate(setup, &["all".into()], arrivals, 1)
}

fn first_tokens_ms(measured: &Measured) -> Vec<u64> {
    measured.records.iter().map(|record| record.first_token.unwrap().as_millis()).collect()
}

#[test]
fn alone_everybody_takes_as_long() {
    for peer in Peer::ALL {
        let measured = run(peer, &silent(), &[arrival(7, 100, 3)]);
        assert_eq!(first_tokens_ms(&measured), [67], "{peer:?}");
        assert_eq!(measured.records[0].last, Micros(88_000), "{peer:?}");
    }
}

#[test]
fn each_orders_prompts_and_decodes_in_its_way() {
    // The second comes while the first decodes, and is longer than a step.
    let arrivals = [arrival(0, 100, 8), arrival(65, 600, 1)];
    let of = |peer| run(peer, &silent(), &arrivals);
    // Beside one decode, 511 tokens and the rest: 70.5 + (10 + 256) + (10 + 89 / 2 + 0.5).
    assert_eq!(first_tokens_ms(&of(Peer::Vllm)), [60, 392]);
    assert_eq!(of(Peer::Vllm).gaps[0][1..3], [266_000, 55_000]);
    // Alone, as a whole: the one that decodes stands still.
    assert_eq!(first_tokens_ms(&of(Peer::PrefillFirst)), [60, 381]);
    assert_eq!(of(Peer::PrefillFirst).gaps[0][1], 310_000 + 10_500);
    // Alone, in chunks of 512.
    assert_eq!(first_tokens_ms(&of(Peer::Sglang)), [60, 391]);
    assert_eq!(of(Peer::Sglang).gaps[0][1], 266_000 + 54_000 + 10_500);
}

#[test]
fn only_the_priority_mode_knows_priorities() {
    let mut setup = silent();
    setup.scheduler.max_num_seqs = 1;
    let mut arrivals = [arrival(0, 100, 2), arrival(1, 100, 2), arrival(2, 100, 2)];
    arrivals[2].priority = Priority::Critical;
    let order = |peer| first_tokens_ms(&run(peer, &setup, &arrivals));
    assert_eq!(order(Peer::Vllm), [60, 131, 201]);
    assert_eq!(order(Peer::VllmPriority), [60, 201, 131]);
}

#[test]
fn fastserve_lets_short_ones_pass_and_long_ones_not_starve() {
    let mut setup = silent();
    setup.scheduler.max_num_seqs = 1;
    // The long one falls below the queue that a short prompt joins.
    let measured = run(Peer::FastServe, &setup, &[arrival(0, 16, 400), arrival(1_000, 16, 4)]);
    let [long, short] = &measured.records[..] else { panic!() };
    assert!(short.e2el_ms() < 100.0 && short.last < long.last, "{measured:?}");
    // Behind a stream of short ones that takes all there is, it rises in time.
    let stream = (0..3_000).map(|n| arrival(50 * n, 60, 2));
    let mut arrivals: Vec<Arrival> = stream.collect();
    arrivals.insert(1, arrival(0, 700, 4));
    let measured = run(Peer::FastServe, &setup, &arrivals);
    assert!(measured.records[1].ttft_ms().unwrap() < 12_000.0, "{:?}", measured.records[1]);
}

#[test]
fn a_shared_beginning_is_computed_once_by_those_with_a_cache() {
    let named = |at_ms: u64, last: u32| {
        let shared = Shared { names: (0..9).chain([last]).collect(), tokens: 32 };
        Arrival { shared: Some(shared), ..arrival(at_ms, 320, 1) }
    };
    // Together, and once more when the first are gone.
    let arrivals = [named(0, 100), named(0, 101), named(1_000, 102)];
    // 320 + 32 in one step; SGLang puts the second last, where it is still taken if there is room; v0 computes 320 each time.
    let ttfts = |peer| first_tokens_ms(&run(peer, &silent(), &arrivals));
    assert_eq!(ttfts(Peer::Vllm), [186, 186, 1_026]);
    assert_eq!(ttfts(Peer::Sglang), [266, 340, 1_026]);
    assert_eq!(ttfts(Peer::PrefillFirst), [170, 340, 1_170]);
}

#[test]
fn everybody_serves_everything_with_few_blocks_too() {
    for workload in Workload::all() {
        let mut setup = setup().for_lengths(workload.longest());
        setup.num_blocks = Some(4 * setup.scheduler.max_model_len.div_ceil(setup.block_size));
        let workload = workload.mixed();
        let arrivals = workload.scaled(workload.factor(1.2, &setup.cost, &setup.capacity())).arrivals(1);
        for peer in Peer::ALL {
            let measured = peer.simulate(&setup, &workload.classes(), &arrivals, 1);
            assert!(measured.records.iter().all(|record| record.end == End::Completed), "{peer:?}");
            let said: u64 = arrivals.iter().map(|arrival| u64::from(arrival.output_tokens)).sum();
            assert_eq!(measured.summary(&Slo::default()).output_tokens, said, "{peer:?} {}", workload.name());
        }
    }
}
