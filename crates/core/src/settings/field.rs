//! The types of fields that a setting may be kept in.

use std::path::PathBuf;
use std::time::Duration;

use super::kind::Kind;
use super::value::Value;
use crate::units::Micros;

/// A field of a configuration that a [`Value`] can be put into and read from.
pub trait Field {
    /// Everything that the field can hold; a row narrows it.
    fn kind() -> Kind;

    fn value(&self) -> Value;

    /// Panics where the value is of another type: then the row is wrong, not its user.
    fn put(&mut self, value: Value);
}

/// For a row whose kind is not its field's.
fn mismatch(value: &Value) -> ! {
    panic!("a setting's kind does not suit its field: {value:?}")
}

macro_rules! whole {
    ($($type:ty)*) => {
        $(impl Field for $type {
            fn kind() -> Kind {
                Kind::Whole { least: 0, most: <$type>::MAX as u64 }
            }

            fn value(&self) -> Value {
                Value::Whole(*self as u64)
            }

            fn put(&mut self, value: Value) {
                match value {
                    Value::Whole(number) => *self = <$type>::try_from(number).unwrap_or(<$type>::MAX),
                    other => mismatch(&other),
                }
            }
        })*
    };
}

whole! { u16 u32 u64 usize }

impl Field for bool {
    fn kind() -> Kind {
        Kind::Bool
    }

    fn value(&self) -> Value {
        Value::Bool(*self)
    }

    fn put(&mut self, value: Value) {
        match value {
            Value::Bool(set) => *self = set,
            other => mismatch(&other),
        }
    }
}

impl Field for f64 {
    fn kind() -> Kind {
        Kind::Real { least: f64::MIN, most: f64::MAX }
    }

    fn value(&self) -> Value {
        Value::Real(*self)
    }

    fn put(&mut self, value: Value) {
        match value {
            Value::Real(number) => *self = number,
            Value::Whole(number) => *self = number as f64,
            other => mismatch(&other),
        }
    }
}

impl Field for Micros {
    fn kind() -> Kind {
        Kind::Duration { least: Micros::ZERO, most: Micros(u64::MAX) }
    }

    fn value(&self) -> Value {
        Value::Time(*self)
    }

    fn put(&mut self, value: Value) {
        match value {
            Value::Time(time) => *self = time,
            other => mismatch(&other),
        }
    }
}

impl Field for Duration {
    fn kind() -> Kind {
        Micros::kind()
    }

    fn value(&self) -> Value {
        Value::Time(Micros(self.as_micros() as u64))
    }

    fn put(&mut self, value: Value) {
        match value {
            Value::Time(time) => *self = Duration::from_micros(time.0),
            other => mismatch(&other),
        }
    }
}

impl Field for String {
    fn kind() -> Kind {
        Kind::Text
    }

    fn value(&self) -> Value {
        Value::Text(self.clone())
    }

    fn put(&mut self, value: Value) {
        match value {
            Value::Text(text) => *self = text,
            other => mismatch(&other),
        }
    }
}

impl Field for PathBuf {
    fn kind() -> Kind {
        Kind::Text
    }

    fn value(&self) -> Value {
        Value::Text(self.to_string_lossy().into_owned())
    }

    fn put(&mut self, value: Value) {
        match value {
            Value::Text(text) => *self = text.into(),
            other => mismatch(&other),
        }
    }
}

impl Field for Vec<String> {
    fn kind() -> Kind {
        Kind::List
    }

    fn value(&self) -> Value {
        Value::List(self.clone())
    }

    fn put(&mut self, value: Value) {
        match value {
            Value::List(items) => *self = items,
            other => mismatch(&other),
        }
    }
}

/// `None` is [`Value::Unset`], and an empty text.
impl<T: Field + Default> Field for Option<T> {
    fn kind() -> Kind {
        match T::kind() {
            Kind::Whole { least, most } => Kind::AutoWhole { least, most },
            other => other,
        }
    }

    fn value(&self) -> Value {
        self.as_ref().map_or(Value::Unset, Field::value)
    }

    fn put(&mut self, value: Value) {
        let unset = value == Value::Unset || matches!(&value, Value::Text(text) if text.is_empty());
        *self = (!unset).then(|| {
            let mut inner = T::default();
            inner.put(value);
            inner
        });
    }
}
