//! Fair share: who has received how much. Pure.
//!
//! Virtual token counters after Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024): each tenant's
//! counter grows by the weighted tokens it is served over its own weight, prompts when they get a seat and output as it comes, and the
//! smallest counter goes first. A tenant that starts to queue is lifted to the smallest counter of those that queue (or,
//! if none does, to that of the last one that did), so that nobody saves up by being away.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::request::Weight;
use crate::units::{Micros, SeqId};

/// Tenants with a counter above the floor that are remembered while they neither queue nor run. Beyond it the ones with
/// least to pay back are forgotten, so that names made up by clients cost bounded memory.
const MAX_AWAY: usize = 10_000;

/// How seats are shared between tenants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FairnessConfig {
    /// Part of all seats, above 0 and at most 1, beyond which a tenant is passed over while others of its class wait.
    pub max_seat_share: f64,
    /// What a prompt token counts.
    pub prompt_weight: f64,
    /// What a generated token counts: it occupies a whole step, where a prompt's tokens share one.
    pub output_weight: f64,
}

impl Default for FairnessConfig {
    fn default() -> FairnessConfig {
        FairnessConfig { max_seat_share: 0.5, prompt_weight: 1.0, output_weight: 2.0 }
    }
}

impl FairnessConfig {
    /// Seats that a tenant may hold while others wait: at least one.
    pub fn seat_cap(&self, seats: usize) -> usize {
        ((self.max_seat_share * seats as f64).ceil() as usize).max(1)
    }

    pub fn prompt_charge(&self, tokens: usize) -> u64 {
        charge(self.prompt_weight, tokens)
    }

    pub fn output_charge(&self, tokens: usize) -> u64 {
        charge(self.output_weight, tokens)
    }
}

/// Thousandths of a weighted token: whole numbers order totally and add up the same on every machine.
fn charge(weight: f64, tokens: usize) -> u64 {
    ((weight * 1_000.0).round() as u64).saturating_mul(tokens as u64)
}

/// Where a tenant stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    /// Service received, in thousandths of weighted tokens.
    pub counter: u64,
    /// Sequences released and not ended.
    pub seats: usize,
    /// When it was last given a seat; zero if it was not since it was last away.
    pub served: Micros,
    /// Sequences in the intake.
    queued: usize,
}

impl Account {
    /// It neither queues nor runs.
    fn is_away(&self) -> bool {
        self.queued == 0 && self.seats == 0
    }
}

/// The accounts of all tenants that queue, run or have something to pay back.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    accounts: HashMap<Arc<str>, Account>,
    /// Whose seat it is, and what its share weighs.
    seated: HashMap<SeqId, (Arc<str>, Weight)>,
    /// Counters of the tenants that queue, and how many have each.
    queueing: BTreeMap<u64, usize>,
    /// Tenants that neither queue nor run, by counter.
    away: BTreeSet<(u64, Arc<str>)>,
    /// The smallest counter among those that queue, as last seen. Never falls: who joins is lifted to it.
    floor: u64,
    /// Who left the queue empty.
    last: Option<Arc<str>>,
}

impl Accounts {
    pub fn of(&self, tenant: &str) -> Account {
        self.accounts.get(tenant).copied().unwrap_or_default()
    }

    /// One more of its sequences queues.
    pub fn join(&mut self, tenant: &Arc<str>) {
        let floor = match &self.last {
            Some(last) if self.queueing.is_empty() => self.floor.max(self.of(last).counter),
            _ => self.floor,
        };
        self.change(tenant, |account| {
            if account.queued == 0 {
                account.counter = account.counter.max(floor);
            }
            account.queued += 1;
        });
    }

    /// One of its sequences left the queue without a seat.
    pub fn leave(&mut self, tenant: &Arc<str>) {
        self.change(tenant, |account| account.queued -= 1);
    }

    /// One of its sequences left the queue for a seat.
    pub fn seat(&mut self, tenant: &Arc<str>, weight: Weight, seq: SeqId, charge: u64, now: Micros) {
        self.change(tenant, |account| {
            account.counter = account.counter.saturating_add(weight.of(charge));
            account.seats += 1;
            account.queued -= 1;
            account.served = now;
        });
        let before = self.seated.insert(seq, (tenant.clone(), weight));
        assert!(before.is_none(), "{seq} was given two seats");
    }

    /// A seated sequence received service. Its tenant, if it has a seat.
    pub fn charge(&mut self, seq: SeqId, charge: u64) -> Option<Arc<str>> {
        let (tenant, weight) = self.seated.get(&seq)?.clone();
        self.change(&tenant, |account| account.counter = account.counter.saturating_add(weight.of(charge)));
        Some(tenant)
    }

    /// Its seat is free. Its tenant, if it had one.
    pub fn unseat(&mut self, seq: SeqId) -> Option<Arc<str>> {
        let (tenant, _) = self.seated.remove(&seq)?;
        self.change(&tenant, |account| account.seats -= 1);
        Some(tenant)
    }

    /// The one way to change an account: keeps the indices, the floor and the bound on memory.
    fn change(&mut self, tenant: &Arc<str>, change: impl FnOnce(&mut Account)) {
        let account = self.accounts.entry(tenant.clone()).or_default();
        let before = *account;
        change(account);
        if account.is_away() {
            account.served = Micros::ZERO;
        }
        let after = *account;
        self.index(tenant, &before, false);
        self.index(tenant, &after, true);
        if before.queued > 0 && self.queueing.is_empty() {
            self.last = Some(tenant.clone());
        }
        if let Some((&smallest, _)) = self.queueing.first_key_value() {
            self.floor = self.floor.max(smallest);
        }
        self.forget();
    }

    fn index(&mut self, tenant: &Arc<str>, account: &Account, add: bool) {
        if account.queued > 0 {
            let tenants = self.queueing.entry(account.counter).or_default();
            *tenants = if add { *tenants + 1 } else { *tenants - 1 };
            if *tenants == 0 {
                self.queueing.remove(&account.counter);
            }
        } else if account.is_away() {
            let key = (account.counter, tenant.clone());
            let changed = if add { self.away.insert(key) } else { self.away.remove(&key) };
            debug_assert!(changed || !add, "a tenant is away once");
        }
    }

    /// Who is away with a counter at the floor would come back to the floor: forgetting it changes nothing.
    fn forget(&mut self) {
        while let Some((counter, _)) = self.away.first() {
            if *counter > self.floor && self.away.len() <= MAX_AWAY {
                return;
            }
            let (_, tenant) = self.away.pop_first().expect("it is first");
            self.accounts.remove(&tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(tenant: &str) -> Arc<str> {
        tenant.into()
    }

    fn serve(accounts: &mut Accounts, tenant: &str, seq: u64, charge: u64) {
        accounts.seat(&name(tenant), Weight::default(), SeqId(seq), charge, Micros(1));
    }

    #[test]
    fn who_comes_back_is_lifted_to_the_smallest_of_those_that_queue() {
        let mut accounts = Accounts::default();
        for _ in 0..3 {
            accounts.join(&name("a"));
        }
        accounts.join(&name("b"));
        serve(&mut accounts, "a", 1, 500);
        serve(&mut accounts, "b", 2, 100);
        // Only a queues, with 500.
        accounts.join(&name("c"));
        assert_eq!(accounts.of("c").counter, 500);
        accounts.join(&name("b"));
        assert_eq!(accounts.of("b").counter, 500);
        accounts.charge(SeqId(2), 70);
        assert_eq!((accounts.of("b").counter, accounts.of("b").seats), (570, 1));
    }

    #[test]
    fn who_weighs_more_pays_less_for_the_same() {
        let mut accounts = Accounts::default();
        accounts.join(&name("a"));
        accounts.seat(&name("a"), Weight::from_thousandths(2_500).unwrap(), SeqId(1), 100, Micros(1));
        assert_eq!(accounts.of("a").counter, 40);
        accounts.charge(SeqId(1), 50);
        assert_eq!(accounts.of("a").counter, 60);
    }

    #[test]
    fn an_empty_queue_is_joined_at_the_counter_of_the_last_who_left() {
        let mut accounts = Accounts::default();
        accounts.join(&name("a"));
        serve(&mut accounts, "a", 1, 10);
        accounts.charge(SeqId(1), 90);
        accounts.join(&name("b"));
        assert_eq!(accounts.of("b").counter, 100, "nobody waited while a was alone, so b has nothing to claim");
    }

    #[test]
    fn whoever_is_away_with_nothing_to_pay_back_is_forgotten() {
        let mut accounts = Accounts::default();
        accounts.join(&name("flood"));
        for seq in 0..3 * MAX_AWAY as u64 {
            let tenant = format!("t{seq}");
            accounts.join(&name(&tenant));
            serve(&mut accounts, &tenant, seq, 1);
            accounts.unseat(SeqId(seq));
        }
        assert_eq!((accounts.accounts.len(), accounts.away.len()), (MAX_AWAY + 1, MAX_AWAY));
        serve(&mut accounts, "flood", u64::MAX, 5);
        accounts.join(&name("next"));
        assert_eq!(accounts.of("next").counter, 5);
        assert_eq!((accounts.accounts.len(), accounts.away.len()), (2, 0));
    }

    #[test]
    fn charges_are_whole_thousandths_and_the_cap_is_at_least_a_seat() {
        let config = FairnessConfig { max_seat_share: 0.3, prompt_weight: 0.0015, output_weight: 1e9 };
        assert_eq!((config.prompt_charge(7), config.output_charge(usize::MAX)), (14, u64::MAX));
        assert_eq!([0, 1, 3, 4, 10].map(|seats| config.seat_cap(seats)), [1, 1, 1, 2, 3]);
    }
}
