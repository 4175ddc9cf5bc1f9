//! What an operator may change while the engine runs, as one table of knobs. Pure.
//!
//! A change is checked as a whole against the table and the envelope, and then taken as a whole: after an error nothing
//! has changed.

use forebay_core::intake::{self, StrategyKind};
use forebay_core::request::{Priority, RequestError};
use forebay_core::scheduler;
use forebay_core::scheduler::policy::PolicyKind;
use forebay_core::scheduler::thermal::{Level, Thresholds};
use forebay_core::units::Micros;

/// Everything that is in force and may be changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    pub intake: intake::Config,
    pub scheduler: scheduler::Config,
}

/// The part of the tuning that one admin resource shows and changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Strategy,
    Policy,
    Limits,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Number(f64),
    Bool(bool),
}

/// One thing that can be changed.
pub struct Knob {
    /// As the configuration key's last part.
    pub name: &'static str,
    pub group: Group,
    kind: Kind,
    get: fn(&Tuning) -> Value,
    set: fn(&mut Tuning, Value),
}

enum Kind {
    Bool,
    /// Whole numbers from `min` to what the envelope allows.
    Whole {
        min: f64,
        max: fn(&Tuning) -> f64,
    },
    /// Milliseconds or shares.
    Real {
        min: f64,
        max: f64,
    },
}

/// An order of the operator: a name to select, numbers to set, or both.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub group: Group,
    pub name: Option<String>,
    pub values: Vec<(String, Value)>,
}

/// Changes that are put in force together: all of them, or none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangeSet {
    pub changes: Vec<Change>,
    /// Where the levels of heat begin, if that changes.
    pub thermal: Option<Thresholds>,
}

impl From<Change> for ChangeSet {
    fn from(change: Change) -> ChangeSet {
        ChangeSet { changes: vec![change], thermal: None }
    }
}

/// What a change did, for the log and the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    pub what: String,
    pub from: String,
    pub to: String,
}

const MAX_MS: f64 = 3_600_000.0;

fn ms(time: Micros) -> Value {
    Value::Number(time.0 as f64 / 1e3)
}

impl Value {
    fn number(self) -> f64 {
        match self {
            Value::Number(number) => number,
            Value::Bool(set) => f64::from(u8::from(set)),
        }
    }

    fn whole(self) -> usize {
        self.number() as usize
    }

    fn micros(self) -> Micros {
        Micros((self.number() * 1e3).round() as u64)
    }

    fn is_true(self) -> bool {
        self == Value::Bool(true)
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Number(number) => number.fmt(f),
            Value::Bool(set) => set.fmt(f),
        }
    }
}

macro_rules! knobs {
    ($($group:ident $name:literal $kind:expr, $get:expr, $set:expr;)*) => {
        &[$(Knob { name: $name, group: Group::$group, kind: $kind, get: $get, set: $set },)*]
    };
}

const MILLIS: Kind = Kind::Real { min: 0.0, max: MAX_MS };
const COUNT: Kind = Kind::Whole { min: 1.0, max: |_| 1e7 };
const DEPTH: Kind = Kind::Whole { min: 0.0, max: |_| 1e7 };

/// The table. `max_num_seqs` and `max_num_batched_tokens` end where they stood at the start: memory was sized for that.
pub const KNOBS: &[Knob] = knobs! {
    Strategy "min_batch_size" COUNT, |t| Value::Number(t.intake.flush.min_batch_size as f64),
        |t, v| t.intake.flush.min_batch_size = v.whole();
    Strategy "max_batch_size" COUNT, |t| Value::Number(t.intake.flush.max_batch_size as f64),
        |t, v| t.intake.flush.max_batch_size = v.whole();
    Strategy "min_wait_ms" MILLIS, |t| ms(t.intake.flush.min_wait), |t, v| t.intake.flush.min_wait = v.micros();
    Strategy "max_wait_ms" MILLIS, |t| ms(t.intake.flush.max_wait), |t, v| t.intake.flush.max_wait = v.micros();
    Strategy "queue_depth_low_threshold" DEPTH, |t| Value::Number(t.intake.flush.queue_depth_low as f64),
        |t, v| t.intake.flush.queue_depth_low = v.whole();
    Strategy "queue_depth_high_threshold" DEPTH, |t| Value::Number(t.intake.flush.queue_depth_high as f64),
        |t, v| t.intake.flush.queue_depth_high = v.whole();
    Strategy "target_p99_ms" Kind::Real { min: 1.0, max: MAX_MS }, |t| ms(t.intake.flush.target_p99),
        |t, v| t.intake.flush.target_p99 = v.micros();
    Strategy "idle_release" Kind::Bool, |t| Value::Bool(t.intake.flush.idle_release),
        |t, v| t.intake.flush.idle_release = v.is_true();
    Strategy "token_bucketing_enabled" Kind::Bool, |t| Value::Bool(t.intake.flush.bucketing),
        |t, v| t.intake.flush.bucketing = v.is_true();
    Strategy "priority_enabled" Kind::Bool, |t| Value::Bool(t.intake.flush.priorities),
        |t, v| t.intake.flush.priorities = v.is_true();
    Policy "decode_burst_budget" Kind::Whole { min: 1.0, max: |_| 4096.0 },
        |t| Value::Number(t.scheduler.policy.decode_burst_budget as f64),
        |t, v| t.scheduler.policy.decode_burst_budget = v.whole();
    Limits "max_num_seqs" Kind::Whole { min: 1.0, max: |start| start.scheduler.max_num_seqs as f64 },
        |t| Value::Number(t.scheduler.max_num_seqs as f64), |t, v| t.scheduler.max_num_seqs = v.whole();
    Limits "max_num_batched_tokens"
        Kind::Whole { min: 1.0, max: |start| start.scheduler.max_num_batched_tokens as f64 },
        |t| Value::Number(t.scheduler.max_num_batched_tokens as f64),
        |t, v| t.scheduler.max_num_batched_tokens = v.whole();
    Limits "max_stall_ms" MILLIS, |t| ms(t.scheduler.max_stall.unwrap_or_default()),
        |t, v| t.scheduler.max_stall = Some(v.micros()).filter(|stall| *stall > Micros::ZERO);
    Limits "queue_capacity" COUNT, |t| Value::Number(t.intake.capacity.requests as f64),
        |t, v| t.intake.capacity.requests = v.whole();
    Limits "queue_token_capacity" Kind::Whole { min: 1.0, max: |_| 1e12 },
        |t| Value::Number(t.intake.capacity.tokens as f64), |t, v| t.intake.capacity.tokens = v.whole();
    Limits "queue_timeout_ms" Kind::Real { min: 1.0, max: 24.0 * MAX_MS }, |t| ms(t.intake.queue_timeout),
        |t, v| t.intake.queue_timeout = v.micros();
    Limits "aging_ms" Kind::Real { min: 1.0, max: MAX_MS }, |t| ms(t.intake.aging), |t, v| t.intake.aging = v.micros();
    Limits "max_wait_critical_ms" MILLIS, |t| ms(t.intake.max_waits[Priority::Critical.index()]),
        |t, v| t.intake.max_waits[Priority::Critical.index()] = v.micros();
    Limits "max_wait_high_ms" MILLIS, |t| ms(t.intake.max_waits[Priority::High.index()]),
        |t, v| t.intake.max_waits[Priority::High.index()] = v.micros();
    Limits "max_wait_normal_ms" MILLIS, |t| ms(t.intake.max_waits[Priority::Normal.index()]),
        |t, v| t.intake.max_waits[Priority::Normal.index()] = v.micros();
    Limits "max_wait_low_ms" MILLIS, |t| ms(t.intake.max_waits[Priority::Low.index()]),
        |t, v| t.intake.max_waits[Priority::Low.index()] = v.micros();
    Limits "fair_share_max" Kind::Real { min: 0.01, max: 1.0 },
        |t| Value::Number(t.intake.fairness.max_seat_share), |t, v| t.intake.fairness.max_seat_share = v.number();
};

impl Group {
    pub const fn what(self) -> &'static str {
        match self {
            Group::Strategy => "strategy",
            Group::Policy => "policy",
            Group::Limits => "limit",
        }
    }

    /// The names among which one is in force; limits have none.
    pub fn names(self) -> Vec<&'static str> {
        match self {
            Group::Strategy => StrategyKind::ALL.iter().map(|kind| kind.name()).collect(),
            Group::Policy => PolicyKind::ALL.iter().map(|kind| kind.name()).collect(),
            Group::Limits => Vec::new(),
        }
    }
}

impl Tuning {
    /// A change of each group that makes another tuning into this one.
    pub fn changes(&self) -> Vec<Change> {
        let change = |group: Group| Change {
            group,
            name: self.selected(group).map(str::to_owned),
            values: self.values(group).into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        };
        [Group::Strategy, Group::Policy, Group::Limits].map(change).into()
    }

    /// The selected name of a group.
    pub fn selected(&self, group: Group) -> Option<&'static str> {
        match group {
            Group::Strategy => Some(self.intake.flush.strategy.name()),
            Group::Policy => Some(self.scheduler.policy.kind.name()),
            Group::Limits => None,
        }
    }

    /// The group's knobs as they stand.
    pub fn values(&self, group: Group) -> Vec<(&'static str, Value)> {
        KNOBS.iter().filter(|knob| knob.group == group).map(|knob| (knob.name, (knob.get)(self))).collect()
    }

    /// The tuning after `change`, and what it changed. `start` is the tuning that memory was sized for.
    pub fn changed(&self, change: &Change, start: &Tuning) -> Result<(Tuning, Vec<Changed>), RequestError> {
        self.changed_by(std::slice::from_ref(change), start)
    }

    /// The same for several changes, of which only the outcome has to make sense.
    pub fn changed_by(&self, changes: &[Change], start: &Tuning) -> Result<(Tuning, Vec<Changed>), RequestError> {
        let mut next = self.clone();
        for change in changes {
            if let Some(name) = &change.name {
                next.select(change.group, name)?;
            }
            for (name, value) in &change.values {
                next.set(change.group, name, *value, start)?;
            }
        }
        next.check()?;
        let mut groups: Vec<Group> = changes.iter().map(|change| change.group).collect();
        groups.dedup();
        let changed = groups.into_iter().flat_map(|group| next.differences(self, group)).collect();
        Ok((next, changed))
    }

    fn select(&mut self, group: Group, name: &str) -> Result<(), RequestError> {
        let found = match group {
            Group::Strategy => StrategyKind::from_name(name).map(|kind| self.intake.flush.strategy = kind),
            Group::Policy => PolicyKind::from_name(name).map(|kind| self.scheduler.policy.kind = kind),
            Group::Limits => None,
        };
        found.ok_or_else(|| unknown(group.what(), name, group.names()))
    }

    fn set(&mut self, group: Group, name: &str, value: Value, start: &Tuning) -> Result<(), RequestError> {
        let Some(knob) = KNOBS.iter().find(|knob| knob.group == group && knob.name == name) else {
            let valid: Vec<&str> = KNOBS.iter().filter(|knob| knob.group == group).map(|knob| knob.name).collect();
            return Err(RequestError::invalid(
                shortened(name),
                format!("is no parameter here; valid are {}", valid.join(", ")),
            ));
        };
        knob.check(value, start)?;
        (knob.set)(self, value);
        Ok(())
    }

    /// What no single knob can see.
    pub fn check(&self) -> Result<(), RequestError> {
        let intake = self.intake.check().map_err(|(param, message)| RequestError::invalid(param, message));
        let policy = self.scheduler.policy.check();
        let policy = policy.map_err(|error| RequestError::invalid(error.param(), error.to_string()));
        intake.and(policy)
    }

    fn differences(&self, before: &Tuning, group: Group) -> Vec<Changed> {
        let selected = self.selected(group).zip(before.selected(group)).filter(|(to, from)| to != from);
        let name = selected.map(|(to, from)| Changed { what: group.what().into(), from: from.into(), to: to.into() });
        let values = self.values(group).into_iter().zip(before.values(group)).filter(|(to, from)| to != from);
        let values = values.map(|((name, to), (_, from))| Changed {
            what: name.into(),
            from: from.to_string(),
            to: to.to_string(),
        });
        name.into_iter().chain(values).collect()
    }
}

impl Knob {
    fn check(&self, value: Value, start: &Tuning) -> Result<(), RequestError> {
        let refused =
            |allowed: String| Err(RequestError::invalid(self.name, format!("must be {allowed}, got {value}")));
        match (&self.kind, value) {
            (Kind::Bool, Value::Bool(_)) => Ok(()),
            (Kind::Bool, Value::Number(_)) => refused("true or false".into()),
            (Kind::Whole { min, max }, Value::Number(n)) if n.fract() == 0.0 && n >= *min && n <= max(start) => Ok(()),
            (Kind::Whole { min, max }, _) => refused(format!("a whole number from {min} to {}", max(start))),
            // Written so that NaN is outside.
            (Kind::Real { min, max }, Value::Number(n)) if n >= *min && n <= *max => Ok(()),
            (Kind::Real { min, max }, _) => refused(format!("a number from {min} to {max}")),
        }
    }
}

/// A level by its name; `auto` is the sensor's.
pub fn thermal_level(name: &str) -> Result<Option<Level>, RequestError> {
    if name == AUTO {
        return Ok(None);
    }
    Level::from_name(name).map(Some).ok_or_else(|| unknown("thermal level", name, thermal_names()))
}

pub fn thermal_names() -> Vec<&'static str> {
    [AUTO].into_iter().chain(Level::ALL.iter().map(|level| level.name())).collect()
}

const AUTO: &str = "auto";

/// A 404 that lists what there is.
pub fn unknown(what: &'static str, name: &str, valid: Vec<&'static str>) -> RequestError {
    RequestError::UnknownName { what, name: shortened(name), valid: valid.join(", ") }
}

/// Names come from outside, and are repeated in answers and logs.
fn shortened(name: &str) -> String {
    const SHOWN: usize = 60;
    name.chars().take(SHOWN).collect()
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
