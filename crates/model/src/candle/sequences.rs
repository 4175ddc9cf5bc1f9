//! Whose rows a step has, where their past lies, and their angles: the arrays that attention and rope read.

use candle_core::Tensor;

/// Positions of a range whose attention is computed on its own and merged in ascending order. Always the same, for it
/// decides where sums are cut.
#[cfg(feature = "cuda")]
pub(super) const SPLIT: usize = 256;

/// Cosines and sines, `[T, dims / 2]` in `f32`.
pub(super) struct RowAngles {
    pub cos: Tensor,
    pub sin: Tensor,
    /// Rotated dimensions of a head.
    pub dims: usize,
}

/// Whose rows the step has, and where their past lies. `S` sequences.
pub(super) struct Sequences {
    /// `[T]` slots to write: `block * block_size + offset`.
    pub slots: Tensor,
    /// `[S, max_blocks]` physical blocks, padded with zeros.
    pub tables: Tensor,
    /// `[S]` positions of each, this step's rows included.
    pub contexts: Tensor,
    /// `[S + 1]` first row of each.
    pub starts: Tensor,
    /// `[N]` the sequences with one row.
    pub decodes: Option<Tensor>,
    /// `[P, 2]` of the others: sequence, first row within its chunk.
    pub tiles: Option<Tensor>,
    /// Rows of a tile, fewer at a chunk's end.
    pub tile_rows: usize,
    pub block_size: usize,
    /// Positions of the longest of `decodes`: how many ranges there are.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub longest: usize,
    /// `None` in recordings, which take our kernels.
    #[cfg(feature = "flash-attn")]
    pub flash: Option<Flash>,
}

/// What else FlashAttention wants to know.
#[cfg(feature = "flash-attn")]
pub(super) struct Flash {
    /// `[S + 1]` contexts added up.
    pub ends: Tensor,
    /// Rows and positions of the longest sequence.
    pub most_rows: usize,
    pub most_context: usize,
}
