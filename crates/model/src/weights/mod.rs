//! Where weights come from, and how a decoder takes them.
//!
//! ```text
//! map.rs (mapped file) ┬→ safetensors.rs (header checked before any use) ─┐
//!                      └→ gguf/ (the same, and what else such files hold) ─┼→ Weights → numbers.rs → decoder.rs
//!                                               dummy.rs (seeded numbers) ─┘            by names.rs
//! ```

pub(super) mod decoder;
mod dummy;
mod map;
pub(super) mod names;
mod numbers;
mod safetensors;

use std::path::Path;

use super::candle::stays_quantised;
use super::error::LoadError;
use super::gguf::GgufWeights;
use super::load::quantised_bytes;
use super::options::Dtype;
use super::spec::Spec;
use forebay_kernels::packed::Quantised;
pub(super) use map::Bytes;
pub(super) use numbers::{Numbers, Packed};
pub(super) use safetensors::Checkpoint;

/// A source of tensors by name.
pub(super) enum Weights {
    /// With what its architecture renames.
    Checkpoint(Checkpoint, names::Renamed),
    Gguf(GgufWeights),
    /// Seeded random numbers of any shape, for models whose weights are not at hand.
    Dummy {
        seed: u64,
    },
}

impl Weights {
    /// What a device should compute in: what most of the weights are stored in, and `Bf16` where they are quantised or made
    /// up, whose range nothing leaves.
    pub(super) fn dtype(&self) -> Dtype {
        match self {
            Weights::Checkpoint(checkpoint, _) => checkpoint.dtype(),
            Weights::Gguf(_) | Weights::Dummy { .. } => Dtype::Bf16,
        }
    }

    /// Bytes that they take on a device that computes in `dtype`, about.
    pub(super) fn bytes(&self, spec: &Spec, dtype: Dtype, quantise: Option<Quantised>) -> u64 {
        match (self, quantise) {
            (Weights::Gguf(file), None) => file.bytes(stays_quantised, dtype.bytes()),
            (_, Some(to)) => quantised_bytes(spec, to),
            (_, None) => spec.parameters().saturating_mul(dtype.bytes() as u64),
        }
    }

    /// Types of blocks that a device has no kernels for, and that are unpacked there.
    pub(super) fn unpacked(&self) -> Vec<&'static str> {
        match self {
            Weights::Gguf(file) => file.unpacked(stays_quantised),
            Weights::Checkpoint(..) | Weights::Dummy { .. } => Vec::new(),
        }
    }

    /// The tensor `name`, which must have `shape`. `described_by` is the file to blame where there is no other.
    pub(super) fn tensor(&self, name: &str, shape: &[usize], described_by: &Path) -> Result<Numbers, LoadError> {
        match self {
            Weights::Checkpoint(checkpoint, renamed) => checkpoint.tensor(&names::rename(name, renamed), shape),
            Weights::Gguf(file) => file.numbers(name, shape),
            Weights::Dummy { seed } => match dummy::tensor(name, shape, *seed) {
                Ok(numbers) => Ok(Numbers::Plain(numbers)),
                Err(rule) => {
                    Err(LoadError::Tensor { path: described_by.to_path_buf(), tensor: name.to_string(), rule })
                }
            },
        }
    }
}
