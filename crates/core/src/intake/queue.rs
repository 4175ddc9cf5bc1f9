//! Everything that is queued, by order of arrival, with an index for each question that must be cheap. Pure.
//!
//! A request is here from push until it is taken, cancelled, expired or drained; each of these is O(log n). `HashMap`s
//! are for looking up only, so the same calls have the same results.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::batch::Released;
use super::bucket::Bucket;
use super::config::Config;
use super::fair::Accounts;
use super::lanes::{Behind, Lanes, Order, Ticket};
use super::overtaken::Overtaken;
use crate::report::Wait;
use crate::request::{CLASSES, Priority, Request, RequestError};
use crate::units::{Micros, SeqId};

#[derive(Debug)]
pub(super) struct Queue {
    entries: BTreeMap<Order, Entry>,
    orders: HashMap<SeqId, Order>,
    next_order: Order,
    /// The newest arrival: orders and arrivals grow together, so the oldest entry is the one that has waited longest.
    latest: Micros,
    prompt_tokens: usize,
    /// By the class that was asked for.
    depths: [usize; CLASSES],
    deadlines: BTreeSet<(Micros, Order)>,
    /// By class: what is not flushed.
    gathering: [BTreeSet<Order>; CLASSES],
    gathering_tokens: usize,
    /// What is flushed.
    lanes: Lanes,
    /// Whose turn came, in that order: out of the lanes, their seats counted, but not through the gate.
    called: VecDeque<Order>,
    accounts: Accounts,
    overtaken: Overtaken,
}

#[derive(Debug)]
struct Entry {
    request: Request,
    arrived: Micros,
    /// Index of the class in which it competes.
    class: usize,
    bucket: Bucket,
    /// When; `None` while it gathers.
    flushed: Option<Micros>,
    /// Since its turn came: who had gone before it.
    called: Option<PassedBy>,
}

/// Later arrivals that had their turn earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PassedBy {
    priority: usize,
    fairness: usize,
}

/// Whose turn it is, before the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Applicant {
    /// Of its prompt.
    pub tokens: usize,
    /// Requests that are queued beside it, and their prompt tokens.
    pub behind: usize,
    pub tokens_behind: usize,
}

impl Entry {
    fn tenant(&self) -> &Arc<str> {
        &self.request.origin().tenant
    }

    fn ticket(&self, order: Order) -> Ticket {
        Ticket { order, class: self.class, bucket: self.bucket, arrived: self.arrived }
    }
}

/// How many more requests may be seated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seats {
    /// Of any class but batch, whose seats count as free.
    pub free: usize,
    /// Of all classes together.
    pub idle: usize,
}

/// A queued request as the operator sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queued<'a> {
    pub request: &'a Request,
    pub arrived: Micros,
    /// Why it would not be next, as things stood at the last release.
    pub wait: Wait,
}

impl Queue {
    pub fn new(config: &Config) -> Queue {
        Queue {
            entries: BTreeMap::new(),
            orders: HashMap::new(),
            next_order: 0,
            latest: Micros::ZERO,
            prompt_tokens: 0,
            depths: [0; CLASSES],
            deadlines: BTreeSet::new(),
            gathering: Default::default(),
            gathering_tokens: 0,
            lanes: Lanes::new(config.rise()),
            called: VecDeque::new(),
            accounts: Accounts::default(),
            overtaken: Overtaken::default(),
        }
    }

    /// Classes and buckets anew; what is flushed stays flushed, and counters, seats and arrivals are kept.
    pub fn configure(&mut self, config: &Config) {
        self.lanes = Lanes::new(config.rise());
        self.gathering = Default::default();
        for (order, entry) in &mut self.entries {
            entry.class = config.class(entry.request.priority()).index();
            entry.bucket = config.bucket(&entry.request);
            if entry.called.is_some() {
                continue;
            }
            if entry.flushed.is_some() {
                self.lanes.insert(entry.tenant(), entry.ticket(*order), self.accounts.of(entry.tenant()));
            } else {
                self.gathering[entry.class].insert(*order);
            }
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    pub fn depths(&self) -> [usize; CLASSES] {
        self.depths
    }

    pub fn gathering(&self) -> usize {
        self.gathering.iter().map(BTreeSet::len).sum()
    }

    pub fn gathering_tokens(&self) -> usize {
        self.gathering_tokens
    }

    /// When the oldest that gathers in this class arrived.
    pub fn oldest_gathering(&self, class: Priority) -> Option<Micros> {
        self.gathering[class.index()].first().map(|order| self.entries[order].arrived)
    }

    pub fn push(&mut self, request: Request, now: Micros, config: &Config) {
        let order = self.next_order;
        self.next_order += 1;
        self.latest = self.latest.max(now);
        let class = config.class(request.priority()).index();
        let before = self.orders.insert(request.id(), order);
        assert!(before.is_none(), "{} was queued twice", request.id());
        self.prompt_tokens += request.prompt().len();
        self.depths[request.priority().index()] += 1;
        self.deadlines.extend(request.deadline().map(|deadline| (deadline, order)));
        self.gathering[class].insert(order);
        self.gathering_tokens += request.prompt().len();
        self.accounts.join(&request.origin().tenant);
        let bucket = config.bucket(&request);
        self.entries.insert(order, Entry { request, arrived: self.latest, class, bucket, flushed: None, called: None });
    }

    /// Ends the gathering of all that gathers. What is flushed from here on has the returned order or a later one.
    pub fn flush(&mut self, now: Micros) -> Order {
        let mut first = self.next_order;
        for order in std::mem::take(&mut self.gathering).into_iter().flatten() {
            let entry = self.entries.get_mut(&order).expect("what gathers is queued");
            entry.flushed = Some(now);
            self.lanes.insert(entry.tenant(), entry.ticket(order), self.accounts.of(entry.tenant()));
            first = first.min(order);
        }
        self.gathering_tokens = 0;
        first
    }

    /// How many flushed requests may be given seats, of which only so many are free for batches.
    pub fn takes(&self, seats: Seats) -> usize {
        if self.lanes.has_urgent() || !self.called.is_empty() {
            seats.free
        } else if self.lanes.is_empty() {
            0
        } else {
            seats.idle
        }
    }

    /// Flushed requests in the order of their turn, as many as there are seats; a tenant with `cap` seats yields to others.
    ///
    /// `gate` is asked of each, and the first that it refuses stays, with all behind it. Refusing changes no order: whose turn
    /// has come keeps it, whoever comes later. But for batches, whose turn comes only with a seat.
    pub fn take(
        &mut self,
        seats: Seats,
        cap: usize,
        now: Micros,
        config: &Config,
        mut gate: impl FnMut(Applicant) -> bool,
    ) -> Vec<(Order, Released)> {
        let mut bucket = None;
        self.call(seats.free, cap, now, config, &mut bucket);
        let mut taken = Vec::new();
        while taken.len() < seats.free
            && let Some(&order) = self.called.front()
            && gate(self.applicant(order))
        {
            self.called.pop_front();
            taken.push((order, self.release(order)));
        }
        while taken.len() < seats.idle
            && self.called.is_empty()
            && !self.lanes.has_urgent()
            && let Some(order) = self.next(cap, now, config, &mut bucket)
            && gate(self.applicant(order))
        {
            self.seat(order, now, config);
            taken.push((order, self.release(order)));
        }
        let oldest = self.entries.first_key_value().map_or(self.next_order, |(order, _)| *order);
        self.overtaken.forget_before(oldest);
        taken
    }

    /// Gives turns, to all but batches, until as many are called as there are `seats`.
    fn call(&mut self, seats: usize, cap: usize, now: Micros, config: &Config, bucket: &mut Option<Bucket>) {
        self.lanes.age(now, &self.accounts);
        while self.called.len() < seats
            && self.lanes.has_urgent()
            && let Some(order) = self.next(cap, now, config, bucket)
        {
            self.seat(order, now, config);
            self.called.push_back(order);
        }
    }

    /// Whose turn is next; those that follow the first of a batch are like it, where that makes nobody wait too long.
    fn next(&self, cap: usize, now: Micros, config: &Config, bucket: &mut Option<Bucket>) -> Option<Order> {
        let head = self.lanes.next(cap)?;
        let order = bucket.map_or(head, |bucket| self.alike(head, bucket, now, config));
        bucket.get_or_insert(self.entries[&order].bucket);
        Some(order)
    }

    fn applicant(&self, order: Order) -> Applicant {
        let tokens = self.entries[&order].request.prompt().len();
        Applicant { tokens, behind: self.entries.len() - 1, tokens_behind: self.prompt_tokens - tokens }
    }

    /// The oldest of the head's tenant and class that belongs in the bucket, or the head where it must not yield.
    fn alike(&self, head: Order, bucket: Bucket, now: Micros, config: &Config) -> Order {
        let entry = &self.entries[&head];
        if !config.may_yield_to_bucket(entry.request.priority(), now.since(entry.arrived)) {
            return head;
        }
        self.lanes.oldest_of(entry.tenant(), entry.class, bucket).unwrap_or(head)
    }

    /// Its turn has come: from here on its tenant holds a seat.
    fn seat(&mut self, order: Order, now: Micros, config: &Config) {
        let later = self.overtaken.after(order);
        let entry = self.entries.get_mut(&order).expect("who has a turn is queued");
        let (priority, fairness) = (later[..entry.class].iter().sum(), later[entry.class..].iter().sum());
        entry.called = Some(PassedBy { priority, fairness });
        let entry = &self.entries[&order];
        self.overtaken.record(order, entry.class);
        let charge = config.fairness.prompt_charge(entry.request.prompt().len());
        let weight = entry.request.origin().weight;
        self.accounts.seat(entry.tenant(), weight, entry.request.id(), charge, now);
        self.lanes.remove(entry.tenant(), entry.ticket(order), self.accounts.of(entry.tenant()));
    }

    fn release(&mut self, order: Order) -> Released {
        let entry = self.detach(order);
        let passed_by = entry.called.expect("only who is called leaves");
        Released {
            arrived: entry.arrived,
            flushed: entry.flushed.expect("only flushed requests are in lanes"),
            passed_by_priority: passed_by.priority,
            passed_by_fairness: passed_by.fairness,
            request: entry.request,
        }
    }

    pub fn cancel(&mut self, seq: SeqId) -> bool {
        let Some(&order) = self.orders.get(&seq) else { return false };
        self.remove(order);
        true
    }

    /// Who is overdue, or has queued for too long; each once, with the reason.
    pub fn expire(&mut self, now: Micros, config: &Config) -> Vec<(Request, RequestError)> {
        let mut expired = Vec::new();
        while let Some(&(deadline, order)) = self.deadlines.first()
            && deadline <= now
        {
            let request = self.remove(order);
            let error = request.timed_out();
            expired.push((request, error));
        }
        while let Some((&order, entry)) = self.entries.first_key_value()
            && given_up(entry, config) <= now
        {
            let waited_ms = now.since(entry.arrived).as_millis();
            expired.push((self.remove(order), RequestError::BatchTimeout { waited_ms }));
        }
        expired
    }

    /// The first time at which [`Queue::expire`] has something to say.
    pub fn next_expiry(&self, config: &Config) -> Option<Micros> {
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        let given_up = self.entries.first_key_value().map(|(_, entry)| given_up(entry, config));
        deadline.into_iter().chain(given_up).min()
    }

    /// Everything, oldest first.
    pub fn drain(&mut self) -> Vec<Request> {
        let orders: Vec<Order> = self.entries.keys().copied().collect();
        orders.into_iter().map(|order| self.remove(order)).collect()
    }

    /// A seated sequence generated tokens.
    pub fn generated(&mut self, seq: SeqId, tokens: usize, config: &Config) {
        if let Some(tenant) = self.accounts.charge(seq, config.fairness.output_charge(tokens)) {
            self.lanes.place(&tenant, self.accounts.of(&tenant));
        }
    }

    /// A seat is free again.
    pub fn ended(&mut self, seq: SeqId) {
        if let Some(tenant) = self.accounts.unseat(seq) {
            self.lanes.place(&tenant, self.accounts.of(&tenant));
        }
    }

    /// Oldest first.
    pub fn iter(&self, cap: usize) -> impl Iterator<Item = Queued<'_>> {
        self.entries.values().map(move |entry| {
            if entry.called.is_some() {
                // The gate: the next step's tokens are better spent on others.
                return Queued { request: &entry.request, arrived: entry.arrived, wait: Wait::TokenBudget };
            }
            let wait = match (entry.flushed, self.lanes.behind(entry.tenant(), entry.class, cap)) {
                (None, _) => Wait::FlushTimer,
                (Some(_), Behind::MoreUrgent) => Wait::LowerPriority,
                (Some(_), Behind::OtherTenant) => Wait::FairShare,
                (Some(_), Behind::Nobody) => Wait::Seats,
            };
            Queued { request: &entry.request, arrived: entry.arrived, wait }
        })
    }

    fn remove(&mut self, order: Order) -> Request {
        let entry = self.detach(order);
        if entry.called.is_some() {
            self.called.retain(|other| *other != order);
            self.ended(entry.request.id());
            return entry.request;
        }
        self.accounts.leave(entry.tenant());
        if entry.flushed.is_some() {
            self.lanes.remove(entry.tenant(), entry.ticket(order), self.accounts.of(entry.tenant()));
        } else {
            self.gathering[entry.class].remove(&order);
            self.gathering_tokens -= entry.request.prompt().len();
        }
        entry.request
    }

    /// Takes an entry out of everything but its group or lane and its tenant's account.
    fn detach(&mut self, order: Order) -> Entry {
        let entry = self.entries.remove(&order).expect("it is queued");
        self.orders.remove(&entry.request.id());
        self.prompt_tokens -= entry.request.prompt().len();
        self.depths[entry.request.priority().index()] -= 1;
        entry.request.deadline().map(|deadline| self.deadlines.remove(&(deadline, order)));
        entry
    }
}

fn given_up(entry: &Entry, config: &Config) -> Micros {
    Micros(entry.arrived.0.saturating_add(config.queue_timeout.0))
}
