//! What a setting may hold: its type and range, and how its values are written.

use std::fmt::Display;

use super::value::Value;
use crate::units::Micros;

/// The type of a setting, with its range. Both ends belong to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Bool,
    Whole {
        least: u64,
        most: u64,
    },
    /// `auto` or a whole number.
    AutoWhole {
        least: u64,
        most: u64,
    },
    Real {
        least: f64,
        most: f64,
    },
    /// A time in milliseconds, written without a unit because the key ends with `_ms`.
    Millis {
        least: Micros,
        most: Micros,
    },
    /// A time with its unit: `250ms`, `30s`, `5m`, `1h`.
    Duration {
        least: Micros,
        most: Micros,
    },
    /// `auto` or a size in GiB, which the field holds in bytes.
    AutoGib {
        least: f64,
        most: f64,
    },
    OneOf(Vec<&'static str>),
    Text,
    /// Texts, separated by commas; in YAML a list, too.
    List,
}

const AUTO: &str = "auto";
const GIB: f64 = (1u64 << 30) as f64;
const UNITS: [(&str, Micros); 4] =
    [("h", Micros::HOUR), ("m", Micros::MINUTE), ("s", Micros::SECOND), ("ms", Micros::MILLISECOND)];

impl Kind {
    /// The value that `text` stands for; `None` is outside the range, or no value at all.
    pub fn parse(&self, text: &str) -> Option<Value> {
        let text = text.trim();
        match self {
            Kind::Bool => text.parse().ok().map(Value::Bool),
            Kind::AutoWhole { .. } | Kind::AutoGib { .. } if text == AUTO => Some(Value::Unset),
            Kind::Whole { least, most } | Kind::AutoWhole { least, most } => {
                let number = text.replace('_', "").parse().ok();
                number.filter(|number| (least..=most).contains(&number)).map(Value::Whole)
            }
            Kind::Real { least, most } => real(text, *least, *most).map(Value::Real),
            Kind::AutoGib { least, most } => {
                real(text, *least, *most).map(|gib| Value::Whole((gib * GIB).round() as u64))
            }
            Kind::Millis { least, most } => within(micros(text, Micros::MILLISECOND), *least, *most),
            Kind::Duration { least, most } => within(duration(text), *least, *most),
            Kind::OneOf(names) => names.contains(&text).then(|| Value::Text(text.to_owned())),
            Kind::Text => Some(Value::Text(text.to_owned())),
            Kind::List => Some(Value::List(list(text))),
        }
    }

    /// How a value is written; [`Kind::parse`] reads it back.
    pub fn show(&self, value: &Value) -> String {
        match (self, value) {
            (Kind::AutoWhole { .. } | Kind::AutoGib { .. }, Value::Unset) => AUTO.to_owned(),
            (Kind::Duration { .. }, Value::Unset) => with_unit(Micros::ZERO),
            (Kind::Whole { .. } | Kind::Real { .. } | Kind::Millis { .. }, Value::Unset) => "0".to_owned(),
            (_, Value::Unset) => String::new(),
            (Kind::AutoGib { .. }, Value::Whole(bytes)) => (*bytes as f64 / GIB).to_string(),
            (Kind::Duration { .. }, Value::Time(time)) => with_unit(*time),
            (_, Value::Time(time)) => millis(*time).to_string(),
            (_, Value::Bool(set)) => set.to_string(),
            (_, Value::Whole(number)) => number.to_string(),
            (_, Value::Real(number)) => number.to_string(),
            (_, Value::Text(text)) => text.clone(),
            (_, Value::List(items)) => items.join(","),
        }
    }

    /// What is allowed, in the words of every refusal and of the documentation.
    pub fn allowed(&self) -> String {
        let from = |what: &str, least: &dyn Display, most: &dyn Display| format!("{what} from {least} to {most}");
        match self {
            Kind::Bool => "true or false".to_owned(),
            Kind::Whole { least, most } => from("a whole number", least, most),
            Kind::AutoWhole { least, most } => from("auto or a whole number", least, most),
            Kind::Real { least, most } => from("a number", least, most),
            Kind::Millis { least, most } => from("a number of milliseconds", &millis(*least), &millis(*most)),
            Kind::Duration { least, most } => {
                from("a duration with a unit (ms, s, m, h)", &with_unit(*least), &with_unit(*most))
            }
            Kind::AutoGib { least, most } => from("auto or a number of GiB", least, most),
            Kind::OneOf(names) => format!("one of {}", names.join(", ")),
            Kind::Text => "text".to_owned(),
            Kind::List => "a list, separated by commas".to_owned(),
        }
    }

    /// The least and the greatest value, in milliseconds where it is a time; `None` where there is no order.
    pub fn bounds(&self) -> Option<(f64, f64)> {
        match self {
            Kind::Whole { least, most } | Kind::AutoWhole { least, most } => Some((*least as f64, *most as f64)),
            Kind::Real { least, most } | Kind::AutoGib { least, most } => Some((*least, *most)),
            Kind::Millis { least, most } | Kind::Duration { least, most } => Some((millis(*least), millis(*most))),
            Kind::Bool | Kind::OneOf(_) | Kind::Text | Kind::List => None,
        }
    }

    /// The names of a choice; `None` of every other kind.
    pub fn names(&self) -> Option<&[&'static str]> {
        if let Kind::OneOf(names) = self { Some(names) } else { None }
    }

    /// The same kind, ending at `end` where it is a whole number that could be greater.
    pub fn up_to(&self, end: &Value) -> Kind {
        match (self, end) {
            (Kind::Whole { least, most }, Value::Whole(end)) => Kind::Whole { least: *least, most: *most.min(end) },
            _ => self.clone(),
        }
    }

    /// The type in one word, for forms.
    pub const fn name(&self) -> &'static str {
        match self {
            Kind::Bool => "bool",
            Kind::Whole { .. } | Kind::AutoWhole { .. } => "whole",
            Kind::Real { .. } | Kind::AutoGib { .. } => "number",
            Kind::Millis { .. } | Kind::Duration { .. } => "milliseconds",
            Kind::OneOf(_) => "choice",
            Kind::Text => "text",
            Kind::List => "list",
        }
    }
}

/// The parts of a list in `text`; empty ones are none.
pub fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn real(text: &str, least: f64, most: f64) -> Option<f64> {
    // Comparisons with NaN are false, so it is refused.
    text.parse().ok().filter(|number| (least..=most).contains(number))
}

fn within(time: Option<Micros>, least: Micros, most: Micros) -> Option<Value> {
    time.filter(|time| (least..=most).contains(time)).map(Value::Time)
}

/// `1.5s`. A number without a unit could mean anything, and is refused.
fn duration(text: &str) -> Option<Micros> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let (_, length) = UNITS.into_iter().find(|(name, _)| *name == unit.trim())?;
    micros(number, length)
}

fn micros(number: &str, unit: Micros) -> Option<Micros> {
    let micros = number.parse::<f64>().ok()? * unit.0 as f64;
    (0.0..1e18).contains(&micros).then(|| Micros(micros.round() as u64))
}

fn millis(time: Micros) -> f64 {
    time.0 as f64 / 1e3
}

/// In the largest unit of which it is a whole number.
fn with_unit(time: Micros) -> String {
    if time == Micros::ZERO {
        return "0s".to_owned();
    }
    match UNITS.into_iter().find(|(_, unit)| time.0.is_multiple_of(unit.0)) {
        Some((name, unit)) => format!("{}{name}", time.0 / unit.0),
        None => format!("{}ms", millis(time)),
    }
}
