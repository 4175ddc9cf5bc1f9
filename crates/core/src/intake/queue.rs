//! Everything that is queued, by order of arrival, with an index for each question that must be cheap. Pure.
//!
//! A request is here from push until it is taken, cancelled, expired or drained; each of these is O(log n). `HashMap`s
//! are for looking up only, so the same calls have the same results.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::batch::Released;
use super::bucket::Bucket;
use super::config::Config;
use super::fair::Accounts;
use super::lanes::{Behind, Choice, LaneOrder, Lanes, Next, Order, Ticket};
use super::overtaken::Overtaken;
use crate::report::Wait;
use crate::request::{CLASSES, Priority, Request, RequestError};
use crate::slo::Slo;
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
    accounts: Accounts,
    overtaken: Overtaken,
}

#[derive(Debug)]
struct Entry {
    request: Request,
    arrived: Micros,
    /// The engine's service clock when it came.
    came: Micros,
    /// Index of the class in which it competes.
    class: usize,
    bucket: Bucket,
    /// When; `None` while it gathers.
    flushed: Option<Micros>,
    /// Tokens of its prompt that must be computed, as far as that was known when it came.
    to_compute: usize,
}

/// Whose turn it is, before the gate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applicant<'a> {
    pub request: &'a Request,
    /// Index of the class in which it competes.
    pub class: usize,
    /// Its class was passed over for as long as it may be.
    pub overdue: bool,
    /// Requests that are queued beside it, and their prompt tokens.
    pub behind: usize,
    pub tokens_behind: usize,
}

impl Entry {
    fn tenant(&self) -> &Arc<str> {
        &self.request.origin().tenant
    }

    fn ticket(&self, order: Order) -> Ticket {
        Ticket {
            order,
            class: self.class,
            bucket: self.bucket,
            came: self.came,
            tokens: self.request.prompt().len(),
            arrived: self.arrived,
        }
    }
}

/// What a release may hand out, and in which order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub now: Micros,
    /// The engine's service clock.
    pub served: Micros,
    /// By class: how many more requests of this class or a more urgent one may be seated.
    pub seats: [usize; CLASSES],
    /// At most so many requests leave.
    pub most: usize,
    /// Seats from which a tenant yields to others.
    pub cap: usize,
    pub order: LaneOrder,
    /// Of classes below high only requests that came before this one.
    pub door: Option<Order>,
    /// Prompt tokens that the next step has room for, and how long it then takes.
    pub step_tokens: usize,
    pub full_step: Micros,
    pub slo: Slo,
}

impl Terms {
    /// The first class of which nobody goes before a request of `class` whom the gate refused. Where promises give the order, those
    /// below high are one line: who is behind in it has lost its promise, or can wait.
    fn behind(&self, class: usize) -> usize {
        if self.order == LaneOrder::Promise { class.min(Priority::Normal.index()) } else { class }
    }
}

/// The clocks when a request comes: the time, and how long the engine has computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    pub now: Micros,
    pub served: Micros,
}

/// A queued request as far as it keeps others waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InLine {
    /// In which it competes.
    pub class: Priority,
    pub prompt_tokens: usize,
    /// Those of them that must be computed, as far as that was known when it came.
    pub to_compute: usize,
    pub max_tokens: usize,
    /// It is not flushed.
    pub gathers: bool,
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

    /// Service to others after which a class has a turn, times its rank.
    pub fn turns(&self, order: LaneOrder) -> Micros {
        self.lanes.turns(order)
    }

    /// By class: how long the engine will compute for others before the class has a turn whoever else waits.
    pub fn due_in(&self, served: Micros, order: LaneOrder) -> [Micros; CLASSES] {
        self.lanes.due_in(served, order)
    }

    /// In the order of arrival.
    pub fn in_line(&self) -> impl Iterator<Item = InLine> {
        self.entries.values().map(|entry| InLine {
            class: Priority::ALL[entry.class],
            prompt_tokens: entry.request.prompt().len(),
            to_compute: entry.to_compute,
            max_tokens: entry.request.max_tokens() as usize,
            gathers: entry.flushed.is_none(),
        })
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

    pub fn push(&mut self, request: Request, to_compute: usize, clocks: Clocks, config: &Config) {
        let Clocks { now, served: came } = clocks;
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
        let arrived = self.latest;
        self.entries.insert(order, Entry { request, arrived, came, class, bucket, flushed: None, to_compute });
    }

    /// The order that the next request will have.
    pub fn next_order(&self) -> Order {
        self.next_order
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

    /// Whether some flushed request could be given one of these seats.
    pub fn takes(&self, seats: &[usize; CLASSES]) -> bool {
        (0..CLASSES).any(|class| seats[class] > 0 && self.lanes.has(class))
    }

    /// Flushed requests in the order of their turn, as many as there are seats; a tenant with `cap` seats yields to others.
    ///
    /// `gate` is asked of each, and the first that it refuses stays, with all of its class and below: who is next is asked anew
    /// at the next release. More urgent ones do not wait behind it.
    pub fn take(
        &mut self,
        terms: &Terms,
        config: &Config,
        mut gate: impl FnMut(Applicant) -> bool,
    ) -> Vec<(Order, Released)> {
        let (mut bucket, mut taken) = (None, Vec::new());
        let mut seats = terms.seats;
        while taken.len() < terms.most
            && let Some(next) = self.next(terms, &seats, config, &mut bucket)
        {
            let Next { order, .. } = next;
            let applicant = self.applicant(next);
            let class = applicant.class;
            if !gate(applicant) {
                seats[terms.behind(class)..].fill(0);
                continue;
            }
            // Who may take the seat of the newcomer as well is told so at the next release.
            seats.iter_mut().for_each(|seats| *seats = seats.saturating_sub(1));
            taken.push((order, self.seat(order, terms, config)));
        }
        let oldest = self.entries.first_key_value().map_or(self.next_order, |(order, _)| *order);
        self.overtaken.forget_before(oldest);
        taken
    }

    /// Whose turn is next; those that follow the first of a batch are like it, where that makes nobody wait too long.
    fn next(
        &self,
        terms: &Terms,
        seats: &[usize; CLASSES],
        config: &Config,
        bucket: &mut Option<Bucket>,
    ) -> Option<Next> {
        let open = seats.map(|seats| seats > 0);
        let Terms { now, served, cap, order, door, step_tokens, full_step, slo, .. } = *terms;
        let choice = Choice { open, cap, now, served, order, door, step_tokens, full_step, slo };
        let Next { order: head, overdue } = self.lanes.next(&choice)?;
        let by_arrival = terms.order == LaneOrder::Arrival;
        let alike = bucket.filter(|_| by_arrival).map(|bucket| self.alike(head, bucket, terms.now, config));
        let order = alike.unwrap_or(head);
        bucket.get_or_insert(self.entries[&order].bucket);
        Some(Next { order, overdue })
    }

    fn applicant(&self, Next { order, overdue }: Next) -> Applicant<'_> {
        let Entry { request, class, .. } = &self.entries[&order];
        let tokens_behind = self.prompt_tokens - request.prompt().len();
        Applicant { request, class: *class, overdue, behind: self.entries.len() - 1, tokens_behind }
    }

    /// The oldest of the head's tenant and class that belongs in the bucket, or the head where it must not yield.
    fn alike(&self, head: Order, bucket: Bucket, now: Micros, config: &Config) -> Order {
        let entry = &self.entries[&head];
        if !config.may_yield_to_bucket(entry.request.priority(), now.since(entry.arrived)) {
            return head;
        }
        self.lanes.oldest_of(entry.tenant(), entry.class, bucket).unwrap_or(head)
    }

    /// Its turn has come: it leaves, and from here on its tenant holds a seat.
    fn seat(&mut self, order: Order, terms: &Terms, config: &Config) -> Released {
        let later = self.overtaken.after(order);
        let entry = &self.entries[&order];
        let (tenant, ticket) = (entry.tenant().clone(), entry.ticket(order));
        let (seq, weight) = (entry.request.id(), entry.request.origin().weight);
        let charge = config.fairness.prompt_charge(ticket.tokens);
        self.overtaken.record(order, ticket.class);
        self.lanes.turn(&tenant, ticket, terms.served);
        self.accounts.seat(&tenant, weight, seq, charge, terms.now);
        self.lanes.remove(&tenant, ticket, self.accounts.of(&tenant));
        let entry = self.detach(order);
        Released {
            arrived: entry.arrived,
            flushed: entry.flushed.expect("only flushed requests are in lanes"),
            passed_by_priority: later[..ticket.class].iter().sum(),
            passed_by_fairness: later[ticket.class..].iter().sum(),
            overtaken_by: later,
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
