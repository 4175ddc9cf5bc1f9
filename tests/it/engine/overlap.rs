//! What the loop does while a step runs (`engine.overlap`) changes when it is done, and nothing else: the same steps, the
//! same tokens and logprobs to the last bit.

use forebay_core::request::{Event, Origin, Parameters, Request};
use forebay_core::scheduler::Speculative;
use forebay_core::scheduler::policy::PolicyKind;
use forebay_core::step::Sampled;
use forebay_core::units::{Micros, TokenId};
use forebay_turn::control::{Change, Group};
use tokio::sync::mpsc;

use crate::support::rig::{self, Setup, asking, collect};

/// Prompts of one to sixty tokens, of which some begin alike.
fn prompts() -> Vec<Vec<TokenId>> {
    let token = |n: usize, i: usize| 3 + ((i * i * 3 + if i < n % 3 * 20 { 0 } else { n * 17 }) % 250) as TokenId;
    (0..10).map(|n| (0..1 + n * 13 % 60).map(|i| token(n, i)).collect()).collect()
}

fn drawn(prompt: &[TokenId], max_tokens: i64) -> Request {
    asking(prompt, max_tokens, |raw| Parameters { temperature: Some(0.8), seed: Some(7), logprobs: Some(3), ..raw })
}

/// Everything that one sequence says, told by bits; `None` where it has no logprobs.
async fn said(mut events: mpsc::Receiver<Event>) -> Vec<(TokenId, Option<(u32, Vec<(TokenId, u32)>)>)> {
    let bits = |sampled: Sampled| {
        let top = |top: Vec<(TokenId, f32)>| top.into_iter().map(|(token, at)| (token, at.to_bits())).collect();
        (sampled.token, sampled.logprobs.map(|logprobs| (logprobs.sampled.to_bits(), top(logprobs.top))))
    };
    let mut tokens = Vec::new();
    loop {
        match events.recv().await.expect("an end") {
            Event::Token(sampled) => tokens.push(bits(sampled)),
            Event::Admitted { .. } | Event::Embedded(_) => {}
            Event::Finished(_) => return tokens,
            Event::Failed(error) => panic!("{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlap_changes_no_step_and_no_bit() {
    let prompts = prompts();
    let plain = Setup { max_num_batched_tokens: 40, ..Setup::default() };
    let stall = Some(Micros::from_millis(1_000));
    for (name, setup) in [
        ("fair", plain),
        ("fewer seats than requests", Setup { max_num_seqs: 3, ..plain }),
        ("a pool that preempts", Setup { num_blocks: 22, ..plain }),
        ("no prefix cache", Setup { prefix_caching: false, ..plain }),
        ("guesses", Setup { speculative: Speculative::PromptLookup, ..plain }),
        ("latency_first", Setup { policy: PolicyKind::LatencyFirst, ..plain }),
        (
            "throughput_first, a limit on stalls",
            Setup { policy: PolicyKind::ThroughputFirst, max_stall: stall, ..plain },
        ),
        ("several steps a call", Setup { multi_step_count: 3, ..plain }),
    ] {
        let mut runs = Vec::new();
        for overlap in [false, true] {
            let rig = rig::storyteller(Setup { overlap, ..setup });
            // All at once, so that the same steps are planned whatever the machine does meanwhile.
            rig.handle.pause().await.expect("a loop");
            let mut running = Vec::new();
            for prompt in &prompts {
                let mut group = rig::submit(&rig.handle, vec![drawn(prompt, 30)]).await.expect("room");
                running.push(group.remove(0));
            }
            rig.handle.resume().await.expect("a loop");
            let mut answers = Vec::new();
            for events in running {
                answers.push(said(events).await);
            }
            let after = rig.join().await.snapshot();
            assert_eq!((after.blocks_used, after.running, after.waiting), (0, 0, 0), "{name}");
            runs.push((answers, after.steps_total, after.preemptions_total));
        }
        assert!(runs[0].0.iter().all(|answer| answer.len() == 30), "{name}");
        assert_eq!(runs[0], runs[1], "{name}");
    }
}

/// Seats are its owner's until it ends: when its prompt was admitted they were taken for free, once.
#[tokio::test]
async fn a_sequence_that_was_admitted_still_counts_for_its_owner() {
    let of = |tenant: &str, max_tokens: i64| {
        let origin = Origin { tenant: tenant.into(), ..Origin::default() };
        asking(&[7, 8, 9], max_tokens, |raw| Parameters { origin, ..raw })
    };
    for overlap in [false, true] {
        let rig = rig::storyteller(Setup { max_num_seqs: 2, overlap, ..Setup::default() });
        // What has come is released as soon as there is a seat.
        let immediate = Change { group: Group::Strategy, name: Some("immediate".into()), values: Vec::new() };
        rig.handle.change(immediate).await.expect("a loop");
        let start = async |request| rig::submit(&rig.handle, vec![request]).await.expect("room").remove(0);
        // `b` has had much already when `a` comes: in the order of service it stands behind.
        collect(start(of("b", 300)).await).await;
        let mut long = start(of("a", 400)).await;
        let mut other = start(of("c", 60)).await;
        for events in [&mut long, &mut other] {
            events.recv().await.expect("admitted");
            events.recv().await.expect("a token");
        }
        let mut second = start(of("a", 20)).await;
        let first = start(of("b", 20)).await;
        collect(other).await;
        // Half of the two seats is one, and `a` holds it.
        assert_eq!(collect(first).await.tokens.len(), 20);
        assert_eq!(second.try_recv().err(), Some(mpsc::error::TryRecvError::Empty), "overlap: {overlap}");
        assert_eq!((collect(long).await.tokens.len(), collect(second).await.tokens.len()), (399, 20));
        rig.join().await;
    }
}

/// Whoever hears an end has heard everything before it, also when the end comes from somebody else.
#[tokio::test]
async fn an_end_comes_after_what_was_computed_before_it() {
    for overlap in [false, true] {
        let rig = rig::storyteller(Setup { overlap, ..Setup::default() });
        let mut running = rig.submit(&[7, 8, 9], 300).await;
        for _ in 0..10 {
            running.recv().await.expect("an event");
        }
        rig.handle.shutdown().await.expect("a loop");
        let heard = 9 + collect(running).await.tokens.len() as u64;
        let core = rig.task.await.expect("the loop ends");
        assert_eq!(heard, core.snapshot().steps_total, "one token a step, overlap: {overlap}");
    }
}
