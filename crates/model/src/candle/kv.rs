//! One layer's keys and values on a device.

use candle_core::{DType, Tensor};

use crate::pass::backend::Result;
use crate::types::device::DeviceError;
use forebay_kernels::attention::KvDtype;

/// Keys and values as `[num_blocks * block_size, kv_heads * head_dim]`: the common layout, flattened.
pub(crate) struct Kv {
    pub keys: Tensor,
    pub values: Tensor,
}

/// The type of a cache.
pub(super) fn cached(dtype: KvDtype) -> Result<DType> {
    match dtype {
        KvDtype::F32 => Ok(DType::F32),
        KvDtype::F16 => Ok(DType::F16),
        KvDtype::Bf16 => Ok(DType::BF16),
        KvDtype::Q8_0 => Err(DeviceError::Failed("a cache in q8_0 is for the CPU".into())),
    }
}
