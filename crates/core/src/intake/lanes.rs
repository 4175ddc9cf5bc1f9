//! Whose request is next: flushed requests in lanes by tenant and class. Pure.
//!
//! ```text
//! tenant ─▶ critical  o o          candidate: its head of the best aged class, the oldest of equals
//!           high                       │
//!           normal    o o o o          ▼
//!           low       o        ready[class of the candidate]: tenants by counter (Key)
//! ```
//! Within a tenant a request rises one class per `aging` waited, up to critical; a batch never rises. Between tenants age counts only while
//! the tenant holds no seat, and only since it was last given one: a tenant's backlog, however old, is no claim against a
//! tenant that just came, else a flood would turn into urgency by its own length.
//!
//! Only heads are looked at: placing a tenant costs O(log n), choosing O(log n) plus the tenants at their seat cap, of
//! which there are at most seats / cap.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::bucket::Bucket;
use super::fair::{Account, Accounts};
use crate::request::{CLASSES, Priority};
use crate::units::Micros;

/// The class that no waiting lifts.
const BATCH: usize = Priority::Batch.index();

/// A place in the order of arrival, unique in an intake.
pub(super) type Order = u64;

/// A flushed request as its lane knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    pub order: Order,
    /// Index of its class.
    pub class: usize,
    pub bucket: Bucket,
    pub arrived: Micros,
}

#[derive(Debug, Default)]
struct Lane {
    arrivals: BTreeMap<Order, Micros>,
    buckets: BTreeSet<(Bucket, Order)>,
}

#[derive(Debug, Default)]
struct Tenant {
    lanes: [Lane; CLASSES],
    place: Option<Place>,
    /// When time alone may change its place.
    review: Option<Micros>,
}

/// The request that a tenant would send next, and where that puts the tenant among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Index of its own class.
    lane: usize,
    /// Index of the class in which the tenant competes.
    class: usize,
    key: Key,
}

/// The smaller goes first. Equal counters are common (who joins is lifted to the smallest): then who holds fewer seats,
/// then who was served longer ago, so that a newcomer precedes those that are being served; then who waits for longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    counter: u64,
    seats: usize,
    served: Micros,
    order: Order,
}

/// Why a flushed request is not next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    MoreUrgent,
    OtherTenant,
    Nobody,
}

#[derive(Debug)]
pub(super) struct Lanes {
    aging: Micros,
    now: Micros,
    tenants: HashMap<Arc<str>, Tenant>,
    /// By class: the tenants that compete in it.
    ready: [BTreeSet<Key>; CLASSES],
    reviews: BTreeSet<(Micros, Arc<str>)>,
}

impl Lanes {
    /// `aging` of [`Micros`]' maximum is none.
    pub fn new(aging: Micros) -> Lanes {
        Lanes { aging, now: Micros::ZERO, tenants: HashMap::new(), ready: Default::default(), reviews: BTreeSet::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.ready.iter().all(BTreeSet::is_empty)
    }

    /// Whether anyone but batches is here.
    pub fn has_urgent(&self) -> bool {
        self.ready[..BATCH].iter().any(|tenants| !tenants.is_empty())
    }

    pub fn insert(&mut self, tenant: &Arc<str>, ticket: Ticket, account: Account) {
        let lane = &mut self.tenants.entry(tenant.clone()).or_default().lanes[ticket.class];
        lane.arrivals.insert(ticket.order, ticket.arrived);
        lane.buckets.insert((ticket.bucket, ticket.order));
        self.place(tenant, account);
    }

    pub fn remove(&mut self, tenant: &Arc<str>, ticket: Ticket, account: Account) {
        let lane = &mut self.tenants.get_mut(tenant).expect("its tenant has lanes").lanes[ticket.class];
        lane.arrivals.remove(&ticket.order);
        lane.buckets.remove(&(ticket.bucket, ticket.order));
        self.place(tenant, account);
    }

    /// Puts the tenant where it belongs now: after a change of its lanes or of its account.
    pub fn place(&mut self, name: &Arc<str>, account: Account) {
        let Some(tenant) = self.tenants.get_mut(name) else { return };
        let (place, review) = tenant.assess(account, self.now, self.aging);
        let (old_place, old_review) = (tenant.place, tenant.review);
        (tenant.place, tenant.review) = (place, review);
        if place.is_none() {
            self.tenants.remove(name);
        }
        if old_place != place {
            old_place.map(|old| self.ready[old.class].remove(&old.key));
            place.map(|new| self.ready[new.class].insert(new.key));
        }
        if old_review != review {
            old_review.map(|old| self.reviews.remove(&(old, name.clone())));
            review.map(|new| self.reviews.insert((new, name.clone())));
        }
    }

    /// Time passes: tenants rise.
    pub fn age(&mut self, now: Micros, accounts: &Accounts) {
        self.now = self.now.max(now);
        while let Some((at, _)) = self.reviews.first() {
            if *at > self.now {
                return;
            }
            let (_, name) = self.reviews.pop_first().expect("it is first");
            self.tenants.get_mut(&name).expect("reviews are of tenants with lanes").review = None;
            self.place(&name, accounts.of(&name));
        }
    }

    /// The next to get a seat. A tenant with `cap` seats or more is passed over while another competes in its class.
    pub fn next(&self, cap: usize) -> Option<Order> {
        self.first(cap).map(|(_, key)| key.order)
    }

    fn first(&self, cap: usize) -> Option<(usize, Key)> {
        let class = self.ready.iter().position(|tenants| !tenants.is_empty())?;
        let tenants = &self.ready[class];
        let key = tenants.iter().find(|key| key.seats < cap).or(tenants.first())?;
        Some((class, *key))
    }

    /// The oldest of the tenant's requests of this class and bucket.
    pub fn oldest_of(&self, tenant: &str, class: usize, bucket: Bucket) -> Option<Order> {
        let buckets = &self.tenants.get(tenant)?.lanes[class].buckets;
        buckets.range((bucket, 0)..=(bucket, Order::MAX)).next().map(|(_, order)| *order)
    }

    /// Why a request of this tenant and class would not be next.
    pub fn behind(&self, tenant: &str, class: usize, cap: usize) -> Behind {
        let place = self.tenants.get(tenant).and_then(|tenant| tenant.place);
        let (Some(place), Some((best, first))) = (place, self.first(cap)) else { return Behind::Nobody };
        if place.class > best {
            Behind::MoreUrgent
        } else if place.key != first {
            Behind::OtherTenant
        } else if class > place.lane {
            Behind::MoreUrgent
        } else {
            Behind::Nobody
        }
    }
}

impl Tenant {
    /// Its place, and when time alone may change it.
    fn assess(&self, account: Account, now: Micros, aging: Micros) -> (Option<Place>, Option<Micros>) {
        let aging = aging.0.max(1);
        let risen = |class: usize, since: Micros| match class {
            BATCH => BATCH,
            class => class - (now.since(since).0 / aging).min(class as u64) as usize,
        };
        let next_rise = |class: usize, since: Micros| {
            let rises = now.since(since).0 / aging + 1;
            let at = aging.checked_mul(rises).and_then(|wait| since.0.checked_add(wait)).map(Micros);
            at.filter(|_| class != BATCH && risen(class, since) > 0)
        };
        let heads = || {
            let head = |(class, lane): (usize, &Lane)| lane.arrivals.first_key_value().map(|(o, a)| (class, *o, *a));
            self.lanes.iter().enumerate().filter_map(head)
        };
        let candidate = heads().min_by_key(|&(class, order, arrived)| (risen(class, arrived), order));
        let Some((lane, order, arrived)) = candidate else { return (None, None) };
        let unserved_since = (account.seats == 0).then(|| arrived.max(account.served));
        let class = unserved_since.map_or(lane, |since| risen(lane, since));
        let Account { counter, seats, served, .. } = account;
        let place = Place { lane, class, key: Key { counter, seats, served, order } };
        let within = heads().filter_map(|(class, _, arrived)| next_rise(class, arrived));
        let review = within.chain(unserved_since.and_then(|since| next_rise(lane, since))).min();
        (Some(place), review)
    }
}
