//! Where weights come from, and how a decoder takes them.
//!
//! ```text
//! map.rs (mapped file) → safetensors.rs (header checked before any use) ─┐
//!                                              dummy.rs (seeded numbers) ─┴→ Weights::tensor → decoder.rs, by names.rs
//! ```

pub(super) mod decoder;
mod dummy;
mod map;
mod names;
mod safetensors;

use std::path::Path;

use super::error::LoadError;
#[cfg(feature = "builtin-model")]
pub(super) use map::Bytes;
pub(super) use safetensors::Checkpoint;

/// A source of tensors by name, in `f32`.
pub(super) enum Weights {
    Checkpoint(Checkpoint),
    /// Seeded random numbers of any shape, for models whose weights are not at hand.
    Dummy {
        seed: u64,
    },
}

impl Weights {
    /// The tensor `name`, which must have `shape`. `described_by` is the file to blame where there is no other.
    fn tensor(&self, name: &str, shape: &[usize], described_by: &Path) -> Result<Vec<f32>, LoadError> {
        match self {
            Weights::Checkpoint(checkpoint) => checkpoint.tensor(name, shape),
            Weights::Dummy { seed } => dummy::tensor(name, shape, *seed).map_err(|rule| LoadError::Tensor {
                path: described_by.to_path_buf(),
                tensor: name.to_string(),
                rule,
            }),
        }
    }
}
