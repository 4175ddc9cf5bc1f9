//! The sizes of the paged cache.

use forebay_kernels::attention::KvDtype;

/// How the cache is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paging {
    pub num_blocks: usize,
    pub block_size: usize,
}

/// The sizes of one layer's keys (or values). In which order they lie within a block is the device's own business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KvLayout {
    pub paging: Paging,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub dtype: KvDtype,
}

impl KvLayout {
    /// Numbers of one position.
    pub(crate) fn width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}
