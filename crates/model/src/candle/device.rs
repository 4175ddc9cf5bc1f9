//! Which device a choice comes to, and what it has.

use candle_core::{Device, DeviceLocation};

use crate::types::device::{DeviceError, DeviceMemory};
use crate::types::error::LoadError;
use crate::types::options::DeviceChoice;

/// Dimensions of a head that the CUDA kernels take.
const MAX_HEAD_DIM: usize = 256;

/// `None` is the CPU over our own kernels.
pub(crate) fn open(choice: DeviceChoice) -> Result<Option<Device>, LoadError> {
    match choice {
        DeviceChoice::Cpu => Ok(None),
        DeviceChoice::Reference => Ok(Some(Device::Cpu)),
        DeviceChoice::Cuda(ordinal) => cuda(ordinal).map(Some),
        DeviceChoice::Metal => {
            required(cfg!(feature = "metal"), "a Metal device", "metal")?;
            Ok(Some(Device::new_metal(0).map_err(DeviceError::from)?))
        }
        DeviceChoice::Auto => {
            let cuda = cfg!(feature = "cuda").then(|| cuda(0).ok()).flatten();
            let metal = || cfg!(feature = "metal").then(|| Device::new_metal(0).ok()).flatten();
            Ok(cuda.or_else(metal))
        }
    }
}

fn required(compiled: bool, what: &'static str, feature: &'static str) -> Result<(), LoadError> {
    if compiled { Ok(()) } else { Err(LoadError::Feature { what, feature }) }
}

#[cfg(not(feature = "cuda"))]
fn cuda(_ordinal: usize) -> Result<Device, LoadError> {
    Err(LoadError::Feature { what: "a CUDA device", feature: "cuda" })
}

/// A device with a stream of its own, on which all that a model does happens in order.
#[cfg(feature = "cuda")]
fn cuda(ordinal: usize) -> Result<Device, LoadError> {
    use forebay_kernels::cuda::{self, Absent};
    match cuda::open(ordinal) {
        Ok(device) => Ok(device),
        Err(Absent::Driver(reason)) => Err(LoadError::NoGpu { reason }),
        Err(Absent::Ordinal { count }) => Err(LoadError::NoSuchGpu { ordinal, count }),
        Err(Absent::Failed(error)) => Err(DeviceError::from(error).into()),
    }
}

/// What a device has of its own.
pub(super) fn memory(device: &Device) -> Result<Option<DeviceMemory>, DeviceError> {
    fail::fail_point!("model::device_memory", |room| Ok(room.and_then(|room| {
        let (free, total) = room.split_once('/')?;
        Some(DeviceMemory { free: free.parse().ok()?, total: total.parse().ok()? })
    })));
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => {
            let (free, total) = forebay_kernels::cuda::free_and_total(device)?;
            Ok(Some(DeviceMemory { free, total }))
        }
        _ => Ok(None),
    }
}

/// Whether the device had no memory left.
fn is_out_of_memory(error: &candle_core::Error) -> bool {
    #[cfg(feature = "cuda")]
    return forebay_kernels::cuda::is_out_of_memory(error);
    #[cfg(not(feature = "cuda"))]
    error.to_string().to_ascii_lowercase().contains("out of memory")
}

impl From<candle_core::Error> for DeviceError {
    fn from(error: candle_core::Error) -> DeviceError {
        let message = error.to_string();
        if is_out_of_memory(&error) { DeviceError::OutOfMemory(message) } else { DeviceError::Failed(message) }
    }
}

/// Whether attention has a kernel for such heads.
pub(crate) fn check_heads(device: &Device, head_dim: usize) -> Result<(), LoadError> {
    let fits = !device.is_cuda() || (head_dim.is_multiple_of(8) && head_dim <= MAX_HEAD_DIM);
    if fits { Ok(()) } else { Err(LoadError::HeadDim { head_dim }) }
}

/// What a choice of device comes to on this machine.
pub fn name(choice: DeviceChoice) -> Result<String, LoadError> {
    Ok(match open(choice)?.map(|device| device.location()) {
        None => "cpu, our own kernels".into(),
        Some(DeviceLocation::Cpu) => "cpu, through candle".into(),
        Some(DeviceLocation::Cuda { gpu_id }) => format!("cuda:{gpu_id}"),
        Some(DeviceLocation::Metal { .. }) => "metal".into(),
    })
}
