//! Whose request is next: flushed requests in lanes by tenant and class. Pure.
//!
//! ```text
//! tenant ─▶ critical  o o          ready[class]: the tenants that have requests of this class, by counter (Key)
//!           high                       │ the first class of which somebody waits, or one that was passed over for too long
//!           normal    o o o o          ▼
//!           low       o            the first tenant; of its lane the request that the policy's order puts first
//! ```
//! Ageing counts service, not time: a class whose requests wait while the engine computes for `aging` × its rank for others gets one
//! turn, whoever else waits. So a long queue does not turn into a queue of urgent requests by its own length, and no class starves.
//! The same holds for the oldest request of a lane that is not served in the order of arrival.
//!
//! Only heads are looked at: placing a tenant costs O(log n), choosing O(log n) plus the tenants at their seat cap, of
//! which there are at most seats / cap.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::bucket::Bucket;
use super::fair::Account;
use crate::request::{CLASSES, Priority};
use crate::slo::Slo;
use crate::units::Micros;

/// The class that no waiting lifts.
const BATCH: usize = Priority::Batch.index();
/// The oldest of a lane goes before what its order prefers after so many times `aging` of service to others.
const PATIENCE: u64 = 4;

/// A place in the order of arrival, unique in an intake.
pub(super) type Order = u64;

/// Which of a tenant's requests of one class goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaneOrder {
    #[default]
    Arrival,
    /// The shortest prompt first, among equals the oldest.
    Shortest,
    /// The earliest promise that can still be kept first, then the others.
    Promise,
}

/// A flushed request as its lane knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    pub order: Order,
    /// Index of its class.
    pub class: usize,
    pub bucket: Bucket,
    /// The engine's service clock when it came.
    pub came: Micros,
    /// Tokens of its prompt.
    pub tokens: usize,
    /// When it came.
    pub arrived: Micros,
}

/// What a choice depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// Classes of which a request may be chosen.
    pub open: [bool; CLASSES],
    /// Seats from which a tenant yields to others of its class.
    pub cap: usize,
    pub now: Micros,
    /// The service clock: how long the engine has computed.
    pub served: Micros,
    pub order: LaneOrder,
    /// Of classes below high only requests that came before this one.
    pub door: Option<Order>,
    /// Prompt tokens that a step has room for, and how long it then takes: what tells promises that can be kept.
    pub step_tokens: usize,
    pub full_step: Micros,
    pub slo: Slo,
}

impl Choice {
    fn admits(&self, class: usize, order: Order) -> bool {
        class <= Priority::High.index() || self.door.is_none_or(|door| order < door)
    }

    /// Whether the first token of a prompt can come in time if it is computed next, behind a step that is full already.
    fn keeps(&self, tokens: usize, promised: Micros) -> bool {
        let steps = 1 + tokens.div_ceil(self.step_tokens.max(1)) as u64;
        self.now.0.saturating_add(self.full_step.0.saturating_mul(steps)) <= promised.0
    }
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub order: Order,
    /// Its class was passed over for as long as it may be.
    pub overdue: bool,
}

#[derive(Debug, Default)]
struct Lane {
    /// With the service clock at their arrival.
    arrivals: BTreeMap<Order, Micros>,
    sizes: BTreeSet<(usize, Order)>,
    /// By the time of their arrival: the tokens of their prompts.
    times: BTreeMap<(Micros, Order), usize>,
    buckets: BTreeSet<(Bucket, Order)>,
    /// The service clock when its oldest request last had a turn.
    oldest_turn: Micros,
}

#[derive(Debug, Default)]
struct Tenant {
    lanes: [Lane; CLASSES],
    /// By class: its place among the tenants that wait.
    places: [Option<Key>; CLASSES],
}

/// The smaller goes first. Equal counters are common (who joins is lifted to the smallest): then who holds fewer seats,
/// then who was served longer ago, so that a newcomer precedes those that are being served; then who waits for longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    counter: u64,
    seats: usize,
    served: Micros,
    /// Its oldest request of the class.
    order: Order,
}

/// A class as a whole.
#[derive(Debug, Default)]
struct Class {
    ready: BTreeSet<Key>,
    /// Its requests with the service clock at their arrival.
    arrivals: BTreeMap<Order, Micros>,
    /// The service clock when one of its requests last had a turn.
    last_turn: Micros,
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
    tenants: HashMap<Arc<str>, Tenant>,
    /// Whose place a key is, by its oldest request.
    owners: HashMap<Order, Arc<str>>,
    classes: [Class; CLASSES],
}

impl Lanes {
    /// `aging` of [`Micros`]' maximum is none.
    pub fn new(aging: Micros) -> Lanes {
        Lanes { aging, tenants: HashMap::new(), owners: HashMap::new(), classes: Default::default() }
    }

    /// Whether requests of this class wait.
    pub fn has(&self, class: usize) -> bool {
        !self.classes[class].ready.is_empty()
    }

    pub fn insert(&mut self, tenant: &Arc<str>, ticket: Ticket, account: Account) {
        let lane = &mut self.tenants.entry(tenant.clone()).or_default().lanes[ticket.class];
        lane.arrivals.insert(ticket.order, ticket.came);
        lane.sizes.insert((ticket.tokens, ticket.order));
        lane.times.insert((ticket.arrived, ticket.order), ticket.tokens);
        lane.buckets.insert((ticket.bucket, ticket.order));
        self.classes[ticket.class].arrivals.insert(ticket.order, ticket.came);
        self.owners.insert(ticket.order, tenant.clone());
        self.place(tenant, account);
    }

    pub fn remove(&mut self, tenant: &Arc<str>, ticket: Ticket, account: Account) {
        let lane = &mut self.tenants.get_mut(tenant).expect("its tenant has lanes").lanes[ticket.class];
        lane.arrivals.remove(&ticket.order);
        lane.sizes.remove(&(ticket.tokens, ticket.order));
        lane.times.remove(&(ticket.arrived, ticket.order));
        lane.buckets.remove(&(ticket.bucket, ticket.order));
        self.classes[ticket.class].arrivals.remove(&ticket.order);
        self.owners.remove(&ticket.order);
        self.place(tenant, account);
    }

    /// A request has its turn, while it is still in its lane.
    pub fn turn(&mut self, tenant: &Arc<str>, ticket: Ticket, served: Micros) {
        self.classes[ticket.class].last_turn = served;
        let lane = &mut self.tenants.get_mut(tenant).expect("its tenant has lanes").lanes[ticket.class];
        if lane.arrivals.first_key_value().is_some_and(|(oldest, _)| *oldest == ticket.order) {
            lane.oldest_turn = served;
        }
    }

    /// Puts the tenant where it belongs now: after a change of its lanes or of its account.
    pub fn place(&mut self, name: &Arc<str>, account: Account) {
        let Some(tenant) = self.tenants.get_mut(name) else { return };
        let Account { counter, seats, served, .. } = account;
        for ((lane, place), class) in tenant.lanes.iter().zip(&mut tenant.places).zip(&mut self.classes) {
            let oldest = lane.arrivals.first_key_value();
            let key = oldest.map(|(order, _)| Key { counter, seats, served, order: *order });
            if *place != key {
                place.map(|old| class.ready.remove(&old));
                key.map(|new| class.ready.insert(new));
                *place = key;
            }
        }
        if tenant.places.iter().all(Option::is_none) {
            self.tenants.remove(name);
        }
    }

    /// The next to get a seat. A class that was passed over for too long goes first. A tenant with `cap` seats or more is passed over while another waits in its class. Where promises
    /// give the order, of the classes below high those that can still be kept go before all others.
    pub fn next(&self, choice: &Choice) -> Option<Next> {
        let overdue = self.overdue(choice).and_then(|class| self.of_class(class, choice, LaneOrder::Arrival));
        let order = overdue.or_else(|| self.preferred(choice))?;
        Some(Next { order, overdue: overdue.is_some() })
    }

    /// The first by class and by the order of the policy.
    fn preferred(&self, choice: &Choice) -> Option<Order> {
        let classes = || (0..CLASSES).filter(|&class| choice.open[class] && self.has(class));
        if choice.order == LaneOrder::Promise {
            let kept = classes().find_map(|class| {
                let late =
                    || self.of_class(class, choice, LaneOrder::Arrival).filter(|_| class <= Priority::High.index());
                self.of_class(class, choice, LaneOrder::Promise).or_else(late)
            });
            return kept.or_else(|| classes().find_map(|class| self.of_class(class, choice, LaneOrder::Arrival)));
        }
        classes().find_map(|class| self.of_class(class, choice, choice.order))
    }

    /// The class that was passed over for too long; of several the one whose turn was due first.
    fn overdue(&self, choice: &Choice) -> Option<usize> {
        let due = |class: usize| {
            let (order, came) = self.classes[class].arrivals.first_key_value()?;
            let due = self.due(class, *came, choice.order);
            (choice.open[class] && choice.admits(class, *order) && due <= choice.served).then_some((due, class))
        };
        (1..BATCH).filter_map(due).min().map(|(_, class)| class)
    }

    /// The service clock when a class has a turn whose oldest request came then.
    fn due(&self, class: usize, came: Micros, order: LaneOrder) -> Micros {
        let bound = self.turns(order).0.saturating_mul(class as u64);
        Micros(self.classes[class].last_turn.max(came).0.saturating_add(bound))
    }

    /// Service to others after which a class has a turn, times its rank.
    pub fn turns(&self, order: LaneOrder) -> Micros {
        let patience = if order == LaneOrder::Promise { PATIENCE } else { 1 };
        Micros(self.aging.0.saturating_mul(patience))
    }

    /// By class: what is left of that time, as if one of it came now where none waits.
    pub fn due_in(&self, served: Micros, order: LaneOrder) -> [Micros; CLASSES] {
        std::array::from_fn(|class| {
            let oldest = self.classes[class].arrivals.first_key_value().map_or(served, |(_, came)| *came);
            self.due(class, oldest, order).since(served)
        })
    }

    fn of_class(&self, class: usize, choice: &Choice, order: LaneOrder) -> Option<Order> {
        let owner = &self.owners[&self.first(class, choice.cap)?.order];
        let lane = &self.tenants[owner].lanes[class];
        let (&oldest, came) = lane.arrivals.first_key_value()?;
        let passed_over = choice.served.since(lane.oldest_turn.max(*came)).0;
        let impatient = order == LaneOrder::Shortest && passed_over >= self.aging.0.saturating_mul(PATIENCE);
        let admits = |order: &Order| choice.admits(class, *order);
        match if impatient { LaneOrder::Arrival } else { order } {
            LaneOrder::Arrival => Some(oldest).filter(admits),
            LaneOrder::Shortest => lane.sizes.iter().map(|(_, order)| *order).find(admits),
            LaneOrder::Promise => {
                // A class has one promise, so the earliest is the oldest request's whose time has not passed.
                let promise = choice.slo.promise(Priority::ALL[class])?;
                let since = choice.now.since(promise.ttft);
                let mut kept = lane.times.range((since, 0)..).filter(|((arrived, _), tokens)| {
                    choice.keeps(**tokens, choice.slo.promised(Priority::ALL[class], *arrived))
                });
                kept.next().map(|((_, order), _)| *order)
            }
        }
    }

    fn first(&self, class: usize, cap: usize) -> Option<Key> {
        let tenants = &self.classes[class].ready;
        tenants.iter().find(|key| key.seats < cap).or(tenants.first()).copied()
    }

    /// The oldest of the tenant's requests of this class and bucket.
    pub fn oldest_of(&self, tenant: &str, class: usize, bucket: Bucket) -> Option<Order> {
        let buckets = &self.tenants.get(tenant)?.lanes[class].buckets;
        buckets.range((bucket, 0)..=(bucket, Order::MAX)).next().map(|(_, order)| *order)
    }

    /// Why a request of this tenant and class would not be next.
    pub fn behind(&self, tenant: &str, class: usize, cap: usize) -> Behind {
        if (0..class).any(|class| self.has(class)) {
            return Behind::MoreUrgent;
        }
        let place = self.tenants.get(tenant).and_then(|tenant| tenant.places[class]);
        match self.first(class, cap) {
            Some(first) if place.is_some_and(|place| place != first) => Behind::OtherTenant,
            _ => Behind::Nobody,
        }
    }
}
