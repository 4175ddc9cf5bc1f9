//! What each block of a pool is used for, as the dashboard draws it.

use serde::Serialize;
use utoipa::ToSchema;

use forebay_core::report::BlockUse;

/// A larger pool's map is drawn with several blocks in a cell.
const MOST_CELLS: usize = 4_096;

/// A pool's blocks, and how many of them are used for what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct BlockMap {
    blocks: usize,
    /// Blocks in a cell.
    per_cell: usize,
    /// A digit for each cell: 0 free, 1 cached, 2 used, 3 shared. It is the most frequent use of its blocks, the busiest of equals.
    cells: String,
    free: usize,
    cached: usize,
    used: usize,
    shared: usize,
}

impl BlockMap {
    pub fn of(uses: &[BlockUse]) -> BlockMap {
        let per_cell = uses.len().div_ceil(MOST_CELLS).max(1);
        let cell = |of: &[BlockUse]| {
            let digits = ('0'..).zip(BlockUse::ALL);
            digits.max_by_key(|(_, wanted)| count(of, *wanted)).map_or('0', |(digit, _)| digit)
        };
        let [free, cached, used, shared] = BlockUse::ALL.map(|wanted| count(uses, wanted));
        let cells = uses.chunks(per_cell).map(cell).collect();
        BlockMap { blocks: uses.len(), per_cell, cells, free, cached, used, shared }
    }
}

fn count(of: &[BlockUse], wanted: BlockUse) -> usize {
    of.iter().filter(|one| **one == wanted).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_map_is_folded_and_a_small_one_is_not() {
        use BlockUse::{Cached, Free, Shared, Used};
        let small = BlockMap::of(&[Free, Used, Cached, Shared]);
        assert_eq!(small.cells, "0213");
        assert_eq!((small.per_cell, small.used), (1, 1));
        let mut uses = vec![Free; MOST_CELLS * 2 + 1];
        uses[..3].copy_from_slice(&[Used, Used, Shared]);
        let large = BlockMap::of(&uses);
        assert_eq!(large.per_cell, 3);
        assert_eq!(large.cells.len(), uses.len().div_ceil(3));
        assert!(large.cells.starts_with("20") && large.cells.ends_with('0'), "{}", large.cells);
        assert_eq!((large.blocks, large.used, large.shared), (uses.len(), 2, 1));
        assert_eq!(BlockMap::of(&[]).cells, "");
    }
}
