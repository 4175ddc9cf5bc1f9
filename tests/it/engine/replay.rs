//! One code: what a live loop over a real model decided, the simulator decides again from the same times and tokens.

use forebay_core::units::{Micros, TokenId};
use forebay_sim::replay::replay;
use forebay_turn::control::{Change, Group, Value};
use forebay_turn::decision_log::Entry;

use crate::support::rig::{Setup, collect, request_of, storyteller, submit};

fn prompt(n: u32, tokens: u32) -> Vec<TokenId> {
    (0..tokens).map(|i| 3 + (n * 31 + i * 13) % 250).collect()
}

fn select(group: Group, name: &str) -> Change {
    Change { group, name: Some(name.into()), values: Vec::new() }
}

/// Requests of many lengths, some abandoned, in a pool that is too small for them, while strategies, policies and limits
/// change. The log, and what it takes to make the same engine again.
async fn recorded() -> (Vec<Entry>, forebay_turn::control::Tuning, forebay_turn::core::Config) {
    let mut rig = storyteller(Setup {
        num_blocks: 32,
        max_num_seqs: 6,
        max_stall: Some(Micros::from_millis(20)),
        record: Some(100_000),
        ..Setup::default()
    });
    let changes = [
        select(Group::Strategy, "immediate"),
        select(Group::Strategy, "fixed"),
        select(Group::Policy, "throughput_first"),
        select(Group::Strategy, "cost_aware"),
        select(Group::Strategy, "latency_aware"),
        Change { group: Group::Limits, name: None, values: vec![("max_num_seqs".into(), Value::Number(4.0))] },
        select(Group::Policy, "latency_first"),
        select(Group::Strategy, "cost_aware"),
    ];
    for (round, change) in changes.into_iter().enumerate() {
        let round = round as u32;
        let mut receivers = Vec::new();
        for n in 0..9 {
            // Every third begins like another, for the prefix cache.
            let tokens = prompt(if n % 3 == 0 { 1 } else { round * 7 + n }, 20 + 37 * n % 200);
            // Tenants that have received different amounts: a seat must count from release to end, or turns differ.
            let tenant = if n < 6 { "many" } else { "few" };
            let group = vec![request_of(tenant, &tokens, 10 + i64::from(n * 17 % 60))];
            receivers.extend(submit(&rig.handle, group).await.expect("a place"));
        }
        rig.handle.change(change).await.expect("a change");
        // One client leaves without a word.
        drop(receivers.swap_remove(2));
        for receiver in receivers {
            collect(receiver).await.end.expect("an end");
        }
    }
    let (tuning, config, mut log) = (rig.tuning.clone(), rig.config, rig.log.take().expect("a log"));
    rig.join().await;
    let mut entries = Vec::new();
    while let Some(entry) = log.recv().await {
        entries.push(entry);
    }
    (entries, tuning, config)
}

#[tokio::test]
async fn the_simulator_decides_what_the_live_loop_decided() {
    let (log, tuning, config) = recorded().await;
    let aborted = log.iter().filter(|entry| matches!(entry, Entry::Aborted { .. })).count();
    let preempted =
        |entry: &Entry| matches!(entry, Entry::Planned { plan: Some(plan), .. } if !plan.preempted.is_empty());
    assert!(aborted > 0, "nobody left");
    assert!(log.iter().any(preempted), "the pool was never too small");
    let replayed = replay(&log, tuning.clone(), config).unwrap_or_else(|difference| panic!("{difference:#?}"));
    assert!(replayed.releases >= 8 && replayed.plans > 100, "{replayed:?}");

    // The comparison compares: another decision on the log is found where it is.
    let at = log.iter().rposition(|entry| matches!(entry, Entry::Planned { plan: Some(_), .. })).expect("a plan");
    let mut other = log.clone();
    let Entry::Planned { plan: Some(plan), .. } = &mut other[at] else { unreachable!() };
    plan.chunks[0].1.end += 1;
    assert_eq!(replay(&other, tuning, config).expect_err("a difference").at, at);
}
