//! How hot the machine is, from readings that may lie. Who reads the sensor is not this file's business.

use thiserror::Error;

use crate::units::Micros;

/// What the heat asks for, mildest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    #[default]
    Nominal,
    /// Warm: worth knowing, nothing changes.
    Fair,
    /// Half the sequences per step.
    Serious,
    /// And no new requests.
    Critical,
    /// Decoding is paused.
    Emergency,
}

impl Level {
    /// Mildest first.
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
        Level::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }
}

/// Where each level begins, in °C.
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

#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("thermal thresholds must rise between 0 and {MAX_CELSIUS} °C, got {fair}, {serious}, {critical}, {emergency}")]
pub struct ThresholdsError {
    pub fair: f64,
    pub serious: f64,
    pub critical: f64,
    pub emergency: f64,
}

impl Thresholds {
    pub fn check(&self) -> Result<(), ThresholdsError> {
        let Thresholds { fair, serious, critical, emergency } = *self;
        let rising = 0.0 < fair && fair < serious && serious < critical && critical < emergency;
        // Comparisons with NaN are false, so it is refused too.
        let in_range = rising && emergency <= MAX_CELSIUS;
        in_range.then_some(()).ok_or(ThresholdsError { fair, serious, critical, emergency })
    }

    /// The highest level whose beginning is `reached`.
    fn highest(&self, reached: impl Fn(f64) -> bool) -> Level {
        let begins = [
            (self.emergency, Level::Emergency),
            (self.critical, Level::Critical),
            (self.serious, Level::Serious),
            (self.fair, Level::Fair),
        ];
        begins.into_iter().find(|(from, _)| reached(*from)).map_or(Level::Nominal, |(_, level)| level)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    Celsius(f64),
    /// There is no sensor, or it cannot be read.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub from: Level,
    pub to: Level,
}

/// Hotter than any machine that still answers: the sensor is broken.
const MAX_CELSIUS: f64 = 150.0;
/// Levels do not follow a temperature that hovers: they fall this far below where they begin.
const HYSTERESIS_CELSIUS: f64 = 5.0;
const MIN_INTERVAL: Micros = Micros::from_millis(10_000);
/// A sensor lost for so long says nothing about now.
const LOST_AFTER: Micros = Micros::from_millis(60_000);

/// Turns readings into a level.
///
/// It changes at most once in 10 s and falls only 5 °C below a threshold. Critical and above need two readings in a row: one
/// spike must not turn clients away. Losing the sensor is no emergency: the level stays, and after 60 s falls to Nominal.
#[derive(Debug)]
pub struct Governor {
    thresholds: Thresholds,
    /// By the readings; followed also while an operator has the word.
    automatic: Level,
    forced: Option<Level>,
    changed_at: Option<Micros>,
    /// Of the reading before; `None` at first and after a loss.
    previous: Option<Level>,
    lost_since: Option<Micros>,
}

impl Governor {
    /// `thresholds` have passed [`Thresholds::check`].
    pub fn new(thresholds: Thresholds) -> Governor {
        Governor {
            thresholds,
            automatic: Level::Nominal,
            forced: None,
            changed_at: None,
            previous: None,
            lost_since: None,
        }
    }

    /// Other levels, from the next reading on. They have passed [`Thresholds::check`].
    pub fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
    }

    pub fn level(&self) -> Level {
        self.forced.unwrap_or(self.automatic)
    }

    pub fn forced(&self) -> Option<Level> {
        self.forced
    }

    /// A change of [`Governor::level`], if this reading brought one.
    pub fn observe(&mut self, reading: Reading, now: Micros) -> Option<Change> {
        let from = self.level();
        let target = match reading {
            Reading::Celsius(celsius) if (0.0..=MAX_CELSIUS).contains(&celsius) => self.follow(celsius),
            Reading::Celsius(_) | Reading::Lost => self.endure_loss(now),
        };
        let settled = self.changed_at.is_none_or(|at| now.since(at) >= MIN_INTERVAL);
        if target != self.automatic && settled {
            self.automatic = target;
            self.changed_at = Some(now);
        }
        self.changed(from)
    }

    /// The operator's word, at once: a level, or `None` for what the readings say.
    pub fn force(&mut self, level: Option<Level>, now: Micros) -> Option<Change> {
        let from = self.level();
        self.forced = level;
        let change = self.changed(from);
        if change.is_some() {
            self.changed_at = Some(now);
        }
        change
    }

    fn changed(&self, from: Level) -> Option<Change> {
        let to = self.level();
        (from != to).then_some(Change { from, to })
    }

    /// The level that a credible reading asks for.
    fn follow(&mut self, celsius: f64) -> Level {
        self.lost_since = None;
        let hot = self.thresholds.highest(|from| celsius >= from);
        let before = self.previous.replace(hot);
        if hot > self.automatic {
            let confirmed = if hot < Level::Critical { hot } else { before.unwrap_or_default().min(hot) };
            // The first reading of two changes nothing: a step to Serious now would hold the second back for 10 s.
            let known = hot < Level::Critical || confirmed >= Level::Critical;
            return if known { confirmed.max(self.automatic) } else { self.automatic };
        }
        self.thresholds.highest(|from| celsius > from - HYSTERESIS_CELSIUS).min(self.automatic)
    }

    fn endure_loss(&mut self, now: Micros) -> Level {
        self.previous = None;
        let since = *self.lost_since.get_or_insert(now);
        if now.since(since) >= LOST_AFTER { Level::Nominal } else { self.automatic }
    }
}

#[cfg(test)]
#[path = "thermal_tests.rs"]
mod tests;
