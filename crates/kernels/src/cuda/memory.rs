//! Devices, their memory, and the pinned memory through which a step's arrays travel.

use std::sync::Arc;

use candle_core::cuda_backend::cudarc::driver::{
    CudaContext, CudaEvent, DevicePtr, DevicePtrMut, DeviceRepr, DriverError, PinnedHostSlice, ValidAsZeroBits, result,
    sys,
};
use candle_core::cuda_backend::{CudaDType, CudaDevice, CudaError, CudaStorage, WrapErr};
use candle_core::{Device, Error, Result};

/// Why there is no such device.
pub enum Absent {
    /// There is no driver that works, or no GPU.
    Driver(String),
    /// There are so many, from 0.
    Ordinal {
        count: usize,
    },
    Failed(Error),
}

/// A device with a stream of its own.
pub fn open(ordinal: usize) -> std::result::Result<Device, Absent> {
    let count = CudaContext::device_count().map_err(|error| Absent::Driver(error.to_string()))? as usize;
    if count == 0 {
        return Err(Absent::Driver("the driver finds no GPU".into()));
    }
    if ordinal >= count {
        return Err(Absent::Ordinal { count });
    }
    let device = CudaDevice::new_with_stream(ordinal).map_err(Absent::Failed)?;
    // SAFETY: all work happens on the device's one stream, whose order is all the synchronisation that there need be.
    unsafe { device.disable_event_tracking() };
    keep_freed(&device).map_err(Absent::Failed)?;
    Ok(Device::Cuda(device))
}

/// The driver's pool would hand freed memory back whenever the host waits, which is in every step; mapping it again costs
/// more than the step's kernels.
fn keep_freed(device: &CudaDevice) -> Result<()> {
    let stream = device.cuda_stream();
    let context = stream.context();
    if !context.has_async_alloc() {
        return Ok(());
    }
    let mut pool = std::ptr::null_mut();
    let mut threshold = u64::MAX;
    // SAFETY: `pool` is written before it is read, and lives as long as the device; the attribute is a u64, which the call
    // reads before it returns.
    unsafe {
        sys::cuDeviceGetDefaultMemPool(&mut pool, context.cu_device()).result().w()?;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut threshold).cast()).result().w()
    }
}

/// Bytes that are free, and all that there are.
pub fn free_and_total(device: &CudaDevice) -> Result<(usize, usize)> {
    device.cuda_stream().context().mem_get_info().w()
}

/// Whether the device had no memory left.
pub fn is_out_of_memory(error: &Error) -> bool {
    match error {
        Error::WithBacktrace { inner, .. } | Error::Context { inner, .. } | Error::WithPath { inner, .. } => {
            is_out_of_memory(inner)
        }
        Error::Cuda(inner) => match inner.downcast_ref::<CudaError>() {
            Some(CudaError::Cuda(DriverError(code))) => *code == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY,
            Some(CudaError::Cublas(error)) => error.to_string().contains("ALLOC_FAILED"),
            _ => false,
        },
        _ => false,
    }
}

/// Memory of the host that the device reads and writes by itself. Grows, and is kept from one step to the next.
pub struct Pinned<T: Staged> {
    device: CudaDevice,
    up: Option<Room<T>>,
    down: Option<Room<T>>,
}

/// With an event of its own: cudarc's is recorded only where event tracking is on, and waits for nothing where it is not.
struct Room<T: Staged> {
    memory: PinnedHostSlice<T>,
    /// Behind the last copy.
    copied: CudaEvent,
}

/// Numbers that travel so.
pub trait Staged: DeviceRepr + ValidAsZeroBits + CudaDType + Copy + Default {}

impl Staged for u32 {}
impl Staged for f32 {}

impl<T: Staged> Pinned<T> {
    pub fn new(device: &CudaDevice) -> Pinned<T> {
        Pinned { device: device.clone(), up: None, down: None }
    }

    /// A copy of `numbers` on the device.
    pub fn upload(&mut self, numbers: &[T]) -> Result<CudaStorage> {
        // SAFETY: all of it is written next.
        let slice = unsafe { self.device.alloc::<T>(numbers.len()) }?;
        let mut storage = CudaStorage::wrap_cuda_slice(slice, self.device.clone());
        self.overwrite(&mut storage, numbers)?;
        Ok(storage)
    }

    /// Writes `numbers` to the beginning of `storage`. Waits for the copy before it, if that is still under way.
    pub fn overwrite(&mut self, storage: &mut CudaStorage, numbers: &[T]) -> Result<()> {
        let room = Room::of(&mut self.up, &self.device, numbers.len(), sys::CU_MEMHOSTALLOC_WRITECOMBINED)?;
        room.numbers()?[..numbers.len()].copy_from_slice(numbers);
        let stream = self.device.cuda_stream();
        let mut part = storage.as_cuda_slice_mut::<T>()?.slice_mut(..numbers.len());
        let (to, _written) = part.device_ptr_mut(&stream);
        let from = &room.numbers()?[..numbers.len()];
        // SAFETY: both are as long as `numbers`; the room is neither written nor freed before the stream is past the copy.
        unsafe { result::memcpy_htod_async(to, from, stream.cu_stream()) }.w()?;
        room.copied.record(&stream).w()
    }

    /// The first `count` numbers of `storage`. Waits for the device.
    pub fn read(&mut self, storage: &CudaStorage, count: usize) -> Result<Vec<T>> {
        let part = storage.as_cuda_slice::<T>()?.slice(..count);
        let room = Room::of(&mut self.down, &self.device, count, 0)?;
        let stream = self.device.cuda_stream();
        let (from, _read) = part.device_ptr(&stream);
        let to = &mut room.numbers()?[..count];
        // SAFETY: both are `count` numbers; the room is neither read nor freed before the stream is past the copy.
        unsafe { result::memcpy_dtoh_async(to, from, stream.cu_stream()) }.w()?;
        room.copied.record(&stream).w()?;
        Ok(room.numbers()?[..count].to_vec())
    }
}

impl<T: Staged> Room<T> {
    /// For at least `count` numbers; what was there is given back if it is too small.
    fn of<'a>(slot: &'a mut Option<Room<T>>, device: &CudaDevice, count: usize, flags: u32) -> Result<&'a mut Room<T>> {
        if slot.as_ref().is_none_or(|room| room.memory.len() < count) {
            *slot = None;
            let stream = device.cuda_stream();
            let context: &Arc<CudaContext> = stream.context();
            // SAFETY: filled with zeros below, before anybody reads it.
            let memory = unsafe { context.alloc_pinned_with_flags::<T>(count.next_power_of_two(), flags) }.w()?;
            let copied = context.new_event(Some(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)).w()?;
            let mut fresh = Room { memory, copied };
            fresh.numbers()?.fill_with(T::default);
            *slot = Some(fresh);
        }
        match slot {
            Some(room) => Ok(room),
            None => unreachable!("there is room now"),
        }
    }

    /// Once the device is done with them.
    fn numbers(&mut self) -> Result<&mut [T]> {
        self.copied.synchronize().w()?;
        self.memory.as_mut_slice().w()
    }
}

impl<T: Staged> Drop for Room<T> {
    fn drop(&mut self) {
        // The device may still read or write it. An error is the stream's, which whoever uses it next will hear of.
        let _ = self.copied.synchronize();
    }
}
