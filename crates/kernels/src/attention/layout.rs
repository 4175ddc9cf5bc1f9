//! How cached keys and values lie in memory: number formats, sizes, and where a number is.
//!
//! ```text
//! keys   [block][kv head][strip][head_dim][W]   W positions side by side: a score per lane, nothing to add across lanes
//! values [block][kv head][position][head_dim]   rows padded to sixteen numbers
//! ```
//! A strip is 16 positions where blocks hold a multiple of 16, else the whole block. `Q8_0` puts a scale (`f16`) before
//! every 32 dimensions: `[head_dim / 32][scales: W][32][W]` for keys, `[head_dim / 32][scale][32]` for values.

use crate::lanes::LANES;

/// How cached keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvDtype {
    F32,
    /// Numbers beyond ±65,504 become that.
    F16,
    Bf16,
    /// Eight bits and a scale per 32 dimensions of a head.
    Q8_0,
}

/// Dimensions that share a scale.
pub(super) const GROUP: usize = 32;
/// Bytes of a scale.
pub(super) const SCALE: usize = 2;

impl KvDtype {
    pub const ALL: [KvDtype; 4] = [KvDtype::F32, KvDtype::F16, KvDtype::Bf16, KvDtype::Q8_0];

    /// As `kv_cache.dtype` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            KvDtype::F32 => "f32",
            KvDtype::F16 => "f16",
            KvDtype::Bf16 => "bf16",
            KvDtype::Q8_0 => "q8_0",
        }
    }

    /// Whether heads of this many dimensions can be stored so.
    pub const fn fits(self, head_dim: usize) -> bool {
        !matches!(self, KvDtype::Q8_0) || head_dim.is_multiple_of(GROUP)
    }

    /// Bytes of one number.
    pub(super) const fn size(self) -> usize {
        match self {
            KvDtype::F32 => 4,
            KvDtype::F16 | KvDtype::Bf16 => 2,
            KvDtype::Q8_0 => 1,
        }
    }

    /// Bytes of one position's key in one head.
    pub const fn key_bytes(self, head_dim: usize) -> usize {
        match self {
            KvDtype::Q8_0 => head_dim + head_dim / GROUP * SCALE,
            _ => head_dim * self.size(),
        }
    }

    /// Bytes of one position's value in one head.
    pub const fn value_bytes(self, head_dim: usize) -> usize {
        self.key_bytes(padded(head_dim))
    }
}

/// Dimensions of a value's row with its padding.
pub(super) const fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(LANES)
}

/// The sizes of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub num_blocks: usize,
    pub block_size: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

/// Positions of a strip.
pub(super) fn strip_of(block_size: usize) -> usize {
    if block_size.is_multiple_of(LANES) { LANES } else { block_size }
}

/// Where dimension `d` of column `column` lies in a strip of `width` positions.
pub(super) fn key_at(dtype: KvDtype, width: usize, column: usize, d: usize) -> usize {
    match dtype {
        KvDtype::Q8_0 => d / GROUP * width * (SCALE + GROUP) + width * SCALE + d % GROUP * width + column,
        _ => (d * width + column) * dtype.size(),
    }
}

/// Where the scale of group `group` lies.
pub(super) fn key_scale_at(width: usize, column: usize, group: usize) -> usize {
    group * width * (SCALE + GROUP) + column * SCALE
}
