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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candle::backend::Candle;
    use crate::cpu::backend::Cpu;
    use crate::files::gguf::file::Gguf;
    use crate::pass::backend::Backend;
    use crate::quantize::quantize;

    fn reference() -> Candle {
        Candle::new(candle_core::Device::Cpu, Dtype::F16, 1)
    }

    #[test]
    fn each_backend_says_which_types_it_keeps() {
        let both = |packing| (Cpu::default().keeps_quantised(packing), reference().keeps_quantised(packing));
        for packing in [Packing::Q4_0, Packing::Q8_0, Packing::Q2K, Packing::Q4K, Packing::Q6K] {
            assert_eq!(both(packing), (true, true), "{}", packing.name());
        }
        for packing in [Packing::Iq4Nl, Packing::Mxfp4] {
            assert_eq!(both(packing), (true, false), "{}", packing.name());
        }
    }

    #[test]
    fn what_is_not_kept_is_unpacked_and_takes_more() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/llama");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("llama.gguf");
        quantize(&golden, &path, Quantised::Q8_0).unwrap();
        let file = Gguf::open(&path).unwrap();
        let spec = crate::arch::gguf::decoder::read_spec(&file).unwrap();
        let weights = Weights::Gguf(GgufWeights::new(file, &spec).unwrap());
        let spec = Spec::Decoder(spec);
        let asked =
            |keeps: fn(Packing) -> bool| (weights.unpacked(keeps), weights.bytes(&spec, Dtype::F16, None, keeps));
        let (kept, small) = asked(|packing| packing == Packing::Q8_0);
        let (unpacked, large) = asked(|_| false);
        assert_eq!((kept.as_slice(), unpacked.as_slice()), (&[][..], &["Q8_0"][..]));
        assert!(small < large, "{small} bytes, {large} unpacked");
        let device = reference();
        let on_device = |packing| device.keeps_quantised(packing);
        assert_eq!((weights.unpacked(on_device), weights.bytes(&spec, Dtype::F16, None, on_device)), (kept, small));
        assert!(weights.unpacked(|packing| Cpu::default().keeps_quantised(packing)).is_empty());
    }
}
