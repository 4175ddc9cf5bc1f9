//! What one call of the kernel computes, and the sizes of the pieces that it works through.

use std::ops::Range;

use super::cache::Cache;
use crate::lanes::LANES;

/// Rows of queries that are computed together.
pub(super) const ROWS: usize = 8;
/// Strips of a tile.
pub(super) const STRIPS: usize = 4;
/// Positions between two looks at the maximum.
pub(super) const TILE: usize = STRIPS * LANES;
/// Bytes of a cache line.
pub(super) const LINE: usize = 64;
/// Up to this many rows the cache is read from memory rather than from the processor's caches, and asked for ahead.
pub(super) const FEW: usize = 4;

/// Rows of one sequence and key/value head, and the positions at hand.
pub(super) struct Work<'a> {
    pub cache: &'a Cache,
    /// Physical block of each logical one.
    pub table: &'a [u32],
    pub kv_head: usize,
    /// The positions that each row sees, its own the last; ascending. At most [`ROWS`].
    pub sees: &'a [Range<usize>],
    /// Starts at a multiple of [`TILE`].
    pub range: Range<usize>,
    /// What scores are multiplied by.
    pub scale: f32,
    /// Scores `s` become `cap * tanh(s / cap)`.
    pub cap: Option<f32>,
    /// The keys of what will be computed next, where that is known.
    pub next: Option<[*const u8; STRIPS]>,
}

impl Work<'_> {
    /// The physical block of a position, and where in it.
    pub fn slot(&self, position: usize) -> (u32, usize) {
        let size = self.cache.geometry.block_size;
        (self.table[position / size], position % size)
    }
}
