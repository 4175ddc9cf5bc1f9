//! How hot the machine is, and what that allows. Pure: readings and time come in.

use crate::units::Micros;

/// What may run, coolest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    #[default]
    Nominal,
    /// Warm; nothing changes yet.
    Fair,
    /// The batch is halved.
    Serious,
    /// Also, no new requests are taken.
    Critical,
    /// Nothing is computed.
    Emergency,
}

impl Level {
    pub const ALL: [Level; 5] = [Level::Nominal, Level::Fair, Level::Serious, Level::Critical, Level::Emergency];

    pub const fn name(self) -> &'static str {
        match self {
            Level::Nominal => "nominal",
            Level::Fair => "fair",
            Level::Serious => "serious",
            Level::Critical => "critical",
            Level::Emergency => "emergency",
        }
    }

    pub fn from_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }

    /// Sequences per step and seats, of `full`.
    pub fn batch(self, full: usize) -> usize {
        if self >= Level::Serious { (full / 2).max(1) } else { full }
    }
}

/// What the sensor says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    Celsius(f64),
    /// No sensor, or one that talks nonsense.
    Lost,
}

/// Temperatures in °C from which a level holds; they rise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    pub fair: f64,
    pub serious: f64,
    pub critical: f64,
    pub emergency: f64,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds { fair: 70.0, serious: 80.0, critical: 90.0, emergency: 100.0 }
    }
}

/// A change of level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub from: Level,
    pub to: Level,
}

/// Between two changes that the sensor causes.
const HOLD: Micros = Micros::from_millis(10_000);
/// A level ends only so far below its threshold, in °C.
const MARGIN: f64 = 5.0;
/// Without a reading for so long, the level returns to nominal: sensor loss is no emergency.
const FORGET: Micros = Micros::from_millis(60_000);
/// From critical on, one reading proves nothing.
const PROOF: u32 = 2;
/// What no working machine says.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 0.0..=150.0;

/// Turns readings into levels, with hysteresis: at most one change in 10 s.
#[derive(Clone, Debug)]
pub struct Governor {
    thresholds: Thresholds,
    level: Level,
    forced: Option<Level>,
    changed: Option<Micros>,
    heard: Option<Micros>,
    /// The level that the newest readings asked for, and how many of them in a row.
    asked: (Level, u32),
}

impl Governor {
    pub fn new(thresholds: Thresholds) -> Governor {
        Governor {
            thresholds,
            level: Level::Nominal,
            forced: None,
            changed: None,
            heard: None,
            asked: (Level::Nominal, 0),
        }
    }

    /// The level in force: the operator's, or the sensor's.
    pub fn level(&self) -> Level {
        self.forced.unwrap_or(self.level)
    }

    pub fn is_forced(&self) -> bool {
        self.forced.is_some()
    }

    /// The operator's word, at once; `None` returns to the sensor's.
    pub fn force(&mut self, level: Option<Level>) {
        self.forced = level;
    }

    /// A reading. Returns the change of the level in force, if there is one.
    pub fn observe(&mut self, reading: Reading, now: Micros) -> Option<Change> {
        let before = self.level();
        let wanted = match reading {
            Reading::Celsius(degrees) if PLAUSIBLE.contains(&degrees) => {
                self.heard = Some(now);
                self.wanted(degrees)
            }
            Reading::Celsius(_) | Reading::Lost => {
                let forgotten = self.heard.is_none_or(|heard| now.since(heard) >= FORGET);
                if forgotten { Level::Nominal } else { return None }
            }
        };
        self.asked = if wanted == self.asked.0 { (wanted, self.asked.1 + 1) } else { (wanted, 1) };
        let proven = wanted < Level::Critical || wanted <= self.level || self.asked.1 >= PROOF;
        let held = self.changed.is_some_and(|changed| now.since(changed) < HOLD);
        if wanted != self.level && proven && !held {
            self.level = wanted;
            self.changed = Some(now);
        }
        let after = self.level();
        (after != before).then_some(Change { from: before, to: after })
    }

    /// The level for a temperature, given the one that holds.
    fn wanted(&self, degrees: f64) -> Level {
        let reached = |level: Level, threshold: f64| {
            let threshold = if level <= self.level { threshold - MARGIN } else { threshold };
            degrees >= threshold
        };
        let t = &self.thresholds;
        let levels = [
            (Level::Emergency, t.emergency),
            (Level::Critical, t.critical),
            (Level::Serious, t.serious),
            (Level::Fair, t.fair),
        ];
        levels
            .into_iter()
            .find(|(level, threshold)| reached(*level, *threshold))
            .map_or(Level::Nominal, |(level, _)| level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The level after each reading, one every `every` seconds; -1 is a lost sensor.
    fn levels(every: u64, readings: &[f64]) -> Vec<&'static str> {
        let mut governor = Governor::new(Thresholds::default());
        let level = |(n, degrees): (usize, &f64)| {
            let reading = if *degrees == -1.0 { Reading::Lost } else { Reading::Celsius(*degrees) };
            governor.observe(reading, Micros::from_millis((1 + n as u64) * every * 1_000));
            governor.level().name()
        };
        readings.iter().enumerate().map(level).collect()
    }

    #[test]
    fn levels_follow_the_temperature() {
        assert_eq!(levels(20, &[60.0, 70.0, 85.0, 40.0]), ["nominal", "fair", "serious", "nominal"]);
        assert_eq!(levels(20, &[95.0, 95.0, 105.0, 105.0]), ["nominal", "critical", "critical", "emergency"]);
    }

    #[test]
    fn one_reading_is_no_emergency() {
        assert_eq!(levels(20, &[105.0, 50.0, 105.0]), ["nominal"; 3]);
    }

    #[test]
    fn a_level_ends_well_below_its_threshold() {
        assert_eq!(levels(20, &[81.0, 79.0, 75.5, 74.9]), ["serious", "serious", "serious", "fair"]);
    }

    #[test]
    fn flapping_changes_nothing_within_ten_seconds() {
        assert_eq!(levels(4, &[81.0, 60.0, 81.0, 60.0]), ["serious", "serious", "serious", "nominal"]);
    }

    #[test]
    fn a_lost_or_lying_sensor_is_no_emergency() {
        for lie in [-1.0, -40.0, 999.0, f64::NAN, f64::INFINITY] {
            assert_eq!(levels(20, &[85.0, lie, lie, lie]), ["serious", "serious", "serious", "nominal"], "{lie}");
        }
        assert_eq!(levels(20, &[-1.0, -1.0]), ["nominal"; 2]);
    }

    #[test]
    fn the_operators_word_holds_at_once_and_until_it_is_taken_back() {
        let mut governor = Governor::new(Thresholds::default());
        governor.force(Some(Level::Emergency));
        assert_eq!(governor.level(), Level::Emergency);
        assert_eq!(governor.observe(Reading::Celsius(20.0), Micros(1)), None);
        governor.force(None);
        assert_eq!((governor.level(), governor.is_forced()), (Level::Nominal, false));
    }

    #[test]
    fn serious_halves_the_batch_and_leaves_one() {
        assert_eq!([Level::Fair, Level::Serious, Level::Critical].map(|level| level.batch(9)), [9, 4, 4]);
        assert_eq!(Level::Serious.batch(1), 1);
    }
}
