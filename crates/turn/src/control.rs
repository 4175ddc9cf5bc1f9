//! What an operator may change while the engine runs: the live rows of the intake's and the scheduler's tables. Pure.
//!
//! A change is checked as a whole against the rows and the envelope, and then taken as a whole: after an error nothing
//! has changed.

use std::sync::LazyLock;

use forebay_core::intake::{self, StrategyKind};
use forebay_core::request::RequestError;
use forebay_core::scheduler;
use forebay_core::scheduler::policy::PolicyKind;
use forebay_core::scheduler::thermal::{Level, Thresholds};
use forebay_core::settings::{self, Effect, Kind, Setting};

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

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Number(f64),
    Bool(bool),
    /// One of the names that the parameter may have.
    Name(String),
}

/// An order of the operator: a name to select, parameters to set, or both.
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

/// A setting of a [`Tuning`].
pub type Knob = Setting<Tuning>;

impl Value {
    /// Times are numbers of milliseconds.
    fn of(value: settings::Value) -> Value {
        match value {
            settings::Value::Bool(set) => Value::Bool(set),
            settings::Value::Whole(number) => Value::Number(number as f64),
            settings::Value::Real(number) => Value::Number(number),
            settings::Value::Time(time) => Value::Number(time.0 as f64 / 1e3),
            settings::Value::Text(name) => Value::Name(name),
            // Off is zero; lists are no parameters.
            settings::Value::Unset | settings::Value::List(_) => Value::Number(0.0),
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Number(number) => number.fmt(f),
            Value::Bool(set) => set.fmt(f),
            Value::Name(name) => shortened(name).fmt(f),
        }
    }
}

static KNOBS: LazyLock<Vec<Knob>> = LazyLock::new(|| {
    let scheduler =
        scheduler::settings().into_iter().map(|row| row.within(|t: &Tuning| &t.scheduler, |t| &mut t.scheduler));
    let intake = intake::settings().into_iter().map(|row| row.within(|t: &Tuning| &t.intake, |t| &mut t.intake));
    scheduler.chain(intake).filter(|row| matches!(row.effect, Effect::Tuned(_))).collect()
});

/// Everything that can be changed while the engine runs, the names of strategy and policy included.
pub fn knobs() -> &'static [Knob] {
    &KNOBS
}

impl Group {
    pub const ALL: [Group; 3] = [Group::Strategy, Group::Policy, Group::Limits];

    /// As [`Effect::Tuned`] and `/admin` spell it.
    pub const fn resource(self) -> &'static str {
        match self {
            Group::Strategy => "strategy",
            Group::Policy => "policy",
            Group::Limits => "limits",
        }
    }

    /// Its parameters: all of its settings but the one that is called like the group, which [`Tuning::selected`] tells.
    pub fn parameters(self) -> impl Iterator<Item = &'static Knob> {
        let own = move |knob: &&Knob| knob.effect == Effect::Tuned(self.resource());
        knobs().iter().filter(own).filter(move |knob| knob.leaf() != self.resource())
    }

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
        let change =
            |group: Group| Change { group, name: self.selected(group).map(str::to_owned), values: self.values(group) };
        Group::ALL.map(change).into()
    }

    /// The selected name of a group.
    pub fn selected(&self, group: Group) -> Option<&'static str> {
        match group {
            Group::Strategy => Some(self.intake.flush.strategy.name()),
            Group::Policy => Some(self.scheduler.policy.kind.name()),
            Group::Limits => None,
        }
    }

    /// The group's parameters as they stand, by their names in JSON.
    pub fn values(&self, group: Group) -> Vec<(String, Value)> {
        group.parameters().map(|knob| (knob.wire_name(), Value::of(knob.value(self)))).collect()
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
                next.set(change.group, name, value, start)?;
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

    fn set(&mut self, group: Group, name: &str, value: &Value, start: &Tuning) -> Result<(), RequestError> {
        let Some(knob) = group.parameters().find(|knob| knob.wire_name() == name) else {
            let valid: Vec<String> = group.parameters().map(Setting::wire_name).collect();
            return Err(RequestError::invalid(
                shortened(name),
                format!("is no parameter here; valid are {}", valid.join(", ")),
            ));
        };
        put(knob, self, value, start)
            .map_err(|allowed| RequestError::invalid(name, format!("must be {allowed}, got {value}")))
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
        let values =
            values.map(|((name, to), (_, from))| Changed { what: name, from: from.to_string(), to: to.to_string() });
        name.into_iter().chain(values).collect()
    }
}

/// Puts a value into `tuning` if it is of the knob's kind and within its range, which for some ends where the engine began.
/// An error says what is allowed.
fn put(knob: &Knob, tuning: &mut Tuning, value: &Value, start: &Tuning) -> Result<(), String> {
    let kind = knob.kind_since(start);
    // Every value has a text, and that it can be refused is the kind's to say. A name that is spelt like a number is none.
    let text = match (&kind, value) {
        (Kind::OneOf(_), Value::Name(name)) => name.clone(),
        (Kind::OneOf(_), _) | (_, Value::Name(_)) => return Err(kind.allowed()),
        (Kind::Duration { .. }, Value::Number(millis)) => format!("{millis}ms"),
        _ => value.to_string(),
    };
    kind.parse(&text).ok_or_else(|| kind.allowed())?;
    knob.put(tuning, &text)
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
