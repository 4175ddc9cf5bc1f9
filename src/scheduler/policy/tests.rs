//! The policies one tick at a time.

use super::*;

fn decoder(id: u64, generated: usize) -> SessionView {
    SessionView { id: SeqId(id), decoding: true, current_token: Some(7), generated, arrival: id, prefill_remaining: 0 }
}

fn prefill(id: u64, remaining: usize) -> SessionView {
    SessionView { decoding: false, current_token: None, prefill_remaining: remaining, ..decoder(id, 0) }
}

fn executor(kind: PolicyKind) -> PolicyExecutor {
    PolicyExecutor::new(PolicyConfig { kind, decode_burst_budget: 3, ..PolicyConfig::default() })
}

fn ids(seqs: &[SeqId]) -> Vec<u64> {
    seqs.iter().map(|seq| seq.0).collect()
}

#[test]
fn fair_rotates() {
    let mut fair = executor(PolicyKind::Fair);
    let sessions = [decoder(1, 5), decoder(2, 0), decoder(3, 9)];
    let turns: Vec<Vec<u64>> = (0..5).map(|_| ids(&fair.tick(&sessions, 1).decode_ids)).collect();
    assert_eq!(turns, [[1], [2], [3], [1], [2]], "one token per tick");
    assert_eq!(ids(&fair.tick(&sessions, 2).decode_ids), [3, 1]);
    assert_eq!(ids(&fair.tick(&sessions, 64).decode_ids), [2, 3, 1], "with room for all, all decode");
    assert_eq!(ids(&fair.tick(&[decoder(4, 0), decoder(3, 0)], 64).decode_ids), [3, 4], "those who left are forgotten");
}

#[test]
fn fair_empty_gives_an_empty_plan() {
    for kind in PolicyKind::ALL {
        assert_eq!(executor(kind).tick(&[], 8), SchedulingPlan::default());
        assert!(executor(kind).tick(&[decoder(1, 1)], 0).decode_ids.is_empty());
    }
}

#[test]
fn latency_picks_the_youngest() {
    let mut latency = executor(PolicyKind::LatencyFirst);
    let sessions = [decoder(1, 50), decoder(2, 3), decoder(3, 20)];
    assert_eq!(ids(&latency.tick(&sessions, 1).decode_ids), [2]);
    assert_eq!(ids(&latency.tick(&sessions, 8).decode_ids), [2, 3, 1]);
}

#[test]
fn latency_gives_prefill_priority() {
    let mut latency = executor(PolicyKind::LatencyFirst);
    let sessions = [decoder(1, 5), prefill(2, 900), decoder(3, 1), prefill(4, 10)];
    let plan = latency.tick(&sessions, 2);
    assert_eq!((ids(&plan.prefill_ids), ids(&plan.decode_ids)), (vec![4, 2], vec![]));
    let plan = latency.tick(&sessions, 3);
    assert_eq!((ids(&plan.prefill_ids), ids(&plan.decode_ids)), (vec![4, 2], vec![3]));
}

#[test]
fn throughput_batches_all_longest_first() {
    let mut throughput = executor(PolicyKind::ThroughputFirst);
    let plan = throughput.tick(&[decoder(1, 5), decoder(2, 50), decoder(3, 20)], 64);
    assert_eq!(ids(&plan.decode_ids), [2, 3, 1]);
    assert_eq!(plan.batch_groups.len(), 1);
    assert_eq!(ids(&plan.batch_groups[0].session_ids), [2, 3, 1]);
}

#[test]
fn throughput_defers_prefill_behind_its_burst() {
    let mut throughput = executor(PolicyKind::ThroughputFirst);
    let sessions = [decoder(1, 5), decoder(2, 4), prefill(3, 100)];
    let pending: Vec<(usize, usize)> =
        (0..8).map(|_| (throughput.tick(&sessions, 64).prefill_ids.len(), throughput.pending_out())).collect();
    assert_eq!(pending, [(0, 2), (0, 4), (0, 6), (1, 0), (0, 2), (0, 4), (0, 6), (1, 0)]);
    assert_eq!(
        executor(PolicyKind::ThroughputFirst).tick(&[prefill(3, 100)], 64).prefill_ids.len(),
        1,
        "no burst to wait for"
    );
}

#[test]
fn a_switch_clears_the_ordering() {
    let mut policy = executor(PolicyKind::Fair);
    let sessions = [decoder(1, 5), decoder(2, 9), decoder(3, 0)];
    policy.tick(&sessions, 1);
    policy.set_policy(PolicyConfig { kind: PolicyKind::ThroughputFirst, ..PolicyConfig::default() });
    assert_eq!(ids(&policy.tick(&sessions, 1).decode_ids), [2]);
    assert_eq!(policy.pending_out(), 1);
    policy.set_policy(PolicyConfig::default());
    assert_eq!((ids(&policy.tick(&sessions, 1).decode_ids), policy.pending_out()), (vec![1], 0));
}

#[test]
fn names_are_found_again() {
    for kind in PolicyKind::ALL {
        assert_eq!(PolicyKind::from_name(kind.name()), Some(kind));
    }
    assert_eq!(PolicyKind::from_name("Fair"), None);
}

fn info(id: u64) -> BatchSessionInfo {
    BatchSessionInfo { id: SeqId(id), decoding: true, current_token: Some(1) }
}

fn groups(min: usize, max: usize, sessions: &[BatchSessionInfo]) -> Vec<Vec<u64>> {
    BatchDetector::new(min, max).detect(sessions).iter().map(|group| ids(&group.session_ids)).collect()
}

#[test]
fn eligible_sessions_are_grouped() {
    assert_eq!(groups(2, 8, &[info(1), info(2), info(3)]), [[1, 2, 3]]);
}

#[test]
fn who_does_not_decode_or_has_no_token_is_left_out() {
    let idle = BatchSessionInfo { decoding: false, ..info(2) };
    let tokenless = BatchSessionInfo { current_token: None, ..info(3) };
    assert_eq!(groups(1, 8, &[info(1), idle, tokenless, info(4)]), [[1, 4]]);
    assert!(groups(1, 8, &[idle, tokenless]).is_empty());
}

#[test]
fn below_the_minimum_each_is_its_own_group() {
    assert_eq!(groups(4, 8, &[info(1), info(2), info(3)]), [[1], [2], [3]]);
}

#[test]
fn above_the_maximum_groups_are_split() {
    let sessions: Vec<BatchSessionInfo> = (1..=7).map(info).collect();
    assert_eq!(groups(2, 3, &sessions), [vec![1, 2, 3], vec![4, 5, 6], vec![7]]);
}

#[test]
fn an_empty_group_splits_into_none() {
    let empty = BatchGroup::default();
    assert_eq!((empty.size(), empty.total_tokens(), empty.is_empty()), (0, 0, true));
    assert!(empty.split(4).is_empty());
}

#[test]
fn a_group_knows_its_size_and_its_tokens() {
    let group = BatchGroup { session_ids: vec![SeqId(1), SeqId(2), SeqId(3)], tokens_per_session: vec![1, 2, 5] };
    assert_eq!((group.size(), group.total_tokens(), group.is_empty()), (3, 8, false));
    let parts = group.clone().split(2);
    assert_eq!(parts.iter().map(BatchGroup::total_tokens).collect::<Vec<_>>(), [3, 5]);
    assert_eq!(group.clone().split(0).len(), 3, "a maximum of nothing is one");
    assert_eq!(group.clone().split(9), [group]);
}
