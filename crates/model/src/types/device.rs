//! What a device says of itself, as plain data: how much memory it has, and why it refused.

use thiserror::Error;

/// A device refused. The messages are the library's own.
#[derive(Debug, Error)]
pub enum DeviceError {
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// A failed launch, a shape that no kernel takes.
    #[error("{0}")]
    Failed(String),
}

/// What a device other than the processor has, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    pub free: usize,
    pub total: usize,
}
