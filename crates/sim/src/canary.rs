//! A strategy on trial: time slices alternate between it and the one in force, and a sequential test compares how many requests
//! of each keep the objective.
//!
//! Slices, not requests, are assigned: requests share steps, so those of one strategy would be served by the other's batches.
//! The test may be looked at after every request: each share has a confidence sequence, the normal mixture bound of Howard,
//! Ramdas, McAuliffe and Sekhon ("Time-uniform, nonparametric, nonasymptotic confidence sequences", 2021, eq. 14) for
//! variables in [0, 1]. It takes requests for independent, which those of one slice are not quite: slices are short and many.

use forebay_core::units::Micros;

/// Which strategy a slice belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    InForce,
    OnTrial,
}

/// When the trial's slices are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slices {
    /// One slice of each arm.
    pub cycle: Micros,
    pub on_trial: Micros,
    pub total: Micros,
}

/// Requests of one arm, and those that kept the objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub requests: u64,
    pub kept: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Trial {
    pub in_force: Tally,
    pub on_trial: Tally,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The one on trial keeps the objective more often.
    Better,
    Worse,
    /// So far no difference shows.
    Undecided,
}

/// Cycles that a trial is cut into, if they are then not too short to hold steps, nor so long that load drifts within.
const CYCLES: u64 = 60;
const SHORTEST_CYCLE: Micros = Micros::from_millis(1_000);
const LONGEST_CYCLE: Micros = Micros::from_millis(30_000);
/// The probability that either share ever leaves its interval, for both together: 5 %.
const ALPHA: f64 = 0.025;
/// Where the bound is tightest: after about 200 requests.
const RHO: f64 = 10.0;

impl Slices {
    /// `share` is above 0 and below 1.
    pub fn new(total: Micros, share: f64) -> Slices {
        let cycle = Micros(total.0 / CYCLES).clamp(SHORTEST_CYCLE, LONGEST_CYCLE).min(total.max(Micros(1)));
        Slices { cycle, on_trial: Micros((cycle.0 as f64 * share) as u64), total }
    }

    /// The arm at `since` the beginning; the strategy in force goes first in each cycle.
    pub fn arm(&self, since: Micros) -> Arm {
        let within = since.0 % self.cycle.0;
        if within < self.cycle.0 - self.on_trial.0 { Arm::InForce } else { Arm::OnTrial }
    }

    /// How long the slice goes on.
    pub fn left(&self, since: Micros) -> Micros {
        let within = since.0 % self.cycle.0;
        let border = match self.arm(since) {
            Arm::InForce => self.cycle.0 - self.on_trial.0,
            Arm::OnTrial => self.cycle.0,
        };
        Micros((border - within).max(1))
    }
}

impl Tally {
    pub fn count(&mut self, kept: bool) {
        self.requests += 1;
        self.kept += u64::from(kept);
    }

    pub fn share(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.kept as f64 / self.requests as f64 }
    }

    /// How far the true share may be from the one that was seen.
    pub fn radius(&self) -> f64 {
        if self.requests == 0 {
            return 1.0;
        }
        // A variable in [0, 1] has variance at most 1/4.
        let variance = self.requests as f64 / 4.0;
        let bound = (variance + RHO) * ((variance + RHO) / (ALPHA * ALPHA * RHO)).ln();
        (bound.sqrt() / self.requests as f64).min(1.0)
    }
}

impl Trial {
    pub fn count(&mut self, arm: Arm, kept: bool) {
        match arm {
            Arm::InForce => self.in_force.count(kept),
            Arm::OnTrial => self.on_trial.count(kept),
        }
    }

    pub fn verdict(&self) -> Verdict {
        let difference = self.on_trial.share() - self.in_force.share();
        let radius = self.on_trial.radius() + self.in_force.radius();
        if difference > radius {
            Verdict::Better
        } else if difference < -radius {
            Verdict::Worse
        } else {
            Verdict::Undecided
        }
    }

    /// In words, for the log and the operator.
    pub fn told(&self) -> String {
        let told = |tally: &Tally| {
            format!("{:.1} % ± {:.1} of {}", tally.share() * 100.0, tally.radius() * 100.0, tally.requests)
        };
        format!("on trial {} requests kept the objective, in force {}", told(&self.on_trial), told(&self.in_force))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn slices_have_their_share() {
        let slices = Slices::new(Micros::from_millis(600_000), 0.2);
        assert_eq!((slices.cycle, slices.on_trial), (Micros::from_millis(10_000), Micros::from_millis(2_000)));
        let mut now = Micros::ZERO;
        let mut tried = Micros::ZERO;
        while now < slices.total {
            let left = slices.left(now);
            assert_ne!(slices.arm(now), slices.arm(now + left));
            if slices.arm(now) == Arm::OnTrial {
                tried = tried + left;
            }
            now = now + left;
        }
        assert_eq!((now, tried), (slices.total, Micros::from_millis(120_000)));
        // Too short for sixty cycles of a second.
        assert_eq!(Slices::new(Micros::from_millis(5_000), 0.5).cycle, Micros::from_millis(1_000));
    }

    /// Verdicts of 400 trials of up to 1,000 requests, looked at after each.
    fn verdicts(in_force: f64, on_trial: f64) -> [usize; 3] {
        let mut found = [0; 3];
        for seed in 0..400 {
            let (mut dice, mut trial) = (Dice::new(seed), Trial::default());
            for n in 0..1_000 {
                let (arm, share) = if n % 5 == 0 { (Arm::OnTrial, on_trial) } else { (Arm::InForce, in_force) };
                trial.count(arm, dice.uniform() < share);
                if trial.verdict() != Verdict::Undecided {
                    break;
                }
            }
            found[trial.verdict() as usize] += 1;
        }
        found
    }

    #[test]
    fn looking_often_does_not_make_it_err() {
        let [better, worse, _] = verdicts(0.8, 0.8);
        assert!(better + worse <= 20, "5 % of 400 at most, not {better} + {worse}");
    }

    #[test]
    fn a_clear_difference_is_found() {
        let [better, worse, _] = verdicts(0.5, 0.95);
        assert!(better > 390 && worse == 0, "{better} {worse}");
        let [better, worse, _] = verdicts(0.95, 0.5);
        assert!(worse > 390 && better == 0, "{better} {worse}");
    }
}
