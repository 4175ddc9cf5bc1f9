//! Who has received how much: virtual token counters, after "Fairness in Serving Large Language Models" (VTC; Sheng et
//! al., OSDI 2024), section 4.
//!
//! A tenant's counter grows by the weighted tokens that it is served; the next seat goes to the smallest counter. One that
//! was away is lifted to the smallest counter of those who are here, so that nobody saves up silence for a later flood.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::config::FairnessConfig;

/// Names are the client's own, so their number is bounded: of those who are away, so many are remembered.
const REMEMBERED: usize = 1_024;

#[derive(Clone, Copy, Debug, Default)]
struct Tenant {
    counter: f64,
    queued: usize,
    seats: usize,
    /// Requests of it that were seated, ever.
    seated: u64,
}

impl Tenant {
    fn is_here(&self) -> bool {
        self.queued + self.seats > 0
    }
}

#[derive(Debug, Default)]
pub struct Fairness {
    tenants: BTreeMap<Arc<str>, Tenant>,
    away: usize,
}

impl Fairness {
    /// One more request of the tenant is queued.
    pub fn queued(&mut self, name: &Arc<str>) {
        if !self.tenants.get(name).is_some_and(Tenant::is_here) {
            self.arrives(name);
        }
        self.of(name).queued += 1;
    }

    fn arrives(&mut self, name: &Arc<str>) {
        let here = self.tenants.values().filter(|tenant| tenant.is_here());
        let least = here.map(|tenant| tenant.counter).min_by(f64::total_cmp);
        self.away -= usize::from(self.tenants.contains_key(name));
        let tenant = self.of(name);
        tenant.counter = tenant.counter.max(least.unwrap_or(0.0));
    }

    /// A queued request of it left without a seat.
    pub fn left(&mut self, name: &Arc<str>) {
        let tenant = self.of(name);
        tenant.queued = tenant.queued.saturating_sub(1);
        self.may_go(name);
    }

    /// A queued request of it, with so many prompt tokens, takes a seat.
    pub fn seated(&mut self, name: &Arc<str>, prompt_tokens: usize, config: &FairnessConfig) {
        let tenant = self.of(name);
        tenant.queued = tenant.queued.saturating_sub(1);
        tenant.seats += 1;
        tenant.seated += 1;
        tenant.counter += config.prompt_weight * prompt_tokens as f64;
    }

    pub fn generated(&mut self, name: &Arc<str>, tokens: usize, config: &FairnessConfig) {
        self.of(name).counter += config.output_weight * tokens as f64;
    }

    pub fn stood_up(&mut self, name: &Arc<str>) {
        let tenant = self.of(name);
        tenant.seats = tenant.seats.saturating_sub(1);
        self.may_go(name);
    }

    pub fn counter(&self, name: &str) -> f64 {
        self.tenants.get(name).map_or(0.0, |tenant| tenant.counter)
    }

    /// Requests of it that were seated, ever (while it was remembered).
    pub fn seated_ever(&self, name: &str) -> u64 {
        self.tenants.get(name).map_or(0, |tenant| tenant.seated)
    }

    /// Whether it holds as many of `seats` as it may while others wait.
    pub fn at_cap(&self, name: &str, seats: usize, config: &FairnessConfig) -> bool {
        let cap = ((config.max_seat_share * seats as f64).ceil() as usize).max(1);
        self.tenants.get(name).is_some_and(|tenant| tenant.seats >= cap)
    }

    fn of(&mut self, name: &Arc<str>) -> &mut Tenant {
        self.tenants.entry(name.clone()).or_default()
    }

    /// Forgets, of those who are away, the one with the smallest counter when there are too many: it would be lifted
    /// anyway.
    fn may_go(&mut self, name: &Arc<str>) {
        if self.of(name).is_here() {
            return;
        }
        self.away += 1;
        if self.away > REMEMBERED {
            let away = self.tenants.iter().filter(|(_, tenant)| !tenant.is_here());
            let least = away.min_by(|a, b| a.1.counter.total_cmp(&b.1.counter)).map(|(name, _)| name.clone());
            if let Some(least) = least {
                self.tenants.remove(&least);
                self.away -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_who_was_away_starts_with_the_least_of_those_here_and_keeps_its_debt() {
        let config = FairnessConfig::default();
        let (a, b, c): (Arc<str>, Arc<str>, Arc<str>) = ("a".into(), "b".into(), "c".into());
        let mut fairness = Fairness::default();
        for name in [&a, &b] {
            fairness.queued(name);
            fairness.seated(name, 100, &config);
        }
        fairness.generated(&b, 50, &config);
        assert_eq!((fairness.counter("a"), fairness.counter("b")), (100.0, 300.0), "b was lifted to a");
        fairness.queued(&c);
        assert_eq!(fairness.counter("c"), 100.0, "lifted");
        fairness.stood_up(&b);
        fairness.queued(&b);
        assert_eq!(fairness.counter("b"), 300.0, "not forgiven");
    }

    #[test]
    fn names_do_not_pile_up() {
        let mut fairness = Fairness::default();
        for n in 0..10_000 {
            let name: Arc<str> = format!("tenant {n}").into();
            fairness.queued(&name);
            fairness.left(&name);
        }
        assert_eq!(fairness.tenants.len(), REMEMBERED);
        assert_eq!(fairness.away, REMEMBERED);
    }
}
