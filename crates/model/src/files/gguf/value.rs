//! Metadata values. Texts and arrays are ranges of the file's bytes, decoded when they are asked for.

use std::fmt;
use std::ops::Range;

use super::cursor::Cursor;
use crate::types::error::GgufRule;

/// What a key holds.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Flag(bool),
    Text(Range<usize>),
    Array(Array),
}

/// Values of one kind, none of them arrays: llama.cpp does not read those either.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub element: Kind,
    pub count: usize,
    /// Where the elements lie; strings each with their length before them.
    pub at: Range<usize>,
}

/// The type of a value, by its number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl Kind {
    fn new(id: u32) -> Option<Kind> {
        const KINDS: [Kind; 13] = [
            Kind::U8,
            Kind::I8,
            Kind::U16,
            Kind::I16,
            Kind::U32,
            Kind::I32,
            Kind::F32,
            Kind::Bool,
            Kind::String,
            Kind::Array,
            Kind::U64,
            Kind::I64,
            Kind::F64,
        ];
        KINDS.get(id as usize).copied()
    }

    /// Bytes of one value; of the least one where they vary.
    fn size(self) -> usize {
        match self {
            Kind::U8 | Kind::I8 | Kind::Bool => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::String | Kind::U64 | Kind::I64 | Kind::F64 => 8,
            Kind::Array => 12,
        }
    }
}

/// A type's number, which `key` is to have.
pub(super) fn kind(cursor: &mut Cursor, key: &str) -> Result<Kind, GgufRule> {
    let id = cursor.u32("a value's type")?;
    Kind::new(id).ok_or_else(|| GgufRule::ValueType { key: key.to_string(), id })
}

/// The value of `key`, checked to lie within the file.
pub(super) fn read(cursor: &mut Cursor, key: &str) -> Result<Value, GgufRule> {
    const WHAT: &str = "a value";
    Ok(match kind(cursor, key)? {
        Kind::U8 => Value::Unsigned(u8::from_le_bytes(cursor.array(WHAT)?).into()),
        Kind::I8 => Value::Signed(i8::from_le_bytes(cursor.array(WHAT)?).into()),
        Kind::U16 => Value::Unsigned(u16::from_le_bytes(cursor.array(WHAT)?).into()),
        Kind::I16 => Value::Signed(i16::from_le_bytes(cursor.array(WHAT)?).into()),
        Kind::U32 => Value::Unsigned(u32::from_le_bytes(cursor.array(WHAT)?).into()),
        Kind::I32 => Value::Signed(i32::from_le_bytes(cursor.array(WHAT)?).into()),
        Kind::F32 => Value::Float(f32::from_le_bytes(cursor.array(WHAT)?).into()),
        Kind::Bool => Value::Flag(cursor.array::<1>(WHAT)? != [0]),
        Kind::String => Value::Text(cursor.string("a string")?),
        Kind::Array => Value::Array(array(cursor, key)?),
        Kind::U64 => Value::Unsigned(u64::from_le_bytes(cursor.array(WHAT)?)),
        Kind::I64 => Value::Signed(i64::from_le_bytes(cursor.array(WHAT)?)),
        Kind::F64 => Value::Float(f64::from_le_bytes(cursor.array(WHAT)?)),
    })
}

fn array(cursor: &mut Cursor, key: &str) -> Result<Array, GgufRule> {
    let element = kind(cursor, key)?;
    if element == Kind::Array {
        return Err(GgufRule::Nested { key: key.to_string() });
    }
    let claimed = cursor.u64("an array's length")?;
    let count = cursor.count(claimed, "array elements", element.size())?;
    let start = cursor.at();
    if element == Kind::String {
        for _ in 0..count {
            cursor.string("a string of an array")?;
        }
    } else {
        cursor.skip((count * element.size()) as u64, "an array")?;
    }
    Ok(Array { element, count, at: start..cursor.at() })
}

impl Array {
    /// The bytes of each string; `None` where the elements are something else.
    pub(crate) fn strings<'a>(&self, file: &'a [u8]) -> Option<Vec<&'a [u8]>> {
        if self.element != Kind::String {
            return None;
        }
        let bytes = &file[self.at.clone()];
        let mut cursor = Cursor::new(bytes);
        (0..self.count).map(|_| Some(&bytes[cursor.string("a string of an array").ok()?])).collect()
    }

    pub(crate) fn floats(&self, file: &[u8]) -> Option<Vec<f32>> {
        self.fours(Kind::F32, file).map(|fours| fours.iter().map(|&four| f32::from_le_bytes(four)).collect())
    }

    pub(crate) fn flags(&self, file: &[u8]) -> Option<Vec<bool>> {
        (self.element == Kind::Bool).then(|| file[self.at.clone()].iter().map(|&byte| byte != 0).collect())
    }

    pub(crate) fn integers(&self, file: &[u8]) -> Option<Vec<i32>> {
        let fours = self.fours(Kind::I32, file).or_else(|| self.fours(Kind::U32, file))?;
        Some(fours.iter().map(|&four| i32::from_le_bytes(four)).collect())
    }

    fn fours<'a>(&self, element: Kind, file: &'a [u8]) -> Option<&'a [[u8; 4]]> {
        (self.element == element).then(|| file[self.at.clone()].as_chunks().0)
    }
}

/// As an error quotes it: numbers as they are, texts and arrays by their size.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Value::Unsigned(n) => write!(f, "{n}"),
            Value::Signed(n) => write!(f, "{n}"),
            Value::Float(x) => write!(f, "{x:?}"),
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::Text(range) => write!(f, "a string of {} bytes", range.len()),
            Value::Array(array) => write!(f, "an array of {} {:?}", array.count, array.element),
        }
    }
}
