//! What an operator may set about the queue.

use super::limits::Capacity;
use super::strategy::StrategyKind;
use crate::request::Priority;
use crate::units::Micros;

/// The queue's configuration. All of it may change while requests are queued.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub capacity: Capacity,
    pub flush: FlushConfig,
    /// By [`Priority::index`]: released by then whatever the strategy says.
    pub max_waits: [Micros; 4],
    /// A queued request rises one priority per so much waiting.
    pub aging: Micros,
    pub fairness: FairnessConfig,
    /// A request that no batch took by then ends with an error of its own.
    pub queue_timeout: Micros,
}

/// When groups flow, and how they are filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlushConfig {
    pub strategy: StrategyKind,
    /// Smallest group that is released before its timer.
    pub min_batch_size: usize,
    /// Largest group that is released at once.
    pub max_batch_size: usize,
    pub min_wait: Micros,
    pub max_wait: Micros,
    /// Queue depth at or below which `max_wait` holds, and at or above which `min_wait` does.
    pub queue_depth_low: usize,
    pub queue_depth_high: usize,
    /// p99 TTFT that `latency_aware` aims at.
    pub target_p99: Micros,
    /// An idle engine takes what is there at once.
    pub idle_release: bool,
    /// Groups are filled with requests of like length.
    pub bucketing: bool,
    /// Without, all requests are of one class.
    pub priorities: bool,
}

/// How seats are shared between tenants of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FairnessConfig {
    /// Share of all seats that one tenant may hold while others wait.
    pub max_seat_share: f64,
    /// What a token counts: those of prompts are computed many at a time, those of completions one by one.
    pub prompt_weight: f64,
    pub output_weight: f64,
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

impl Default for FlushConfig {
    fn default() -> FlushConfig {
        FlushConfig {
            strategy: StrategyKind::default(),
            min_batch_size: 1,
            max_batch_size: 32,
            min_wait: Micros::from_millis(5),
            max_wait: Micros::from_millis(100),
            queue_depth_low: 10,
            queue_depth_high: 100,
            target_p99: Micros::from_millis(500),
            idle_release: true,
            bucketing: true,
            priorities: true,
        }
    }
}

impl Default for FairnessConfig {
    /// The weights of VTC's evaluation (Sheng et al., OSDI 2024).
    fn default() -> FairnessConfig {
        FairnessConfig { max_seat_share: 0.5, prompt_weight: 1.0, output_weight: 2.0 }
    }
}

impl Config {
    /// The parameter that contradicts another, and how.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let flush = &self.flush;
        if flush.min_batch_size == 0 || flush.min_batch_size > flush.max_batch_size {
            let message =
                format!("{} must be from 1 to max_batch_size ({})", flush.min_batch_size, flush.max_batch_size);
            return Err(("min_batch_size", message));
        }
        if flush.min_wait > flush.max_wait {
            let (min, max) = (flush.min_wait.as_millis(), flush.max_wait.as_millis());
            return Err(("min_wait_ms", format!("{min} must be at most max_wait_ms ({max})")));
        }
        if flush.queue_depth_low > flush.queue_depth_high {
            let (low, high) = (flush.queue_depth_low, flush.queue_depth_high);
            let message = format!("{low} must be at most queue_depth_high_threshold ({high})");
            return Err(("queue_depth_low_threshold", message));
        }
        if !(self.fairness.max_seat_share > 0.0 && self.fairness.max_seat_share <= 1.0) {
            return Err(("fair_share_max", "must be above 0 and at most 1".into()));
        }
        if self.aging == Micros::ZERO {
            return Err(("aging_ms", "must be above 0".into()));
        }
        Ok(())
    }

    /// The class in which a request competes after it has `waited`: one higher per `aging`.
    pub(super) fn class(&self, priority: Priority, waited: Micros) -> usize {
        if self.flush.priorities {
            priority.index().saturating_sub((waited.0 / self.aging.0.max(1)) as usize)
        } else {
            Priority::Normal.index()
        }
    }

    pub(super) fn max_wait(&self, priority: Priority) -> Micros {
        self.max_waits[if self.flush.priorities { priority } else { Priority::Normal }.index()]
    }
}
