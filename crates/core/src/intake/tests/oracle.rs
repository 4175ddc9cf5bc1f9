//! The order of seats against a definition that looks at everything: no lanes, no indices.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::world::{CONFIGS, Op, SEATS, World, config_number, op};
use super::*;

#[derive(Clone)]
struct Item {
    seq: SeqId,
    tenant: String,
    priority: Priority,
    prompt: usize,
    bucket: Bucket,
    arrived: Micros,
    /// The service clock as the intake knew it.
    came: Micros,
    flushed: bool,
}

#[derive(Clone, Copy, Default)]
struct Tenant {
    counter: u64,
    seats: usize,
    served: Micros,
}

/// Sequence ids grow with arrivals here, so they are the order.
struct Plain {
    config: Config,
    queued: BTreeMap<SeqId, Item>,
    tenants: BTreeMap<String, Tenant>,
    last: Option<String>,
    /// By class: the service clock at its last turn.
    turns: [Micros; CLASSES],
}

impl Plain {
    fn class(&self, item: &Item) -> usize {
        self.config.class(item.priority).index()
    }

    fn push(&mut self, item: Item) {
        let queueing: Vec<&String> = self.queued.values().map(|item| &item.tenant).collect();
        if !queueing.contains(&&item.tenant) {
            let others = queueing.iter().map(|tenant| self.tenants[*tenant].counter).min();
            let floor = others.or(self.last.as_ref().map(|last| self.tenants[last].counter)).unwrap_or(0);
            let tenant = self.tenants.entry(item.tenant.clone()).or_default();
            tenant.counter = tenant.counter.max(floor);
        }
        self.queued.insert(item.seq, item);
    }

    fn remove(&mut self, seq: SeqId) -> Item {
        let item = self.queued.remove(&seq).expect("queued");
        if self.queued.is_empty() {
            self.last = Some(item.tenant.clone());
        }
        item
    }

    fn note_who_is_away(&mut self) {
        for (name, tenant) in &mut self.tenants {
            if tenant.seats == 0 && self.queued.values().all(|item| item.tenant != *name) {
                tenant.served = Micros::ZERO;
            }
        }
    }

    fn flushed(&self) -> impl Iterator<Item = &Item> {
        self.queued.values().filter(|item| item.flushed)
    }

    /// The class that has its turn: one that was passed over for too long, else the most urgent.
    fn turn(&self, served: Micros) -> Option<usize> {
        let due = |class: usize| {
            let oldest = self.flushed().find(|item| self.class(item) == class)?;
            Some((self.turns[class].max(oldest.came).0 + self.config.aging.0 * class as u64, class))
        };
        let overdue = (1..4).filter_map(due).filter(|(due, _)| self.config.flush.priorities && *due <= served.0).min();
        let overdue = overdue.map(|(_, class)| class);
        overdue.or_else(|| self.flushed().map(|item| self.class(item)).min())
    }

    /// The oldest of its class of the tenant that goes first.
    fn head(&self, served: Micros) -> Option<&Item> {
        let cap = self.config.fairness.seat_cap(SEATS);
        let class = self.turn(served)?;
        let mut heads: BTreeMap<&str, &Item> = BTreeMap::new();
        for item in self.flushed().filter(|item| self.class(item) == class) {
            heads.entry(&item.tenant).or_insert(item);
        }
        let turn = |item: &&&Item| {
            let tenant = self.tenants[&item.tenant];
            (tenant.seats >= cap, tenant.counter, tenant.seats, tenant.served, item.seq)
        };
        heads.values().min_by_key(turn).copied()
    }

    fn take(&mut self, bucket: &mut Option<Bucket>, now: Micros) -> Option<SeqId> {
        let head = self.head(now)?;
        let alike = |item: &&Item| {
            let mine = item.tenant == head.tenant && self.class(item) == self.class(head);
            item.flushed && mine && Some(item.bucket) == *bucket
        };
        let waited = now.since(head.arrived);
        let class = self.class(head);
        let firm = class == 0 || waited >= self.config.max_waits[class.min(3)];
        let chosen = if firm { head } else { self.queued.values().find(alike).unwrap_or(head) };
        let (seq, prompt) = (chosen.seq, chosen.prompt);
        bucket.get_or_insert(chosen.bucket);
        let item = self.remove(seq);
        self.turns[class] = now;
        let tenant = self.tenants.get_mut(&item.tenant).expect("known");
        tenant.counter += self.config.fairness.prompt_charge(prompt);
        tenant.seats += 1;
        tenant.served = now;
        Some(seq)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn seats_are_given_in_the_defined_order(number in 0..CONFIGS, ops in prop::collection::vec(op(4), 1..150)) {
        let config = config_number(number);
        let mut world = World::new(config);
        let mut plain = Plain { config, queued: BTreeMap::new(), tenants: BTreeMap::new(), last: None, turns: [Micros::ZERO; CLASSES] };
        let mut owners: BTreeMap<SeqId, String> = BTreeMap::new();
        // The intake knows the service clock as of its last release.
        let mut served = Micros::ZERO;
        for op in ops {
            let seated = world.seated.clone();
            match op {
                Op::Push { .. } => {
                    let group = world.group(&op);
                    let bucket = |request| config.bucket(&request);
                    let item = |ask: &Ask| Item {
                        seq: SeqId(ask.seq),
                        tenant: ask.tenant.clone(),
                        priority: ask.priority,
                        prompt: ask.prompt,
                        bucket: bucket(ask.build()),
                        arrived: ask.received,
                        came: served,
                        flushed: false,
                    };
                    let items: Vec<Item> = group.iter().map(item).collect();
                    owners.extend(items.iter().map(|item| (item.seq, item.tenant.clone())));
                    if world.push(group) {
                        items.into_iter().for_each(|item| plain.push(item));
                    }
                }
                Op::Advance(by) => world.leap(by),
                Op::Generated(at, tokens) if !seated.is_empty() => {
                    world.apply(&op);
                    let tenant = plain.tenants.get_mut(&owners[&seated[at % seated.len()]]).expect("known");
                    tenant.counter += config.fairness.output_charge(tokens);
                }
                Op::Ended(at) if !seated.is_empty() => {
                    world.apply(&op);
                    plain.tenants.get_mut(&owners[&seated[at % seated.len()]]).expect("known").seats -= 1;
                }
                Op::Release { idle } => {
                    let batch = world.release(idle);
                    served = world.now;
                    let gathers: Vec<SeqId> = world.gathering();
                    plain.queued.values_mut().for_each(|item| item.flushed = !gathers.contains(&item.seq));
                    let seats = (SEATS - seated.len()).min(config.flush.max_batch_size);
                    let mut bucket = None;
                    let expected: Vec<SeqId> = (0..seats).map_while(|_| plain.take(&mut bucket, world.now)).collect();
                    let given: Vec<SeqId> =
                        batch.iter().flat_map(|batch| &batch.released).map(|one| one.request.id()).collect();
                    prop_assert_eq!(given, expected);
                }
                _ => world.apply(&op),
            }
            for seq in world.gone.drain(..).filter(|seq| plain.queued.contains_key(seq)).collect::<Vec<_>>() {
                plain.remove(seq);
            }
            plain.note_who_is_away();
        }
    }
}
