//! The physical blocks of the paged cache. Which block belongs to whom is decided in `kv`; here are only the bytes.

use super::backend::{Backend, Result};
use crate::types::cache::{KvLayout, Paging};
use crate::types::device::{DeviceError, DeviceMemory};
use crate::types::spec::Spec;
use forebay_core::units::BlockId;
use forebay_kernels::attention::KvDtype;

/// Says what was asked for and what there is, where a device has too little.
fn explained(error: DeviceError, memory: Option<DeviceMemory>, bytes: usize) -> DeviceError {
    match (error, memory) {
        (DeviceError::OutOfMemory(reason), Some(DeviceMemory { free, total })) => {
            let [asked, free, total] = [bytes, free, total].map(|bytes| bytes >> 20);
            DeviceError::OutOfMemory(format!(
                "the KV cache takes {asked} MiB, and {free} of the device's {total} MiB are free; lower kv_cache.memory or \
                 kv_cache.dtype ({reason})"
            ))
        }
        (error, _) => error,
    }
}

/// All layers' blocks.
pub(crate) struct KvMemory<B: Backend> {
    pub layers: Vec<B::Kv>,
    pub layout: KvLayout,
}

impl<B: Backend> KvMemory<B> {
    /// Filled with zeros. Errs on sizes that do not fit an index or the device; nothing is kept then.
    pub(crate) fn new(backend: &B, spec: &Spec, paging: Paging, dtype: KvDtype) -> Result<KvMemory<B>> {
        let Paging { num_blocks, block_size } = paging;
        let (_, kv_heads, head_dim) = spec.heads();
        let width = kv_heads * head_dim;
        // Slots travel as u32.
        let slots = num_blocks.checked_mul(block_size).filter(|&slots| slots > 0 && slots <= u32::MAX as usize);
        let numbers = slots.and_then(|slots| slots.checked_mul(width)).filter(|n| n.checked_mul(8).is_some());
        if numbers.is_none() {
            return Err(DeviceError::Failed(format!(
                "a cache of {num_blocks} blocks of {block_size} tokens cannot be addressed"
            )));
        }
        let layout = KvLayout { paging, kv_heads, head_dim, dtype };
        // Asked first: what a failed allocation leaves behind would be missing.
        let memory = backend.memory()?;
        let layers = (0..spec.layers()).map(|_| backend.kv(&layout)).collect::<Result<_>>();
        let bytes = spec.kv_bytes_per_token(dtype) * num_blocks * block_size;
        let layers = layers.map_err(|error| explained(error, memory, bytes))?;
        Ok(KvMemory { layers, layout })
    }

    /// Carries out copy-on-write orders, in their order, in all layers.
    pub(crate) fn copy(&mut self, backend: &B, copies: &[(BlockId, BlockId)]) -> Result<()> {
        for &(from, to) in copies.iter().filter(|(from, to)| from != to) {
            for layer in &mut self.layers {
                backend.copy_block(layer, &self.layout, from.0, to.0)?;
            }
        }
        Ok(())
    }
}
