//! The requests themselves: lanes by priority and tenant, each in order of arrival, and what finds one in logarithmic time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::bucket::Bucket;
use crate::request::{Priority, Request};
use crate::units::{Micros, SeqId};

/// Where in the queue a request is: its lane, and its number in the order of all arrivals.
pub type LaneId = (Priority, Arc<str>);

#[derive(Debug)]
pub struct Item {
    pub request: Request,
    pub arrived: Micros,
    /// When its group was flushed; `None` while it gathers.
    pub flushed: Option<Micros>,
    /// Seats given out before it was flushed, by class, and of those to its own tenant.
    pub before: Seated,
}

/// Counts of seats given out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seated {
    pub by_class: [u64; 4],
    pub own_tenant: u64,
}

#[derive(Debug, Default)]
pub struct Queue {
    lanes: BTreeMap<LaneId, BTreeMap<u64, Item>>,
    /// Looked up, never walked: its order is random.
    index: HashMap<SeqId, (LaneId, u64)>,
    /// Of those that gather, by priority.
    gathering: [BTreeMap<u64, (SeqId, Micros)>; 4],
    gathering_tokens: usize,
    arrivals: BTreeMap<u64, (SeqId, Micros)>,
    deadlines: BTreeSet<(Micros, SeqId)>,
    depths: [usize; 4],
    tokens: usize,
    next: u64,
}

impl Queue {
    pub fn push(&mut self, request: Request, now: Micros) {
        let (seq, priority) = (request.id(), request.priority());
        let lane = (priority, request.origin().tenant.clone());
        let number = self.next;
        self.next += 1;
        self.tokens += request.prompt().len();
        self.gathering_tokens += request.prompt().len();
        self.depths[priority.index()] += 1;
        self.gathering[priority.index()].insert(number, (seq, now));
        self.arrivals.insert(number, (seq, now));
        self.deadlines.extend(request.deadline().map(|deadline| (deadline, seq)));
        self.index.insert(seq, (lane.clone(), number));
        let item = Item { request, arrived: now, flushed: None, before: Seated::default() };
        self.lanes.entry(lane).or_default().insert(number, item);
    }

    pub fn remove(&mut self, seq: SeqId) -> Option<Item> {
        let (lane, number) = self.index.remove(&seq)?;
        let items = self.lanes.get_mut(&lane)?;
        let item = items.remove(&number)?;
        if items.is_empty() {
            self.lanes.remove(&lane);
        }
        let (class, tokens) = (lane.0.index(), item.request.prompt().len());
        self.tokens -= tokens;
        self.depths[class] -= 1;
        self.arrivals.remove(&number);
        if self.gathering[class].remove(&number).is_some() {
            self.gathering_tokens -= tokens;
        }
        if let Some(deadline) = item.request.deadline() {
            self.deadlines.remove(&(deadline, seq));
        }
        Some(item)
    }

    /// Everything that gathers is a group now. `seated` is what was given out until here, of a tenant's own by name.
    pub fn flush(&mut self, now: Micros, by_class: [u64; 4], own: impl Fn(&str) -> u64) {
        for gathering in &mut self.gathering {
            for (number, (seq, _)) in std::mem::take(gathering) {
                let Some((lane, _)) = self.index.get(&seq) else { continue };
                let own_tenant = own(&lane.1);
                if let Some(item) = self.lanes.get_mut(lane).and_then(|items| items.get_mut(&number)) {
                    item.flushed = Some(now);
                    item.before = Seated { by_class, own_tenant };
                }
            }
        }
        self.gathering_tokens = 0;
    }

    /// The oldest flushed request of each lane: flushed ones stand before those that gather.
    pub fn heads(&self) -> impl Iterator<Item = (&LaneId, u64, &Item)> {
        self.lanes.keys().filter_map(|lane| self.head(lane).map(|(number, item)| (lane, number, item)))
    }

    pub fn head(&self, lane: &LaneId) -> Option<(u64, &Item)> {
        let (number, item) = self.lanes.get(lane)?.first_key_value()?;
        item.flushed.is_some().then_some((*number, item))
    }

    /// The first of the lane's `reach` oldest flushed requests that lies in `bucket` and satisfies `also`.
    pub fn alike(&self, lane: &LaneId, reach: usize, bucket: Bucket, also: impl Fn(&Item) -> bool) -> Option<SeqId> {
        let flushed = self.lanes.get(lane)?.values().take(reach).take_while(|item| item.flushed.is_some());
        let mut alike = flushed.filter(|item| Bucket::of(item.request.estimated_tokens()) == bucket);
        alike.find(|item| also(item)).map(|item| item.request.id())
    }

    /// When the oldest gathering request of a priority came.
    pub fn oldest_gathering(&self, priority: Priority) -> Option<Micros> {
        self.gathering[priority.index()].first_key_value().map(|(_, (_, arrived))| *arrived)
    }

    pub fn gathering(&self) -> usize {
        self.gathering.iter().map(BTreeMap::len).sum()
    }

    pub fn gathering_tokens(&self) -> usize {
        self.gathering_tokens
    }

    /// The oldest request of all, and when it came.
    pub fn oldest(&self) -> Option<(SeqId, Micros)> {
        self.arrivals.first_key_value().map(|(_, oldest)| *oldest)
    }

    pub fn next_deadline(&self) -> Option<(Micros, SeqId)> {
        self.deadlines.first().copied()
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Prompt tokens of all that are queued.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    pub fn depths(&self) -> [usize; 4] {
        self.depths
    }

    /// By priority, tenant and arrival.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.lanes.values().flat_map(BTreeMap::values)
    }
}
