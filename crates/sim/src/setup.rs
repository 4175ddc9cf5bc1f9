//! The engine that is simulated, and how many of it.

use super::cost::{Capacity, CostModel};
use forebay_core::intake;
use forebay_core::scheduler;
use forebay_core::units::Micros;
use forebay_core::workers::balance::Balancer;
use forebay_core::workers::breaker::BreakerConfig;
use forebay_turn::core;

/// The engine that is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    pub intake: intake::Config,
    pub scheduler: scheduler::Config,
    pub block_size: usize,
    /// `None`: as many as all seats can use.
    pub num_blocks: Option<usize>,
    pub cost: CostModel,
    /// The deadline of each request, from its arrival until its last token.
    pub timeout: Option<Micros>,
    /// Of which there are several, each such an engine.
    pub workers: Workers,
}

/// The workers that share a load, and what happens to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Workers {
    /// At least 1.
    pub count: usize,
    pub balancer: Balancer,
    pub breaker: BreakerConfig,
    /// Between two looks at each of them.
    pub check_interval: Micros,
    pub outages: Vec<Outage>,
}

/// A worker is gone, with all that it had under way, and comes back with an empty cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// From 0 on.
    pub worker: usize,
    pub from: Micros,
    pub to: Micros,
}

impl Default for Workers {
    /// One, which never fails.
    fn default() -> Workers {
        Workers {
            count: 1,
            balancer: Balancer::default(),
            breaker: BreakerConfig::default(),
            check_interval: Micros::from_millis(5_000),
            outages: Vec::new(),
        }
    }
}

impl Outage {
    /// `1:20-30`: the second worker from 20 to 30 s.
    pub fn parse(text: &str) -> Option<Outage> {
        let (worker, times) = text.split_once(':')?;
        let (from, to) = times.split_once('-')?;
        let seconds =
            |text: &str| text.parse().ok().filter(|time| (0.0..=1e6).contains(time)).map(Micros::from_secs_f64);
        let (from, to) = (seconds(from)?, seconds(to)?);
        (from < to).then_some(Outage { worker: worker.parse().ok()?, from, to })
    }
}

impl Setup {
    /// Of one worker.
    pub fn capacity(&self) -> Capacity {
        Capacity { seats: self.scheduler.max_num_seqs, step_tokens: self.scheduler.max_num_batched_tokens }
    }

    /// The same for sequences of up to `longest` tokens, if it is not long enough for them already.
    pub fn for_lengths(&self, longest: u32) -> Setup {
        let mut setup = self.clone();
        setup.scheduler.max_model_len = setup.scheduler.max_model_len.max(longest as usize + 1);
        setup
    }

    /// Blocks of the pool: at least as many as the longest sequence has.
    pub fn blocks(&self) -> usize {
        let for_one = self.scheduler.max_model_len.div_ceil(self.block_size);
        self.num_blocks.unwrap_or(for_one * self.scheduler.max_num_seqs).max(for_one)
    }

    pub(super) fn core(&self) -> core::Config {
        core::Config {
            scheduler: self.scheduler,
            num_blocks: self.blocks(),
            block_size: self.block_size,
            multi_step_count: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_a_worker_and_two_times() {
        let (from, to) = (Micros::from_millis(20_000), Micros::from_millis(30_500));
        assert_eq!(Outage::parse("1:20-30.5"), Some(Outage { worker: 1, from, to }));
        for bad in ["", "1", "1:20", "1:20-20", "1:30-20", "-1:20-30", "x:20-30", "1:-3-30", "1:20-inf", "1:NaN-30"] {
            assert_eq!(Outage::parse(bad), None, "{bad}");
        }
    }
}
