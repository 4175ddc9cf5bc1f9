//! The executor alone: who is served in which tick.

use proptest::prelude::*;

use super::*;
use crate::request::Priority;
use crate::units::SeqId;

fn config(kind: PolicyKind) -> PolicyConfig {
    PolicyConfig { kind, ..PolicyConfig::default() }
}

fn decoding(id: u64, generated: usize) -> SessionView {
    SessionView {
        id: SeqId(id),
        priority: Priority::Normal,
        received: Micros(id),
        decoding: true,
        has_token: true,
        generated,
        arrival: id,
        prefill_remaining: 0,
    }
}

fn prompt(id: u64) -> SessionView {
    SessionView { decoding: false, has_token: false, prefill_remaining: 10, ..decoding(id, 0) }
}

/// Two seats, steps of 100 tokens.
fn room(slots: usize) -> Room {
    Room { slots, seats: 2, step_tokens: 100 }
}

fn ids(ids: &[SeqId]) -> Vec<u64> {
    ids.iter().map(|seq| seq.0).collect()
}

/// Who decodes, then whose prompt goes on: `1 2 | 3`, one per tick.
fn ticks(executor: &mut PolicyExecutor, sessions: &[SessionView], slots: usize, count: usize) -> String {
    let words = |seqs: &[SeqId]| ids(seqs).iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    let mut tick = |_| {
        let plan = executor.tick(sessions, room(slots), &Slo::default(), Micros(0));
        format!("{}|{}", words(&plan.decode_ids), words(&plan.prefill_ids))
    };
    (0..count).map(&mut tick).collect::<Vec<_>>().join("; ")
}

#[test]
fn fair_rotates() {
    let mut fair = PolicyExecutor::new(config(PolicyKind::Fair));
    let sessions = [decoding(1, 0), decoding(2, 9), decoding(3, 4)];
    assert_eq!(ticks(&mut fair, &sessions, 1, 5), "1|; 2|; 3|; 1|; 2|");
    assert_eq!(ticks(&mut fair, &sessions, 2, 3), "3 1|; 2 3|; 1 2|");
    // Room for all keeps the order, so the next short tick goes on where the last one ended.
    assert_eq!(ticks(&mut fair, &sessions, 9, 2), "3 1 2|; 3 1 2|");
    // Who leaves is forgotten; who comes stands at the end.
    assert_eq!(ticks(&mut fair, &[decoding(1, 0), decoding(2, 9), decoding(4, 0)], 1, 4), "1|; 2|; 4|; 1|");
}

#[test]
fn fair_empty_gives_an_empty_plan() {
    for kind in PolicyKind::ALL {
        let mut executor = PolicyExecutor::new(config(kind));
        assert_eq!(executor.tick(&[], room(4), &Slo::default(), Micros(0)), SchedulingPlan::default());
        assert_eq!(executor.tick(&[decoding(1, 1)], room(0), &Slo::default(), Micros(0)).decode_ids, []);
    }
}

#[test]
fn fair_prompts_come_by_arrival() {
    let mut fair = PolicyExecutor::new(config(PolicyKind::Fair));
    assert_eq!(ticks(&mut fair, &[prompt(3), decoding(1, 0), prompt(2)], 1, 2), "1|2 3; 1|2 3");
}

#[test]
fn latency_picks_the_youngest() {
    let mut latency = PolicyExecutor::new(config(PolicyKind::LatencyFirst));
    let sessions = [decoding(1, 7), decoding(2, 3), decoding(3, 5), decoding(4, 3)];
    assert_eq!(ticks(&mut latency, &sessions, 1, 2), "2|; 2|");
    assert_eq!(ticks(&mut latency, &sessions, 3, 1), "2 4 3|");
}

#[test]
fn prefill_priority() {
    let mut latency = PolicyExecutor::new(config(PolicyKind::LatencyFirst));
    let recomputed = SessionView { generated: 6, prefill_remaining: 11, ..prompt(1) };
    let sessions = [recomputed, decoding(2, 3), prompt(3), decoding(4, 1)];
    assert_eq!(ticks(&mut latency, &sessions, 1, 1), "|3 1", "the slots are the prompts'");
    assert_eq!(ticks(&mut latency, &sessions, 3, 1), "4|3 1");
    assert_eq!(ticks(&mut latency, &sessions, 4, 1), "4 2|3 1");
}

#[test]
fn throughput_batches_all() {
    let mut throughput = PolicyExecutor::new(config(PolicyKind::ThroughputFirst));
    let plan = throughput.tick(&[decoding(1, 2), decoding(2, 8), decoding(3, 8)], room(10), &Slo::default(), Micros(0));
    assert_eq!(ids(&plan.decode_ids), [2, 3, 1], "longest first");
    assert_eq!(plan.batch_groups.len(), 1);
    assert_eq!(plan.batch_groups[0].session_ids, plan.decode_ids);
    assert_eq!(
        throughput.tick(&[decoding(1, 2), decoding(2, 8)], room(1), &Slo::default(), Micros(0)).batch_groups[0]
            .session_ids,
        [SeqId(2)]
    );
}

#[test]
fn throughput_defers_prompts_behind_the_burst() {
    let config = PolicyConfig { decode_burst_budget: 3, ..config(PolicyKind::ThroughputFirst) };
    let mut throughput = PolicyExecutor::new(config);
    assert_eq!(ticks(&mut throughput, &[prompt(7)], 4, 2), "|7; |7", "nothing decodes, nothing is deferred");
    let sessions = [decoding(1, 1), decoding(2, 1), prompt(7)];
    let pending: Vec<usize> = (0..5)
        .map(|_| {
            throughput.tick(&sessions, room(4), &Slo::default(), Micros(0));
            throughput.pending_out()
        })
        .collect();
    assert_eq!(pending, [2, 4, 6, 0, 2], "reset when the burst ends");
    assert_eq!(ticks(&mut throughput, &sessions, 4, 4), "1 2|; 1 2|; 1 2|7; 1 2|");
    // Without prompts one burst follows the other.
    assert_eq!(ticks(&mut throughput, &sessions[..2], 4, 4), "1 2|; 1 2|; 1 2|; 1 2|");
    throughput.tick(&[], room(4), &Slo::default(), Micros(0));
    assert_eq!(throughput.pending_out(), 0);
}

#[test]
fn a_switch_clears_the_ordering() {
    let sessions = [decoding(1, 0), decoding(2, 0), decoding(3, 0)];
    let mut executor = PolicyExecutor::new(config(PolicyKind::Fair));
    assert_eq!(ticks(&mut executor, &sessions, 1, 2), "1|; 2|");
    executor.set_policy(config(PolicyKind::ThroughputFirst));
    executor.tick(&sessions, room(3), &Slo::default(), Micros(0));
    assert_eq!((executor.kind(), executor.pending_out()), (PolicyKind::ThroughputFirst, 3));
    executor.set_policy(config(PolicyKind::Fair));
    assert_eq!(executor.pending_out(), 0);
    assert_eq!(ticks(&mut executor, &sessions, 1, 2), "1|; 2|", "from the beginning again");
}

fn info(session: &SessionView) -> BatchSessionInfo {
    session.into()
}

/// Group sizes for `count` sessions that decode.
fn sizes(min_batch: usize, max_batch: usize, count: u64) -> Vec<usize> {
    let sessions: Vec<BatchSessionInfo> = (0..count).map(|id| info(&decoding(id, 1))).collect();
    BatchDetector { min_batch, max_batch }.detect(&sessions).iter().map(BatchGroup::size).collect()
}

#[test]
fn eligible_grouped() {
    assert_eq!(sizes(1, 32, 4), [4]);
    assert_eq!(sizes(4, 32, 4), [4]);
    assert!(sizes(1, 32, 0).is_empty());
}

#[test]
fn not_decoding_filtered() {
    let detector = BatchDetector { min_batch: 1, max_batch: 8 };
    let mut resting = info(&decoding(2, 1));
    resting.decoding = false;
    let groups = detector.detect(&[info(&decoding(1, 1)), resting]);
    assert_eq!(groups[0].session_ids, [SeqId(1)]);
}

#[test]
fn no_token_filtered() {
    let detector = BatchDetector { min_batch: 1, max_batch: 8 };
    let tokenless = BatchSessionInfo { has_token: false, ..info(&decoding(1, 1)) };
    let groups = detector.detect(&[tokenless, info(&decoding(2, 1))]);
    assert_eq!(groups[0].session_ids, [SeqId(2)]);
}

#[test]
fn below_min_singletons() {
    assert_eq!(sizes(4, 32, 3), [1, 1, 1]);
}

#[test]
fn split_by_max_batch() {
    assert_eq!(sizes(1, 2, 5), [2, 2, 1]);
    assert_eq!(sizes(1, 5, 5), [5]);
}

#[test]
fn split_of_an_empty_group() {
    assert!(BatchGroup::default().split(4).is_empty());
    assert_eq!((BatchGroup::default().size(), BatchGroup::default().total_tokens()), (0, 0));
}

#[test]
fn names_and_checks() {
    assert!(PolicyKind::ALL.iter().all(|&kind| PolicyKind::from_name(kind.name()) == Some(kind)));
    assert_eq!(PolicyKind::from_name("nobody_first"), None);
    let good = PolicyConfig::default();
    assert_eq!(good.check(), Ok(()));
    for bad in [
        PolicyConfig { decode_burst_budget: 0, ..good },
        PolicyConfig { min_batch: 0, ..good },
        PolicyConfig { min_batch: 40, ..good },
        PolicyConfig { max_batch: 0, ..good },
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
}

fn any_session() -> impl Strategy<Value = SessionView> {
    (0u64..40, any::<bool>(), any::<bool>(), 0usize..50).prop_map(|(id, decoding_now, token, generated)| SessionView {
        has_token: token,
        decoding: decoding_now,
        prefill_remaining: usize::from(!decoding_now) * 7,
        ..decoding(id, generated)
    })
}

proptest! {
    #[test]
    fn group_properties(tokens in prop::collection::vec(0usize..9, 0..50), max in 1usize..12) {
        let ids: Vec<SeqId> = (0..tokens.len() as u64).map(SeqId).collect();
        let group = BatchGroup { session_ids: ids.clone(), tokens_per_session: tokens.clone() };
        let total = group.total_tokens();
        let parts = group.split(max);
        prop_assert!(parts.iter().all(|part| (1..=max).contains(&part.size())));
        prop_assert!(parts.iter().all(|part| part.session_ids.len() == part.tokens_per_session.len()));
        prop_assert_eq!(parts.iter().map(BatchGroup::total_tokens).sum::<usize>(), total);
        let joined: Vec<SeqId> = parts.iter().flat_map(|part| part.session_ids.clone()).collect();
        prop_assert_eq!(joined, ids);
        prop_assert_eq!(parts.len(), tokens.len().div_ceil(max));
    }

    #[test]
    fn every_policy_names_each_at_most_once_and_keeps_to_its_slots(
        mut sessions in prop::collection::vec(any_session(), 0..20), slots in 0usize..12, kind in 0usize..PolicyKind::ALL.len(),
    ) {
        sessions.sort_by_key(|session| session.id);
        sessions.dedup_by_key(|session| session.id);
        let mut executor = PolicyExecutor::new(config(PolicyKind::ALL[kind]));
        for _ in 0..12 {
            let plan = executor.tick(&sessions, room(slots), &Slo::default(), Micros(0));
            prop_assert!(plan.decode_ids.len() <= slots);
            let mut named = [plan.decode_ids.clone(), plan.prefill_ids].concat();
            named.sort_unstable();
            prop_assert!(named.windows(2).all(|pair| pair[0] != pair[1]));
            prop_assert!(named.iter().all(|seq| sessions.iter().any(|session| session.id == *seq)));
            let grouped: Vec<SeqId> = plan.batch_groups.iter().flat_map(|group| group.session_ids.clone()).collect();
            prop_assert!(grouped.is_empty() || grouped == plan.decode_ids);
        }
    }
}
