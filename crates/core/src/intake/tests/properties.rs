//! What holds for every sequence of calls.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::world::{CONFIGS, Op, SEATS, World, config_number, op, op_or_configure};
use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Pushed = released + cancelled + expired + drained + queued, nothing twice; capacity is kept; wake-ups are exact; the
    /// same calls have the same results; all of it while strategy and parameters change every few calls.
    #[test]
    fn nothing_is_lost_whatever_happens(number in 0..CONFIGS, ops in prop::collection::vec(op_or_configure(), 1..120)) {
        let mut world = World::new(config_number(number));
        for op in &ops {
            world.apply(op);
        }
        world.apply(&Op::Drain);
        prop_assert!(world.queued.is_empty());
    }

    /// The starvation bound: with one tenant and a seat at each release, no flushed request waits for longer than
    /// `served_within` says and the service between two releases, whatever comes, and however many prompts are seated.
    #[test]
    fn nobody_starves(
        number in 0..CONFIGS,
        ops in prop::collection::vec(op(1), 1..150),
        between in 1..400_000u64,
        full_step in any::<bool>(),
    ) {
        let mut config = config_number(number);
        config.flush.strategy = StrategyKind::Immediate;
        config.flush.max_batch_size = 1;
        config.flush.min_batch_size = 1;
        config.queue_timeout = Micros(u64::MAX);
        let mut world = World::new(config);
        world.full_step = full_step;
        // Of each that waits: the service clock since when, and how many of its class were before it then.
        let mut waiting: BTreeMap<SeqId, (Priority, Micros, usize)> = BTreeMap::new();
        for op in ops {
            if !matches!(op, Op::Push { .. }) {
                continue;
            }
            let mut group = world.group(&op);
            group.iter_mut().for_each(|ask| ask.timeout_ms = None);
            let since = world.intake_served();
            if world.push(group.clone()) {
                for ask in group {
                    let class = |priority: Priority| if config.flush.priorities { priority } else { Priority::Normal };
                    let mine = |other: &&(Priority, Micros, usize)| class(other.0) == class(ask.priority);
                    let ahead = waiting.values().filter(mine).count();
                    waiting.insert(SeqId(ask.seq), (ask.priority, since, ahead));
                }
            }
            world.leap(between);
            if let Some(batch) = world.release(false) {
                waiting.remove(&batch.released[0].request.id());
                world.end(0);
            }
            for (seq, (priority, since, ahead)) in &waiting {
                // Each turn of the class may come a release late, and one of several overdue classes has to go first.
                let late = Micros(3 * between * (*ahead as u64 + 1));
                let bound = Micros(config.served_within(*priority, *ahead).0.saturating_add(late.0));
                let urgent = matches!(priority, Priority::Critical | Priority::Batch) || !config.flush.priorities;
                prop_assert!(urgent || world.now.since(*since) <= bound, "{seq} {priority:?} since {since:?} at {:?}", world.now);
            }
        }
    }

    /// Under one tenant's flood, however old, another tenant's first request gets the next seat that frees.
    #[test]
    fn a_flood_keeps_nobody_waiting(
        number in 0..CONFIGS,
        flood in 10..50usize,
        floods_age in 0..8_000_000u64,
        output in 0..5_000usize,
        priority in prop::sample::select(Priority::ALL.to_vec()),
    ) {
        let mut world = World::new(config_number(number));
        let ask = |seq, tenant: &str, now| Ask {
            seq,
            tenant: tenant.into(),
            priority,
            prompt: 7 + seq as usize % 3 * 100,
            max_tokens: 20,
            received: now,
            timeout_ms: None,
        };
        for seq in 0..flood as u64 {
            let asked = ask(seq, "flood", world.now);
            world.push(vec![asked]);
        }
        world.advance(200_000, false);
        prop_assert_eq!(world.seated.len(), SEATS);
        world.generate(0, output);
        world.advance(floods_age, false);
        let asked = ask(1_000, "other", world.now);
        prop_assert!(world.push(vec![asked]));
        world.advance(100_000, false);
        world.end(0);
        let batch = world.release(false).expect("a seat is free");
        prop_assert_eq!(batch.released[0].request.id(), SeqId(1_000));
    }

    /// No tenant gets a seat beyond its cap while another below the cap waits for one in the same class.
    #[test]
    fn the_seat_cap_holds_while_others_wait(number in 0..CONFIGS, ops in prop::collection::vec(op(3), 1..150)) {
        let mut config = config_number(number);
        config.flush.strategy = StrategyKind::Immediate;
        let cap = config.fairness.seat_cap(SEATS);
        let mut world = World::new(config);
        let mut owners: BTreeMap<SeqId, String> = BTreeMap::new();
        for op in ops {
            if let Op::Advance(by) = op {
                world.leap(by);
                continue;
            }
            if let Op::Push { .. } = op {
                let mut group = world.group(&op);
                group.iter_mut().for_each(|ask| ask.priority = Priority::Normal);
                owners.extend(group.iter().map(|ask| (SeqId(ask.seq), ask.tenant.clone())));
                world.push(group);
                continue;
            }
            let (before, mut waiting) = (world.seated.len(), world.queued.clone());
            world.apply(&op);
            let Op::Release { .. } = op else { continue };
            for given in before..world.seated.len() {
                let held = |tenant: &str| world.seated[..given].iter().filter(|seq| owners[seq] == tenant).count();
                let seq = world.seated[given];
                waiting.remove(&seq);
                let yielded_to = waiting.values().find(|ask| held(&ask.tenant) < cap && ask.tenant != owners[&seq]);
                prop_assert!(held(&owners[&seq]) < cap || yielded_to.is_none(), "{seq} went before {yielded_to:?}");
            }
        }
    }
}
