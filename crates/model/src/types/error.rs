//! Why a model cannot be loaded: each error names the file, where it applies the tensor or key, and the rule. And why a
//! forward pass did not happen.
//!
//! Errors are plain data; no error knows a backend. What a device's library says arrives as a text in a [`DeviceError`].

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::batch::BatchError;
use super::device::{DeviceError, DeviceMemory};
use forebay_kernels::isa::IsaError;

#[derive(Debug, Error)]
pub enum LoadError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: must be a regular file", path.display())]
    NotRegular { path: PathBuf },
    #[error("{}: has {bytes} bytes, more than the {limit} allowed for this file", path.display())]
    TooLarge { path: PathBuf, bytes: u64, limit: u64 },
    #[error("{}: not valid JSON: {reason}", path.display())]
    Json { path: PathBuf, reason: String },
    /// A key of a JSON file breaks a rule.
    #[error("{}: `{key}` {rule}", path.display())]
    Key { path: PathBuf, key: String, rule: String },
    #[error("{}: architecture {found} is not supported; supported: {supported}", path.display())]
    Architecture { path: PathBuf, found: String, supported: String },
    #[error("{}: must hold model.safetensors or model.safetensors.index.json", path.display())]
    NoWeights { path: PathBuf },
    #[error("{}: {rule}", path.display())]
    Header { path: PathBuf, rule: HeaderRule },
    #[error("{}: {rule}", path.display())]
    Gguf { path: PathBuf, rule: GgufRule },
    #[error("{}: holds {count} .gguf files and no config.json: name one of them", path.display())]
    SeveralGguf { path: PathBuf, count: usize },
    #[error("{}: tensor {tensor}: {rule}", path.display())]
    Tensor { path: PathBuf, tensor: String, rule: TensorRule },
    #[error("{}: asks for {parameters} parameters, more than the {limit} of dummy weights", path.display())]
    DummySize { path: PathBuf, parameters: u64, limit: u64 },
    #[error("device: {0}")]
    Device(#[from] DeviceError),
    #[error("no CUDA device can be used: {reason}; --device cpu takes the processor")]
    NoGpu { reason: String },
    #[error("there is no device cuda:{ordinal}; {count} are there, from cuda:0 on")]
    NoSuchGpu { ordinal: usize, count: usize },
    #[error(
        "the weights do not fit: they take about {} MiB in {dtype}, and {} of the device's {} MiB are free; {advice}",
        weights >> 20, memory.free >> 20, memory.total >> 20
    )]
    DeviceMemory { weights: u64, dtype: &'static str, memory: DeviceMemory, advice: String },
    #[error("kv_cache.dtype {dtype} is for the CPU; other devices keep keys and values in f32, f16 or bf16")]
    KvDtypeDevice { dtype: &'static str },
    #[error("model.dtype {dtype} is for devices; on the CPU our kernels compute in f32 whatever weights are stored in")]
    DtypeDevice { dtype: &'static str },
    #[error("heads of {head_dim} dimensions have no kernel on this device; it takes multiples of 8 up to 256")]
    HeadDim { head_dim: usize },
    #[error("kv_cache.dtype {dtype} wants heads of a multiple of 32 dimensions; this model's have {head_dim}")]
    KvDtypeHeads { dtype: &'static str, head_dim: usize },
    #[error("{}: adapters are for models that generate; this one only embeds", path.display())]
    NoAdapters { path: PathBuf },
    #[error(transparent)]
    Isa(#[from] IsaError),
    #[error("built without the feature `{feature}`, which {what} needs")]
    Feature { what: &'static str, feature: &'static str },
}

/// A forward pass that did not happen, or (for a device) did not finish; running the same step again is safe, for keys
/// and values written twice are the same.
#[derive(Debug, Error)]
pub enum ForwardError {
    #[error("no cache: allocate_kv was not called")]
    NoCache,
    /// Nothing was computed or written.
    #[error("inconsistent batch: {0}")]
    Batch(#[from] BatchError),
    #[error("device: {0}")]
    Device(#[from] DeviceError),
}

/// What the beginning of a safetensors file must satisfy.
#[derive(Debug, Error, PartialEq)]
pub enum HeaderRule {
    #[error("must be at least 8 bytes long, has {bytes}")]
    Short { bytes: usize },
    #[error("header must lie within the file: it claims {claimed} bytes, {present} follow")]
    Length { claimed: u64, present: usize },
    #[error("header of {claimed} bytes exceeds the limit of {limit}")]
    Limit { claimed: u64, limit: u64 },
    #[error("header must be a JSON object of tensors: {0}")]
    Json(String),
    #[error("tensors must cover the data exactly: they end at byte {end} of {bytes}")]
    Uncovered { end: usize, bytes: usize },
}

/// What the beginning of a GGUF file must satisfy. `at` counts bytes from its start.
#[derive(Debug, Error, PartialEq)]
pub enum GgufRule {
    #[error("must begin with GGUF, begins with {found:?}")]
    Magic { found: String },
    #[error("must be little-endian; this file is for big-endian machines")]
    BigEndian,
    #[error("version must be 2 or 3, is {version}")]
    Version { version: u32 },
    #[error("must hold {what} of {claimed} bytes at byte {at}; {present} follow")]
    End { what: &'static str, at: usize, claimed: u64, present: usize },
    #[error("must hold {claimed} {what}; what is left has room for at most {limit}")]
    Count { what: &'static str, claimed: u64, limit: usize },
    #[error("{what} at byte {at} must have 1 to {limit} bytes, claims {claimed}")]
    NameLength { what: &'static str, at: usize, claimed: u64, limit: usize },
    #[error("{what} at byte {at} must be UTF-8")]
    NameText { what: &'static str, at: usize },
    #[error("`{key}` has the value type {id}, which does not exist")]
    ValueType { key: String, id: u32 },
    #[error("`{key}` must not be an array of arrays")]
    Nested { key: String },
    #[error("`{key}` is listed twice")]
    DuplicateKey { key: String },
    #[error("keys and tensor list must take at most {limit} bytes, take {bytes} or more")]
    Metadata { bytes: usize, limit: usize },
    #[error("`general.alignment` must be an unsigned power of two up to 2^31, found {found}")]
    Alignment { found: String },
}

/// What one tensor must satisfy.
#[derive(Debug, Error, PartialEq)]
pub enum TensorRule {
    #[error("is missing")]
    Missing,
    #[error("is listed twice")]
    Duplicate,
    #[error("must have shape {expected:?}, has {found:?}")]
    Shape { expected: Vec<usize>, found: Vec<usize> },
    #[error("must be F32, F16 or BF16, is {found}")]
    Dtype { found: String },
    #[error("must be F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL or MXFP4, is {found}")]
    Packing { found: &'static str },
    #[error("type {id} does not exist")]
    UnknownType { id: u32 },
    #[error("must have 1 to 4 dimensions, has {found}")]
    Dimensions { found: u32 },
    #[error("must have positive, countable dimensions, has {found}")]
    Dimension { found: u64 },
    #[error("its rows of {width} must be whole blocks of {numbers}, as {dtype} has them")]
    Blocks { width: usize, dtype: &'static str, numbers: usize },
    #[error("shape {shape:?} of {dtype} must take a countable number of bytes")]
    Uncountable { shape: Vec<usize>, dtype: &'static str },
    #[error("must begin where the one before it ends, at byte {expected}; begins at {begin}")]
    Begin { begin: usize, expected: usize },
    #[error("must lie within the data of {bytes} bytes; claims {begin}..{end}")]
    Outside { begin: usize, end: usize, bytes: usize },
    #[error("shape {shape:?} of {dtype} must take {} bytes; claims {claimed}", needed.map_or("a countable number of".into(), |n| n.to_string()))]
    Size { shape: Vec<usize>, dtype: String, needed: Option<usize>, claimed: usize },
    #[error("must hold positive numbers, holds {found}")]
    Divisor { found: f32 },
    #[error("is of no module that an adapter can change here")]
    NotAdapted,
    #[error("{bytes} bytes cannot be allocated")]
    Allocation { bytes: usize },
    #[error("the index must name a file of the same folder, names {named:?}")]
    IndexFile { named: String },
    #[error("the index places it in {file}, which does not hold it")]
    NotInShard { file: String },
}

/// Numbers that could not be unpacked on their way to the device.
impl From<TensorRule> for DeviceError {
    fn from(rule: TensorRule) -> DeviceError {
        DeviceError::Failed(rule.to_string())
    }
}
