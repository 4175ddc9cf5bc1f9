//! Virtual time: arrivals are heard when they come, also during a step; a step lasts as long as the cost model says.

use std::ops::Range;

use super::arrival::Arrival;
use super::measure::Measured;
use super::run::Run;
use super::setup::Setup;
use super::workload::Workload;

/// Runs `arrivals`, which are sorted, to the end of the last request. `progress` hears how many requests have ended, now
/// and then.
pub fn simulate(
    setup: &Setup,
    classes: &[String],
    arrivals: &[Arrival],
    seed: u64,
    progress: &mut dyn FnMut(usize),
) -> Measured {
    Run::new(setup, classes, arrivals, seed).finish(progress)
}

/// A run of `workload` for each seed, counted as one. `progress` hears how many requests have ended in the run under way.
pub fn simulate_all(
    setup: &Setup,
    workload: &Workload,
    seeds: Range<u64>,
    progress: &mut dyn FnMut(usize),
) -> Measured {
    let classes = workload.classes();
    let mut all = Measured::new(classes.clone());
    seeds.for_each(|seed| all.append(simulate(setup, &classes, &workload.arrivals(seed), seed, progress)));
    all
}

#[cfg(test)]
#[path = "simulate_tests.rs"]
pub(super) mod tests;
