//! Rows cut into tiles.

use crate::quant::format::PANEL;

/// Rows of a tile, at most.
pub(super) const ROWS: usize = 16;
/// Sums of one tile.
pub(super) const TILE: usize = ROWS * PANEL;

/// Rows in tiles of one height; the last tile may overlap the one before, and computes the same again.
#[derive(Clone, Copy, Default)]
pub(super) struct Cut {
    count: usize,
    pub height: usize,
    pub tiles: usize,
}

impl Cut {
    /// Cuts `count` rows into as few tiles as there can be.
    pub fn of(count: usize) -> Cut {
        let tiles = count.div_ceil(ROWS);
        Cut { count, height: count.div_ceil(tiles.max(1)), tiles }
    }

    /// Cuts `count` rows into an even number of tiles where there is more than one.
    pub fn in_pairs(count: usize) -> Cut {
        let tiles = if count > ROWS { count.div_ceil(2 * ROWS) * 2 } else { 1 };
        Cut { count, height: count.div_ceil(tiles), tiles }
    }

    /// The first row of a tile.
    pub fn start(&self, tile: usize) -> usize {
        (tile * self.height).min(self.count - self.height)
    }
}
