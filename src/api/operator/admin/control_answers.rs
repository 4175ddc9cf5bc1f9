//! What is in force, as the operator's changes answer it.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::pipeline::ordered::Ordered;
use forebay_turn::control::{self, Changed};
use forebay_turn::stats::ThermalStats;

/// The parameters of a group, and which name is in force.
#[derive(Serialize, ToSchema)]
pub struct Control {
    #[schema(value_type = BTreeMap<String, Value>)]
    pub parameters: Parameters,
    /// Of each parameter, what a form needs to know.
    #[schema(value_type = BTreeMap<String, ControlSetting>)]
    pub settings: ControlSettings,
    /// Not of limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<Vec<&'static str>>,
    /// Only where it is false: the change is in force, and the store did not take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audited: Option<bool>,
    /// After a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<Vec<ControlChanged>>,
}

/// One of a group's names.
#[derive(Serialize, ToSchema)]
pub struct ControlName {
    pub name: &'static str,
    pub active: bool,
    #[schema(value_type = BTreeMap<String, Value>)]
    pub parameters: Parameters,
}

/// By name: numbers, booleans and names.
pub type Parameters = Ordered<Parameter>;

pub type ControlSettings = Ordered<ControlSetting>;

/// The kind of a parameter, its ends or names, and its help.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ControlSetting {
    /// `bool`, `whole`, `number`, `milliseconds` or `choice`.
    pub kind: &'static str,
    pub help: &'static str,
    /// Of numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub min: Option<Parameter>,
    /// Of numbers; it may be what memory was sized for at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub max: Option<Parameter>,
    /// Of a choice: its names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choices: Option<Vec<&'static str>>,
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Parameter {
    Bool(bool),
    /// Written without a fraction.
    Whole(i64),
    Number(f64),
    Name(String),
}

impl From<control::Value> for Parameter {
    fn from(value: control::Value) -> Parameter {
        match value {
            control::Value::Bool(set) => Parameter::Bool(set),
            control::Value::Number(number) if number.fract() == 0.0 => Parameter::Whole(number as i64),
            control::Value::Number(number) => Parameter::Number(number),
            control::Value::Name(name) => Parameter::Name(name),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct ControlChanged {
    what: String,
    from: String,
    to: String,
}

impl From<Changed> for ControlChanged {
    fn from(Changed { what, from, to }: Changed) -> ControlChanged {
        ControlChanged { what, from, to }
    }
}

/// How hot it is, and which levels can be held.
#[derive(Serialize, ToSchema)]
pub struct Thermal {
    #[serde(flatten)]
    pub now: ThermalNow,
    pub available: Vec<&'static str>,
    /// Of one level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
}

#[derive(Serialize, ToSchema)]
pub struct ThermalNow {
    pub level: &'static str,
    /// An operator holds it there.
    pub forced: bool,
    #[schema(required = true)]
    celsius: Option<f64>,
}

impl ThermalNow {
    pub fn of(thermal: &ThermalStats) -> ThermalNow {
        let ThermalStats { level, forced, celsius } = *thermal;
        ThermalNow { level, forced, celsius }
    }
}

#[derive(Serialize, ToSchema)]
pub struct EngineState {
    pub paused: bool,
    pub draining: bool,
}

#[derive(Serialize, ToSchema)]
pub struct Draining {
    pub draining: bool,
}

#[derive(Serialize, ToSchema)]
pub struct Reset {
    pub reset: bool,
}
