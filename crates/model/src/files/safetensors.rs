//! Safetensors files: eight bytes of header length, a JSON header, then the tensors' bytes without gaps.
//!
//! The header is checked in full before any tensor is touched: lengths within the file, known sizes, no overlap, no gap,
//! no name twice. Afterwards a tensor's bytes are just a slice.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::json::{self, Fields};
use super::map::Bytes;
use super::numbers::{Numbers, Packed};
use crate::types::error::{HeaderRule, LoadError, TensorRule};
use crate::types::options::Dtype;
use forebay_kernels::packed::Packing;

/// The reference implementation's own limit.
const MAX_HEADER: u64 = 100_000_000;
const MAX_INDEX: u64 = 100_000_000;
const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// One file or several, as one set of named tensors.
pub(crate) struct Checkpoint {
    files: Vec<TensorFile>,
    /// Tensor name to index into `files`.
    places: HashMap<String, usize>,
    /// Blamed for missing tensors: the single file, or the index.
    described_by: PathBuf,
}

impl Checkpoint {
    /// `model.safetensors`, or else the files that `model.safetensors.index.json` names.
    pub(crate) fn open(folder: &Path) -> Result<Checkpoint, LoadError> {
        let (single, index) = (folder.join(SINGLE), folder.join(INDEX));
        if single.exists() {
            Checkpoint::single(single.clone(), Bytes::map(&single)?)
        } else if index.exists() {
            Checkpoint::sharded(folder, index)
        } else {
            Err(LoadError::NoWeights { path: folder.to_path_buf() })
        }
    }

    /// One file; `path` names it in errors.
    pub(crate) fn single(path: PathBuf, bytes: Bytes) -> Result<Checkpoint, LoadError> {
        let file = TensorFile::parse(path.clone(), bytes)?;
        let places = file.entries.keys().map(|name| (name.clone(), 0)).collect();
        Ok(Checkpoint { files: vec![file], places, described_by: path })
    }

    fn sharded(folder: &Path, index: PathBuf) -> Result<Checkpoint, LoadError> {
        let fields = Fields::parse(&index, &json::read_file(&index, MAX_INDEX)?)?;
        let map = fields.object("weight_map")?.ok_or_else(|| fields.broken("weight_map", "is missing"))?;
        let mut files: Vec<TensorFile> = Vec::new();
        let mut opened: HashMap<String, usize> = HashMap::new();
        let mut places = HashMap::new();
        for tensor in map.keys() {
            let named = map.text(tensor)?.unwrap_or_default();
            let fault = |rule| LoadError::Tensor { path: index.clone(), tensor: tensor.clone(), rule };
            if !is_plain_file_name(named) {
                return Err(fault(TensorRule::IndexFile { named: named.chars().take(80).collect() }));
            }
            let place = match opened.get(named) {
                Some(&place) => place,
                None => {
                    let path = folder.join(named);
                    files.push(TensorFile::parse(path.clone(), Bytes::map(&path)?)?);
                    opened.insert(named.to_string(), files.len() - 1);
                    files.len() - 1
                }
            };
            if !files[place].entries.contains_key(tensor) {
                return Err(fault(TensorRule::NotInShard { file: named.to_string() }));
            }
            places.insert(tensor.clone(), place);
        }
        Ok(Checkpoint { files, places, described_by: index })
    }

    /// `(dtype, bytes)` of every tensor.
    pub(crate) fn census(&self) -> impl Iterator<Item = (&str, u64)> {
        let placed = self.places.iter().filter_map(|(name, &place)| self.files[place].entries.get(name));
        placed.map(|entry| (entry.dtype.as_str(), (entry.data_offsets.1 - entry.data_offsets.0) as u64))
    }

    /// What most bytes are.
    pub(crate) fn dtype(&self) -> Dtype {
        let bytes = |name: &str| self.census().filter(|(dtype, _)| *dtype == name).map(|(_, bytes)| bytes).sum::<u64>();
        let named = [("BF16", Dtype::Bf16), ("F16", Dtype::F16), ("F32", Dtype::F32)];
        named.into_iter().max_by_key(|(name, _)| bytes(name)).map_or(Dtype::F32, |(_, dtype)| dtype)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }

    /// Of a matrix; `None` where there is no tensor of that name and rank.
    pub(crate) fn shape(&self, name: &str) -> Option<[usize; 2]> {
        let entry = self.files[*self.places.get(name)?].entries.get(name)?;
        entry.shape.as_slice().try_into().ok()
    }

    /// The tensor `name`, once its shape and dtype are found to be right.
    pub(crate) fn tensor(&self, name: &str, shape: &[usize]) -> Result<Numbers, LoadError> {
        let Some((name, &place)) = self.places.get_key_value(name).or_else(|| self.other_name(name)) else {
            let (path, tensor) = (self.described_by.clone(), name.to_string());
            return Err(LoadError::Tensor { path, tensor, rule: TensorRule::Missing });
        };
        let file = &self.files[place];
        file.tensor(name, shape).map_err(|rule| file.fault(name, rule))
    }

    /// How a checkpoint may call `name`, too: saved without the head that stands above a model it has no `model.`, and an
    /// encoder saved with one has a prefix. The first BERTs called the parts of their norms otherwise.
    fn other_name(&self, name: &str) -> Option<(&String, &usize)> {
        const PREFIXES: [&str; 3] = ["bert.", "roberta.", "distilbert."];
        const PARTS: [(&str, &str); 2] =
            [("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")];
        if let Some(bare) = name.strip_prefix("model.") {
            return self.places.get_key_value(bare);
        }
        let old = PARTS.iter().find_map(|(new, old)| Some(format!("{}{old}", name.strip_suffix(new)?)));
        let mut names = [Some(name.to_string()), old].into_iter().flatten();
        names.find_map(|name| {
            let prefixed = PREFIXES.iter().map(|prefix| format!("{prefix}{name}"));
            [name.clone()].into_iter().chain(prefixed).find_map(|name| self.places.get_key_value(&name))
        })
    }
}

/// A name that cannot lead out of its folder, on any system.
fn is_plain_file_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', ':', '\0'])
}

/// One file, its header found consistent.
struct TensorFile {
    path: PathBuf,
    bytes: Arc<Bytes>,
    /// Where the tensors' bytes begin.
    data: usize,
    entries: HashMap<String, Entry>,
}

/// One tensor of the header.
#[derive(Clone, Debug, Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    /// Begin and end, counted from the end of the header.
    data_offsets: (usize, usize),
}

impl TensorFile {
    fn parse(path: PathBuf, bytes: Bytes) -> Result<TensorFile, LoadError> {
        let (header, data) = match split_header(&bytes) {
            Ok(split) => split,
            Err(rule) => return Err(LoadError::Header { path, rule }),
        };
        let mut tensors = match serde_json::from_slice::<Header>(header) {
            Ok(header) => header.0,
            Err(error) => return Err(LoadError::Header { path, rule: HeaderRule::Json(error.to_string()) }),
        };
        let file = TensorFile { path, data: bytes.len() - data, bytes: Arc::new(bytes), entries: HashMap::new() };
        tensors.sort_by_key(|(_, entry)| entry.data_offsets);
        let mut end = 0;
        for (name, entry) in &tensors {
            end = check_entry(entry, end, data).map_err(|rule| file.fault(name, rule))?;
        }
        if end != data {
            return Err(LoadError::Header { path: file.path, rule: HeaderRule::Uncovered { end, bytes: data } });
        }
        let mut entries = HashMap::with_capacity(tensors.len());
        for (name, entry) in tensors {
            if entries.contains_key(&name) {
                return Err(file.fault(&name, TensorRule::Duplicate));
            }
            entries.insert(name, entry);
        }
        Ok(TensorFile { entries, ..file })
    }

    fn fault(&self, name: &str, rule: TensorRule) -> LoadError {
        let tensor = name.chars().take(200).collect();
        LoadError::Tensor { path: self.path.clone(), tensor, rule }
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Numbers, TensorRule> {
        let entry = self.entries.get(name).ok_or(TensorRule::Missing)?;
        if entry.shape != shape {
            return Err(TensorRule::Shape { expected: shape.to_vec(), found: entry.shape.clone() });
        }
        let (begin, end) = entry.data_offsets;
        let packing = match entry.dtype.as_str() {
            "F32" => Packing::F32,
            "F16" => Packing::F16,
            "BF16" => Packing::Bf16,
            other => return Err(TensorRule::Dtype { found: other.to_string() }),
        };
        Ok(Numbers::Packed(Packed::new(packing, self.bytes.clone(), self.data + begin..self.data + end)))
    }
}

/// The header's bytes, and the number of bytes behind it.
fn split_header(bytes: &[u8]) -> Result<(&[u8], usize), HeaderRule> {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(HeaderRule::Short { bytes: bytes.len() });
    };
    let claimed = u64::from_le_bytes(*length);
    if claimed > MAX_HEADER {
        return Err(HeaderRule::Limit { claimed, limit: MAX_HEADER });
    }
    match rest.split_at_checked(claimed as usize) {
        Some((header, data)) => Ok((header, data.len())),
        None => Err(HeaderRule::Length { claimed, present: rest.len() }),
    }
}

/// The tensor begins at `expected`, lies within `bytes`, and is as long as its shape says; returns where it ends.
fn check_entry(entry: &Entry, expected: usize, bytes: usize) -> Result<usize, TensorRule> {
    let (begin, end) = entry.data_offsets;
    if begin > end || end > bytes {
        return Err(TensorRule::Outside { begin, end, bytes });
    }
    if begin != expected {
        return Err(TensorRule::Begin { begin, expected });
    }
    let Some(bits) = dtype_bits(&entry.dtype) else {
        return Err(TensorRule::Dtype { found: entry.dtype.clone() });
    };
    let needed = entry.shape.iter().try_fold(bits, |bits, &size| bits.checked_mul(size)).map(|bits| bits.div_ceil(8));
    if needed != Some(end - begin) {
        let (shape, dtype) = (entry.shape.clone(), entry.dtype.clone());
        return Err(TensorRule::Size { shape, dtype, needed, claimed: end - begin });
    }
    Ok(end)
}

/// Sizes of all dtypes of the format: a file may hold tensors that no decoder asks for.
fn dtype_bits(dtype: &str) -> Option<usize> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => 8,
        "U16" | "I16" | "F16" | "BF16" => 16,
        "U32" | "I32" | "F32" => 32,
        "U64" | "I64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

/// The header as a list, so that a name listed twice is seen; a map would keep the last one silently.
struct Header(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Header, D::Error> {
        struct Tensors;
        impl<'de> Visitor<'de> for Tensors {
            type Value = Header;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Header, M::Error> {
                let mut tensors = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<serde::de::IgnoredAny>()?;
                    } else {
                        tensors.push((name, map.next_value()?));
                    }
                }
                Ok(Header(tensors))
            }
        }
        deserializer.deserialize_map(Tensors)
    }
}
