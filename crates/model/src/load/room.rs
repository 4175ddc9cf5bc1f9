//! Whether a model's weights fit a device's memory, and what to do where they do not.

use crate::types::device::{DeviceError, DeviceMemory};
use crate::types::error::LoadError;
use crate::types::options::Dtype;
use crate::types::spec::Spec;
use forebay_kernels::packed::Quantised;

/// A device's memory before a model is loaded, and what the model needs of it.
pub(super) struct Room {
    pub memory: Option<DeviceMemory>,
    /// Bytes of the weights, about.
    pub needed: u64,
    pub dtype: Dtype,
}

impl Room {
    /// Errs where the device says that it has too little.
    pub(super) fn check(&self, spec: &Spec) -> Result<(), LoadError> {
        match self.memory {
            Some(memory) if self.needed > memory.free as u64 => Err(self.refusal(memory, spec)),
            _ => Ok(()),
        }
    }

    /// The error, in these terms where memory ran out on the way.
    pub(super) fn explained(&self, error: LoadError, spec: &Spec) -> LoadError {
        match (error, self.memory) {
            (LoadError::Device(DeviceError::OutOfMemory(_)), Some(memory)) => self.refusal(memory, spec),
            (error, _) => error,
        }
    }

    fn refusal(&self, memory: DeviceMemory, spec: &Spec) -> LoadError {
        let fits = [Quantised::Q8_0, Quantised::Q4K].into_iter().map(|to| (to, spec.quantised_bytes(to)));
        let fits: Vec<String> = fits
            .filter(|(_, bytes)| *bytes < self.needed && *bytes <= memory.free as u64)
            .map(|(to, bytes)| {
                format!("model.quantize: {} takes about {} MiB", to.packing().name().to_ascii_lowercase(), bytes >> 20)
            })
            .collect();
        let advice = match fits.is_empty() {
            false => format!("what fits: {}, and so does a .gguf file of such weights", fits.join(", ")),
            true => "neither does model.quantize: q4_k; take a smaller model, or --device cpu".to_owned(),
        };
        LoadError::DeviceMemory { weights: self.needed, dtype: self.dtype.name(), memory, advice }
    }
}
