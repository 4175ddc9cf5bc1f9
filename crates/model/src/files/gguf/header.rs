//! The part of a file before its tensors' bytes.
//!
//! ```text
//! "GGUF" version | tensor count, key count | keys | tensors | padding | data
//! ```

use std::collections::HashMap;
use std::ops::Range;

use super::cursor::Cursor;
use super::tensor_type::{TensorType, tensor_type};
use super::value::{self, Value};
use crate::types::error::{GgufRule, TensorRule};

/// Far beyond any vocabulary, and little enough to walk through in a moment.
const MAX_METADATA: usize = 256 << 20;
/// The format's own limit.
const MAX_KEY: usize = 65_535;
/// ggml keeps names in 64 bytes, one of them a zero.
const MAX_TENSOR_NAME: usize = 63;
const MAX_DIMENSIONS: u32 = 4;
const DEFAULT_ALIGNMENT: usize = 32;
const ALIGNMENT: &str = "general.alignment";
/// Bytes of the shortest key (length, one byte, type, value) and tensor (length, one byte, count, one size, type, offset).
const LEAST_KEY: usize = 8 + 1 + 4 + 1;
const LEAST_TENSOR: usize = 8 + 1 + 4 + 8 + 4 + 8;

pub(crate) struct Header {
    pub keys: HashMap<String, Value>,
    /// Where each key stands in the file, with its value, in the file's order.
    pub entries: Vec<(String, Range<usize>)>,
    /// What tensors begin at a multiple of.
    pub alignment: usize,
    pub tensors: HashMap<String, TensorInfo>,
}

/// A tensor whose bytes lie within the file and are as many as its shape needs.
#[derive(Clone, Debug)]
pub(crate) struct TensorInfo {
    pub kind: TensorType,
    /// Outermost first, as everywhere here; the file has it the other way round.
    pub shape: Vec<usize>,
    /// Where in the file.
    pub bytes: Range<usize>,
}

/// Why a file is refused: as a whole, or for a tensor.
#[derive(Debug)]
pub(super) enum Refusal {
    File(GgufRule),
    Tensor(String, TensorRule),
}

impl From<GgufRule> for Refusal {
    fn from(rule: GgufRule) -> Refusal {
        Refusal::File(rule)
    }
}

pub(super) fn parse(bytes: &[u8]) -> Result<Header, Refusal> {
    let mut cursor = Cursor::new(bytes);
    check_version(&mut cursor)?;
    let tensor_count = cursor.u64("the number of tensors")?;
    let key_count = cursor.u64("the number of keys")?;
    let tensor_count = cursor.count(tensor_count, "tensors", LEAST_TENSOR)?;
    let key_count = cursor.count(key_count, "keys", LEAST_KEY)?;
    let (keys, places) = read_keys(&mut cursor, key_count)?;
    let alignment = alignment(&keys)?;
    let entries = (0..tensor_count).map(|_| read_tensor(&mut cursor)).collect::<Result<Vec<_>, _>>()?;
    within_budget(&cursor)?;

    let start = cursor.at().next_multiple_of(alignment);
    let present = bytes.len().saturating_sub(start);
    let mut tensors = HashMap::with_capacity(entries.len());
    let mut end = 0;
    for entry in entries {
        let place = entry.place(end, present, alignment).map_err(|rule| Refusal::Tensor(entry.name.into(), rule))?;
        end = place.end;
        let bytes = start + place.start..start + place.end;
        let info = TensorInfo { kind: entry.kind, shape: entry.shape, bytes };
        if tensors.insert(entry.name.to_string(), info).is_some() {
            return Err(Refusal::Tensor(entry.name.to_string(), TensorRule::Duplicate));
        }
    }
    Ok(Header { keys, entries: places, alignment, tensors })
}

fn check_version(cursor: &mut Cursor) -> Result<(), GgufRule> {
    let magic = cursor.array::<4>("GGUF")?;
    if magic != *b"GGUF" {
        return Err(GgufRule::Magic { found: magic.escape_ascii().to_string() });
    }
    match cursor.u32("a version")? {
        2 | 3 => Ok(()),
        version if matches!(version.swap_bytes(), 1..=3) => Err(GgufRule::BigEndian),
        version => Err(GgufRule::Version { version }),
    }
}

type Places = Vec<(String, Range<usize>)>;

fn read_keys(cursor: &mut Cursor, count: usize) -> Result<(HashMap<String, Value>, Places), GgufRule> {
    let (mut keys, mut places) = (HashMap::new(), Vec::new());
    for _ in 0..count {
        let start = cursor.at();
        let key = cursor.name("a key", MAX_KEY)?;
        let value = value::read(cursor, key)?;
        within_budget(cursor)?;
        if keys.insert(key.to_string(), value).is_some() {
            return Err(GgufRule::DuplicateKey { key: key.to_string() });
        }
        places.push((key.to_string(), start..cursor.at()));
    }
    Ok((keys, places))
}

fn within_budget(cursor: &Cursor) -> Result<(), GgufRule> {
    let bytes = cursor.at();
    if bytes <= MAX_METADATA { Ok(()) } else { Err(GgufRule::Metadata { bytes, limit: MAX_METADATA }) }
}

fn alignment(keys: &HashMap<String, Value>) -> Result<usize, GgufRule> {
    match keys.get(ALIGNMENT) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(Value::Unsigned(n)) if n.is_power_of_two() && *n <= 1 << 31 => Ok(*n as usize),
        Some(value) => Err(GgufRule::Alignment { found: value.to_string() }),
    }
}

/// A tensor as the header lists it.
struct Entry<'a> {
    name: &'a str,
    kind: TensorType,
    shape: Vec<usize>,
    offset: u64,
}

fn read_tensor<'a>(cursor: &mut Cursor<'a>) -> Result<Entry<'a>, Refusal> {
    let name = cursor.name("a tensor's name", MAX_TENSOR_NAME)?;
    let fault = |rule| Refusal::Tensor(name.to_string(), rule);
    let dimensions = cursor.u32("a tensor's dimensions")?;
    if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
        return Err(fault(TensorRule::Dimensions { found: dimensions }));
    }
    let mut shape = Vec::with_capacity(dimensions as usize);
    for _ in 0..dimensions {
        let size = cursor.u64("a tensor's shape")?;
        // Sizes are signed in ggml.
        let counted = usize::try_from(size).ok().filter(|&size| size > 0 && size <= isize::MAX as usize);
        shape.push(counted.ok_or_else(|| fault(TensorRule::Dimension { found: size }))?);
    }
    shape.reverse();
    let id = cursor.u32("a tensor's type")?;
    let kind = tensor_type(id).ok_or_else(|| fault(TensorRule::UnknownType { id }))?;
    Ok(Entry { name, kind, shape, offset: cursor.u64("a tensor's offset")? })
}

impl Entry<'_> {
    /// Its range in the data of `present` bytes: whole blocks, right behind the tensor before it, which ends at `end`.
    fn place(&self, end: usize, present: usize, alignment: usize) -> Result<Range<usize>, TensorRule> {
        let TensorType { name: dtype, numbers, bytes, .. } = self.kind;
        let width = self.shape[self.shape.len() - 1];
        if !width.is_multiple_of(numbers) {
            return Err(TensorRule::Blocks { width, dtype, numbers });
        }
        let count = self.shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
        let Some(size) = count.and_then(|count| (count / numbers).checked_mul(bytes)) else {
            return Err(TensorRule::Uncountable { shape: self.shape.clone(), dtype });
        };
        let begin = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let expected = end.checked_next_multiple_of(alignment).unwrap_or(usize::MAX);
        if begin != expected {
            return Err(TensorRule::Begin { begin, expected });
        }
        let end = begin.saturating_add(size);
        if end > present {
            return Err(TensorRule::Outside { begin, end, bytes: present });
        }
        Ok(begin..end)
    }
}
