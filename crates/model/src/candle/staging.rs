//! How a step's arrays travel to the device and drawn tokens back: on CUDA through pinned memory that is kept from one step
//! to the next, so that copies are the device's own work; elsewhere as candle does it.

#[cfg(feature = "cuda")]
use std::cell::RefCell;
#[cfg(feature = "cuda")]
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(feature = "cuda")]
use candle_core::{CpuStorage, CudaStorage, InplaceOp1, Layout, Storage, op::BackpropOp};
use candle_core::{Device, Tensor, WithDType};

use crate::pass::backend::Result;
#[cfg(feature = "cuda")]
use crate::types::device::DeviceError;
#[cfg(feature = "cuda")]
use forebay_kernels::cuda::Pinned;

/// Of indices and of angles.
#[cfg(feature = "cuda")]
type Both = (Mutex<Pinned<u32>>, Mutex<Pinned<f32>>);

/// The locks are never waited for: one step runs at a time.
pub(super) struct Staging {
    #[cfg(feature = "cuda")]
    pinned: Option<Both>,
}

/// Indices and angles.
#[cfg(not(feature = "cuda"))]
pub(super) trait Number: WithDType {}

/// Indices and angles.
#[cfg(feature = "cuda")]
pub(super) trait Number: WithDType + forebay_kernels::cuda::Staged {
    fn pinned(pinned: &Both) -> &Mutex<Pinned<Self>>;
}

impl Number for u32 {
    #[cfg(feature = "cuda")]
    fn pinned(pinned: &Both) -> &Mutex<Pinned<u32>> {
        &pinned.0
    }
}

impl Number for f32 {
    #[cfg(feature = "cuda")]
    fn pinned(pinned: &Both) -> &Mutex<Pinned<f32>> {
        &pinned.1
    }
}

#[cfg(not(feature = "cuda"))]
impl Staging {
    pub(super) fn new(_device: &Device) -> Staging {
        Staging {}
    }

    pub(super) fn upload<T: Number>(&self, device: &Device, numbers: &[T]) -> Result<Tensor> {
        Ok(Tensor::from_slice(numbers, numbers.len(), device)?)
    }

    /// Waits for the device.
    pub(super) fn read(&self, ids: &Tensor) -> Result<Vec<u32>> {
        Ok(ids.to_vec1()?)
    }
}

#[cfg(feature = "cuda")]
impl Staging {
    pub(super) fn new(device: &Device) -> Staging {
        let cuda = device.as_cuda_device().ok();
        Staging { pinned: cuda.map(|device| (Mutex::new(Pinned::new(device)), Mutex::new(Pinned::new(device)))) }
    }

    pub(super) fn upload<T: Number>(&self, device: &Device, numbers: &[T]) -> Result<Tensor> {
        let Some(pinned) = &self.pinned else { return Ok(Tensor::from_slice(numbers, numbers.len(), device)?) };
        let mut pinned = T::pinned(pinned).lock().unwrap_or_else(PoisonError::into_inner);
        let storage = Storage::Cuda(pinned.upload(numbers)?);
        Ok(Tensor::from_storage(storage, numbers.len(), BackpropOp::none(), false))
    }

    /// Writes `numbers` over a tensor that [`Staging::upload`] has made.
    pub(super) fn overwrite<T: Number>(&self, tensor: &Tensor, numbers: &[T]) -> Result<()> {
        let Some(pinned) = &self.pinned else { return Err(DeviceError::Failed("only CUDA has pinned memory".into())) };
        let pinned = T::pinned(pinned).lock().unwrap_or_else(PoisonError::into_inner);
        Ok(tensor.inplace_op1(&Overwrite { numbers, pinned: RefCell::new(pinned) })?)
    }

    /// Waits for the device.
    pub(super) fn read(&self, ids: &Tensor) -> Result<Vec<u32>> {
        let (storage, _) = ids.storage_and_layout();
        match (&*storage, &self.pinned) {
            (Storage::Cuda(storage), Some((pinned, _))) => {
                let mut pinned = pinned.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(pinned.read(storage, ids.elem_count())?)
            }
            _ => {
                drop(storage);
                Ok(ids.to_vec1()?)
            }
        }
    }
}

/// The one way to a tensor's storage.
#[cfg(feature = "cuda")]
struct Overwrite<'a, T: Number> {
    numbers: &'a [T],
    pinned: RefCell<MutexGuard<'a, Pinned<T>>>,
}

#[cfg(feature = "cuda")]
impl<T: Number> InplaceOp1 for Overwrite<'_, T> {
    fn name(&self) -> &'static str {
        "overwrite"
    }

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout) -> candle_core::Result<()> {
        candle_core::bail!("only CUDA has pinned memory")
    }

    fn cuda_fwd(&self, storage: &mut CudaStorage, _: &Layout) -> candle_core::Result<()> {
        self.pinned.borrow_mut().overwrite(storage, self.numbers)
    }
}
