//! A setting's value on its way between text and the field that holds it.

use crate::units::Micros;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `auto`, an empty text, or a zero that means off.
    Unset,
    Bool(bool),
    Whole(u64),
    Real(f64),
    Time(Micros),
    Text(String),
    List(Vec<String>),
}

impl Value {
    pub fn is_zero(&self) -> bool {
        matches!(self, Value::Whole(0) | Value::Time(Micros::ZERO)) || *self == Value::Real(0.0)
    }
}
