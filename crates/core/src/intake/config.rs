//! What an operator may set, live. Pure.

use super::bucket::Bucket;
use super::fair::FairnessConfig;
use super::limits::Capacity;
use super::strategy::FlushConfig;
use crate::request::{Priority, Request};
use crate::units::Micros;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    pub capacity: Capacity,
    pub flush: FlushConfig,
    /// By [`Priority::index`]: a request gathers no longer than this, whatever the strategy says. Batches as low ones.
    pub max_waits: [Micros; 4],
    /// A class that waits gets a turn after the engine has computed for others this long, times its rank.
    pub aging: Micros,
    pub fairness: FairnessConfig,
    /// Who has queued for this long is given up: no batch could take it.
    pub queue_timeout: Micros,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            capacity: Capacity::default(),
            flush: FlushConfig::default(),
            max_waits: [5, 20, 50, 100].map(Micros::from_millis),
            aging: Micros::from_millis(1_000),
            fairness: FairnessConfig::default(),
            queue_timeout: Micros::from_millis(600_000),
        }
    }
}

impl Config {
    /// The first parameter that makes no sense, by the name under which users know it, and why. An intake survives a
    /// configuration that fails here (nothing divides by zero), but does not do what anybody wants.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let FlushConfig { min_batch_size, max_batch_size, min_wait, max_wait, .. } = self.flush;
        let (low, high) = (self.flush.queue_depth_low, self.flush.queue_depth_high);
        let FairnessConfig { max_seat_share, prompt_weight, output_weight } = self.fairness;
        let weight = |weight: f64| (0.0..=1_000.0).contains(&weight);
        let rules = [
            (self.capacity.requests > 0, "queue_capacity", "must be at least 1".to_owned()),
            (self.capacity.tokens > 0, "queue_token_capacity", "must be at least 1".to_owned()),
            (min_batch_size > 0, "min_batch_size", "must be at least 1".to_owned()),
            (
                max_batch_size >= min_batch_size,
                "max_batch_size",
                format!("must be at least min_batch_size ({min_batch_size}), got {max_batch_size}"),
            ),
            (
                max_wait >= min_wait,
                "max_wait_ms",
                format!("must be at least min_wait_ms ({}), got {}", min_wait.as_millis(), max_wait.as_millis()),
            ),
            (
                high >= low,
                "queue_depth_high_threshold",
                format!("must be at least queue_depth_low_threshold ({low}), got {high}"),
            ),
            (self.flush.target_p99 > Micros::ZERO, "target_p99_ms", "must be above 0".to_owned()),
            (self.aging > Micros::ZERO, "aging_ms", "must be above 0".to_owned()),
            (self.queue_timeout > Micros::ZERO, "queue_timeout_ms", "must be above 0".to_owned()),
            (
                max_seat_share > 0.0 && max_seat_share <= 1.0,
                "fair_share_max",
                format!("must be above 0 and at most 1, got {max_seat_share}"),
            ),
            (weight(prompt_weight), "prompt_weight", format!("must be between 0 and 1000, got {prompt_weight}")),
            (weight(output_weight), "output_weight", format!("must be between 0 and 1000, got {output_weight}")),
        ];
        rules.into_iter().find(|(holds, ..)| !holds).map_or(Ok(()), |(_, param, reason)| Err((param, reason)))
    }

    /// The starvation bound: a flushed request of this class, with `ahead` older ones of its class and tenant, has its turn
    /// before the engine has computed for longer than this since it came, whatever else arrives, as long as seats become free
    /// for its class and no other tenant queues in it; beyond it come the service of one step and what the release before
    /// was given. With priorities each turn of the class comes at the latest after class × `aging` of service to others.
    ///
    /// Without priorities there is one class, which is served in the order of arrival, and a batch has no bound: whoever comes
    /// goes before it. A policy that does not serve in the order of arrival keeps the oldest of a lane waiting for no longer
    /// than four times `aging` of service.
    pub fn served_within(&self, priority: Priority, ahead: usize) -> Micros {
        if priority == Priority::Batch {
            return Micros(u64::MAX);
        }
        let rank = if self.flush.priorities { priority.index() as u64 } else { 0 };
        Micros(self.aging.0.saturating_mul(rank).saturating_mul(ahead as u64 + 1))
    }

    /// The class that a request competes in. A batch yields to everyone also where priorities are not honoured.
    pub(super) fn class(&self, priority: Priority) -> Priority {
        if self.flush.priorities || priority == Priority::Batch { priority } else { Priority::Normal }
    }

    /// How long a request may gather.
    pub fn max_wait(&self, priority: Priority) -> Micros {
        self.max_waits[self.class(priority).min(Priority::Low).index()]
    }

    /// Service to others after which a class has a turn, times its rank.
    pub(super) fn rise(&self) -> Micros {
        if self.flush.priorities { self.aging } else { Micros(u64::MAX) }
    }

    /// Requests of the same bucket may share a batch out of turn.
    pub(super) fn bucket(&self, request: &Request) -> Bucket {
        Bucket::of(if self.flush.bucketing { request.estimated_tokens() } else { 0 })
    }

    /// Whether a request that has waited this long may see a younger one of its tenant and class go first because its
    /// size fits. Not once it is due, and never a critical one: so buckets keep nobody waiting for longer than its class
    /// may gather.
    pub(super) fn may_yield_to_bucket(&self, priority: Priority, waited: Micros) -> bool {
        let class = self.class(priority);
        class != Priority::Critical && waited < self.max_wait(priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Config)) -> &'static str {
        let mut config = Config::default();
        change(&mut config);
        config.check().expect_err("a refusal").0
    }

    #[test]
    fn senseless_parameters_are_named() {
        assert_eq!(Config::default().check(), Ok(()));
        assert_eq!(refused(|c| c.capacity.requests = 0), "queue_capacity");
        assert_eq!(refused(|c| c.capacity.tokens = 0), "queue_token_capacity");
        assert_eq!(refused(|c| c.flush.min_batch_size = 0), "min_batch_size");
        assert_eq!(refused(|c| c.flush.min_batch_size = 33), "max_batch_size");
        assert_eq!(refused(|c| c.flush.max_batch_size = 0), "max_batch_size");
        assert_eq!(refused(|c| c.flush.min_wait = Micros(100_001)), "max_wait_ms");
        assert_eq!(refused(|c| c.flush.queue_depth_low = 101), "queue_depth_high_threshold");
        assert_eq!(refused(|c| c.flush.target_p99 = Micros::ZERO), "target_p99_ms");
        assert_eq!(refused(|c| c.aging = Micros::ZERO), "aging_ms");
        assert_eq!(refused(|c| c.queue_timeout = Micros::ZERO), "queue_timeout_ms");
        for share in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(|c| c.fairness.max_seat_share = share), "fair_share_max");
        }
        for weight in [-1.0, 1_001.0, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(|c| c.fairness.prompt_weight = weight), "prompt_weight");
            assert_eq!(refused(|c| c.fairness.output_weight = weight), "output_weight");
        }
    }
}
