//! The schedulers of other servers, for comparison, in the simulator only: the same arrivals, cost of a step, seats, blocks and
//! tokens per step as ours, and each written from its paper or source.
//!
//! ```text
//! engine.rs   virtual time, what every one of them has: sequences, seats, steps
//! blocks.rs   KV blocks with a prefix cache
//! vllm.rs, sglang.rs, prefill_first.rs, fastserve.rs   a scheduler each
//! ```
//! Where a peer does something that the simulator has no cost for (moving KV to the host's memory), it is free.

mod blocks;
mod engine;
mod fastserve;
mod prefill_first;
mod sglang;
mod vllm;

use std::ops::Range;

use super::arrival::Arrival;
use super::measure::Measured;
use super::setup::Setup;
use super::workload::Workload;

/// A scheduler of another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// vLLM v1's default: see [`vllm::Vllm`].
    Vllm,
    /// vLLM v1 with `--scheduling-policy priority`.
    VllmPriority,
    /// SGLang with `--schedule-policy lpm`: see [`sglang::Sglang`].
    Sglang,
    /// Orca and vLLM v0: see [`prefill_first::PrefillFirst`].
    PrefillFirst,
    /// See [`fastserve::FastServe`].
    FastServe,
}

/// Numbers of tokens per step that a peer is tried with.
const STEP_TOKENS: [usize; 2] = [128, 256];

impl Peer {
    pub const ALL: [Peer; 5] = [Peer::Vllm, Peer::VllmPriority, Peer::Sglang, Peer::PrefillFirst, Peer::FastServe];

    /// As tables show it.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Vllm => "vLLM",
            Peer::VllmPriority => "vLLM priority",
            Peer::Sglang => "SGLang LPM",
            Peer::PrefillFirst => "prefill first",
            Peer::FastServe => "FastServe",
        }
    }

    /// With the number of tokens per step, of [`STEP_TOKENS`] and that of `setup`, with which it serves most requests of `workload` as
    /// they are promised: as its operator would set it. That number, and the runs of all seeds counted as one.
    pub fn tuned(self, setup: &Setup, workload: &Workload, seeds: Range<u64>) -> (usize, Measured) {
        let promises = setup.scheduler.slo;
        let run = |tokens: usize| {
            let mut setup = setup.clone();
            setup.scheduler.max_num_batched_tokens = tokens;
            let classes = workload.classes();
            let mut all = Measured::new(classes.clone());
            for seed in seeds.clone() {
                all.append(self.simulate(&setup, &classes, &workload.arrivals(seed), seed));
            }
            (tokens, all)
        };
        let kept = |(_, measured): &(usize, Measured)| measured.kept(&promises);
        let own = setup.scheduler.max_num_batched_tokens;
        let smaller = STEP_TOKENS.into_iter().filter(|tokens| self.cuts_prompts() && *tokens < own);
        smaller.chain([own]).map(run).max_by_key(kept).expect("at least its own")
    }

    /// Whether the number of tokens per step bounds what a step computes of a prompt.
    fn cuts_prompts(self) -> bool {
        matches!(self, Peer::Vllm | Peer::VllmPriority | Peer::Sglang)
    }

    /// Runs `arrivals`, which are sorted, to the end of the last request, with the seats, blocks, tokens per step and cost of
    /// `setup`; what it says of strategies and policies is ours.
    pub fn simulate(self, setup: &Setup, classes: &[String], arrivals: &[Arrival], seed: u64) -> Measured {
        let run = engine::Run::new(setup, classes, arrivals, seed);
        match self {
            Peer::Vllm => run.finish(vllm::Vllm::default()),
            Peer::VllmPriority => run.finish(vllm::Vllm::with_priorities()),
            Peer::Sglang => run.finish(sglang::Sglang::default()),
            Peer::PrefillFirst => run.finish(prefill_first::PrefillFirst::default()),
            Peer::FastServe => run.finish(fastserve::FastServe::new(setup)),
        }
    }
}

#[cfg(test)]
mod tests;
