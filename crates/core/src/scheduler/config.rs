//! What a scheduler is told: its limits, its policy, and what heat makes of both.

use crate::slo::Slo;
use crate::units::Micros;

use super::lookup::Speculative;
use super::policy::thermal::Level;
use super::policy::{PolicyConfig, PolicyKind};
use super::preempt::Preemption;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Seats: sequences that may run at once.
    pub max_num_seqs: usize,
    /// Tokens that one step may compute.
    pub max_num_batched_tokens: usize,
    /// Prompt and completion together. One sequence of this length must fit the block pool. No setting: it follows from
    /// the model and its memory, and is 0 until somebody who knows them has filled it in.
    pub max_model_len: usize,
    pub preemption: Preemption,
    pub policy: PolicyConfig,
    /// How long prefills may keep decoding sequences waiting for their next token; `None` is for ever. See
    /// [`Config::stall_limit`].
    pub max_stall: Option<Micros>,
    /// What is promised to each class: what the policy `slo` goes by.
    pub slo: Slo,
    /// Whether blocks of earlier sequences are used again by those that begin in the same way.
    pub prefix_caching: bool,
    /// Whether decodes carry guesses at how they go on.
    pub speculative: Speculative,
    /// Each prompt is computed in one step, as encoders need it. A step then has room for the longest one, whatever
    /// `max_num_batched_tokens` says, and nothing is kept for others.
    pub whole_prompts: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            max_num_seqs: 64,
            max_num_batched_tokens: 512,
            max_model_len: 0,
            preemption: Preemption::default(),
            policy: PolicyConfig::default(),
            max_stall: Some(Micros::from_millis(100)),
            slo: Slo::default(),
            prefix_caching: true,
            speculative: Speculative::default(),
            whole_prompts: false,
        }
    }
}

/// Streams may be kept waiting for so many times longer under policies that are chosen for what long steps bring: prompts
/// that are done sooner, or tokens per second.
const LONGEST_STALLS: u64 = 4;

impl Config {
    /// How long a step may take while `decoding` sequences decode, the most impatient of which is promised `itl` between two
    /// tokens.
    ///
    /// `fair` keeps to `max_stall`; `throughput_first` takes four times as long. `latency_first` does so while few decode,
    /// and comes down to `max_stall` as more would wait for each prompt: what a prompt gains is then less than they lose. `slo`
    /// goes by what is promised.
    pub fn stall_limit(&self, decoding: usize, itl: Option<Micros>) -> Option<Micros> {
        let times =
            |factor: u64, of: u64| self.max_stall.map(|stall| Micros(stall.0.saturating_mul(factor) / of.max(1)));
        match self.policy.kind {
            PolicyKind::Fair => self.max_stall,
            PolicyKind::LatencyFirst => {
                // From half of the seats on there is no more to gain.
                let half = (self.max_num_seqs as u64).div_ceil(2);
                let decoding = (decoding as u64).min(half);
                times(LONGEST_STALLS * half - (LONGEST_STALLS - 1) * decoding, half)
            }
            PolicyKind::ThroughputFirst => times(LONGEST_STALLS, 1),
            PolicyKind::Slo => itl.or(self.max_stall),
        }
    }

    /// Whether what was computed for a prompt is used for others that begin alike.
    pub fn shares_prefixes(&self) -> bool {
        self.prefix_caching && !self.whole_prompts
    }

    /// Tokens that one step may hold.
    pub(super) fn step_tokens(&self) -> usize {
        if self.whole_prompts {
            self.max_num_batched_tokens.max(self.max_model_len)
        } else {
            self.max_num_batched_tokens
        }
    }

    /// Sequences that may run at once when it is so hot.
    pub(super) fn open_seats(&self, heat: Level) -> usize {
        match heat {
            Level::Nominal | Level::Fair => self.max_num_seqs,
            Level::Serious | Level::Critical => (self.max_num_seqs / 2).max(1),
            Level::Emergency => 0,
        }
    }

    /// Heat halves the batch; else everyone running may be in it, also while surplus seats drain.
    pub(super) fn sequences_per_step(&self, heat: Level) -> usize {
        match heat {
            Level::Nominal | Level::Fair => usize::MAX,
            Level::Serious | Level::Critical | Level::Emergency => (self.max_num_seqs / 2).max(1),
        }
    }

    pub(super) fn assert_sound(&self) {
        assert!(self.max_num_seqs > 0 && self.max_num_batched_tokens > 0, "a step needs a seat and a token");
    }
}
