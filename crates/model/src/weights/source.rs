//! Where tensors come from: files of either format, or seeded numbers.

use std::path::Path;

use super::dummy;
use crate::files::gguf::tensors::GgufWeights;
use crate::files::names::{self, Renamed};
use crate::files::numbers::Numbers;
use crate::files::safetensors::Checkpoint;
use crate::types::error::LoadError;
use crate::types::options::Dtype;
use crate::types::spec::Spec;
use forebay_kernels::packed::{Packing, Quantised};

/// A source of tensors by name.
pub(crate) enum Weights {
    /// With what its architecture renames.
    Checkpoint(Checkpoint, Renamed),
    Gguf(GgufWeights),
    /// Seeded random numbers of any shape, for models whose weights are not at hand.
    Dummy {
        seed: u64,
    },
}

impl Weights {
    /// What a device should compute in: what most of the weights are stored in, and `Bf16` where they are quantised or made
    /// up, whose range nothing leaves.
    pub(crate) fn dtype(&self) -> Dtype {
        match self {
            Weights::Checkpoint(checkpoint, _) => checkpoint.dtype(),
            Weights::Gguf(_) | Weights::Dummy { .. } => Dtype::Bf16,
        }
    }

    /// Bytes that they take on a device that computes in `dtype` and keeps such block types as `keeps` says, about.
    pub(crate) fn bytes(
        &self,
        spec: &Spec,
        dtype: Dtype,
        quantise: Option<Quantised>,
        keeps: impl Fn(Packing) -> bool,
    ) -> u64 {
        match (self, quantise) {
            (Weights::Gguf(file), None) => file.bytes(keeps, dtype.bytes()),
            (_, Some(to)) => spec.quantised_bytes(to),
            (_, None) => spec.parameters().saturating_mul(dtype.bytes() as u64),
        }
    }

    /// Types of blocks that a device does not keep, and that are unpacked there.
    pub(crate) fn unpacked(&self, keeps: impl Fn(Packing) -> bool) -> Vec<&'static str> {
        match self {
            Weights::Gguf(file) => file.unpacked(keeps),
            Weights::Checkpoint(..) | Weights::Dummy { .. } => Vec::new(),
        }
    }

    /// The tensor `name`, which must have `shape`. `described_by` is the file to blame where there is no other.
    pub(crate) fn tensor(&self, name: &str, shape: &[usize], described_by: &Path) -> Result<Numbers, LoadError> {
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
