//! What every op and every step's plan wants to know of the device: itself, its number type, and the way to it.

use candle_core::{DType, Device, Tensor};

use super::staging::{Number, Staging};
use crate::pass::backend::Result;
use crate::types::options::Dtype;

/// Rows of a prefill tile, times the heads of a group: what the kernel holds at once.
const TILE: usize = 64;

pub(super) struct OnDevice {
    pub device: Device,
    /// Of activations, and of weights that are not quantised.
    pub dtype: DType,
    /// Rows of a prefill tile.
    pub tile_rows: usize,
    pub staging: Staging,
}

impl OnDevice {
    /// For models of which `group` heads share keys and values.
    pub(super) fn new(device: Device, dtype: Dtype, group: usize) -> OnDevice {
        let dtype = match dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::Bf16 => DType::BF16,
        };
        let staging = Staging::new(&device);
        OnDevice { device, dtype, tile_rows: (TILE / group).max(1), staging }
    }

    /// For another replica: its steps travel on their own.
    pub(super) fn another(&self) -> OnDevice {
        let staging = Staging::new(&self.device);
        OnDevice { device: self.device.clone(), dtype: self.dtype, tile_rows: self.tile_rows, staging }
    }

    pub(super) fn upload<T: Number>(&self, numbers: &[T]) -> Result<Tensor> {
        self.staging.upload(&self.device, numbers)
    }

    /// Whether our kernels, or their definitions, run there.
    pub(super) fn has_kernels(&self) -> bool {
        !self.device.is_metal()
    }
}
