//! Where a tile's keys and values lie.

use std::ops::Range;

use super::cache::Cache;
use super::layout::{GROUP, KvDtype, SCALE, key_at, key_scale_at};
use super::work::{STRIPS, TILE, Work};
use crate::lanes::LANES;

/// A tile's strips; the first again where no position that is asked for is in one.
pub(super) struct Places {
    /// `[head_dim][16]`
    pub keys: [*const u8; STRIPS],
    /// Sixteen rows, one behind another.
    pub values: [*const u8; STRIPS],
}

impl Places {
    /// Finds the strips of the tile at `start`; positions from `last` on are left out. Strips narrower than sixteen are put
    /// together in `strips`.
    pub fn find(work: &Work, start: usize, last: usize, strips: &mut Vec<u8>) -> Places {
        if work.cache.strip() != LANES {
            return gather(work, start..last.min(start + TILE), strips);
        }
        let strip = |index: usize| {
            let position = start + index * LANES;
            let (block, offset) = work.slot(if position < last { position } else { start });
            work.cache.strips(block, work.kv_head, offset)
        };
        Places {
            keys: std::array::from_fn(|index| strip(index).0.as_ptr()),
            values: std::array::from_fn(|index| strip(index).1.as_ptr()),
        }
    }

    /// The keys that a tile begins with, as far as that is known without gathering them.
    pub fn keys(cache: &Cache, table: &[u32], kv_head: usize, start: usize) -> Option<[*const u8; STRIPS]> {
        let size = cache.geometry.block_size;
        let strip = |position: usize| {
            let block = *table.get(position / size)?;
            Some(cache.strips(block, kv_head, position % size).0.as_ptr())
        };
        let first = strip(start).filter(|_| cache.strip() == LANES)?;
        Some(std::array::from_fn(|index| strip(start + index * LANES).unwrap_or(first)))
    }
}

/// Puts columns of narrower strips, and their values, side by side.
fn gather(work: &Work, positions: Range<usize>, strips: &mut Vec<u8>) -> Places {
    let cache = work.cache;
    let (dtype, head_dim) = (cache.dtype, cache.geometry.head_dim);
    let (width, size) = (cache.strip(), dtype.size());
    let (key_bytes, value_bytes) = (LANES * dtype.key_bytes(head_dim), LANES * dtype.value_bytes(head_dim));
    strips.resize(STRIPS * (key_bytes + value_bytes), 0);
    let (keys, values) = strips.split_at_mut(STRIPS * key_bytes);
    for (row, position) in values.chunks_exact_mut(value_bytes / LANES).zip(positions.clone()) {
        let (block, offset) = work.slot(position);
        row.copy_from_slice(cache.value_row(block, work.kv_head, offset));
    }
    for (column, position) in positions.enumerate() {
        let (block, offset) = work.slot(position);
        let (from, from_column) = (cache.strips(block, work.kv_head, offset).0, offset % width);
        let to = &mut keys[column / LANES * key_bytes..][..key_bytes];
        for d in 0..head_dim {
            let (a, b) = (key_at(dtype, width, from_column, d), key_at(dtype, LANES, column % LANES, d));
            to[b..b + size].copy_from_slice(&from[a..a + size]);
        }
        if dtype == KvDtype::Q8_0 {
            for group in 0..head_dim / GROUP {
                let (a, b) = (key_scale_at(width, from_column, group), key_scale_at(LANES, column % LANES, group));
                to[b..b + SCALE].copy_from_slice(&from[a..a + SCALE]);
            }
        }
    }
    Places {
        keys: std::array::from_fn(|strip| keys[strip * key_bytes..].as_ptr()),
        values: std::array::from_fn(|strip| values[strip * value_bytes..].as_ptr()),
    }
}
