//! Rows as the tile unit takes them: a tile or two by 256 inputs, all numbers of one block together.
#![allow(unsafe_code)] // parts of the rows, dealt to several threads

use super::cut::{Cut, ROWS};
use crate::isa::Isa;
use crate::parallel::{Shared, for_each_index};
use crate::quant::format::GROUP;
use crate::quant::rounding::RoundingGroup;
use crate::quant::row_codes::RowCodes;
use crate::quant::superblock::{BLOCK, GROUPS, pair};

/// Inputs of a tile.
pub(super) const STEP: usize = 64;
/// Tiles of a block: parts that work is dealt out in.
pub(super) const STEPS: usize = BLOCK / STEP;
/// Below this AVX-512 is faster: a block's planes are made however few rows there are.
const MANY_ROWS: usize = 12;

/// Empty for so few rows that AVX-512 is as fast, and beside weights that are not in blocks of 256.
#[derive(Default)]
pub(crate) struct Pairs {
    pub(super) cut: Cut,
    blocks: usize,
    /// `[tiles / 2, blocks]`
    tiles: Vec<Tile>,
}

/// A block of up to 16 rows. Two tiles lie side by side. Lines beyond the height of the cut are zeros.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(super) struct Tile {
    pub codes: [[[[i8; GROUP]; 2]; ROWS]; STEPS],
    /// Two groups' sums in a number.
    pub sums: [[i32; GROUPS / 2]; ROWS],
    pub scales: [f32; ROWS],
}

impl Pairs {
    /// Lays `rows` out; what was here before is gone. Stays empty where `isa` is not AMX.
    pub fn fill(&mut self, isa: Isa, rows: &RowCodes) {
        let (count, groups) = (rows.count(), rows.groups());
        self.cut = Cut::default();
        if isa != Isa::Amx || count < MANY_ROWS || rows.rounding_group() != RoundingGroup::Of256 {
            return;
        }
        let cut = Cut::in_pairs(count);
        let (blocks, wide) = (groups / GROUPS, cut.tiles.min(2));
        (self.cut, self.blocks) = (cut, blocks);
        self.tiles.resize(cut.tiles * blocks, bytemuck::Zeroable::zeroed());
        let x = rows.codes.as_chunks::<GROUP>().0.as_chunks::<2>().0;
        let tiles = Shared::new(&mut self.tiles);
        for_each_index(cut.tiles / wide, count * groups * GROUP, |index| {
            // SAFETY: every pair is dealt once, and pairs do not overlap here.
            let tiles = unsafe { tiles.part(index * blocks * wide..(index + 1) * blocks * wide) };
            for (at, tile) in tiles.iter_mut().enumerate() {
                let (b, start) = (at / wide, cut.start(index * wide + at % wide));
                for r in 0..cut.height {
                    let first = (start + r) * groups + b * GROUPS;
                    let sum = |g: usize| rows.sums[first + g][0] + rows.sums[first + g][1];
                    for step in 0..STEPS {
                        tile.codes[step][r] = x[first / 2 + step];
                    }
                    tile.sums[r] = std::array::from_fn(|p| pair(sum(2 * p), sum(2 * p + 1)));
                    tile.scales[r] = rows.scales[first];
                }
                tile.sums[cut.height..].fill([0; GROUPS / 2]);
                tile.scales[cut.height..].fill(0.0);
            }
        });
    }

    pub fn is_empty(&self) -> bool {
        self.cut.tiles == 0
    }

    /// Tiles `tile` and, if there is more than one, the next, of block `b`.
    #[inline(always)]
    pub(super) fn tiles(&self, tile: usize, b: usize) -> &[Tile] {
        let wide = self.cut.tiles.min(2);
        &self.tiles[tile * self.blocks + b * wide..][..wide]
    }
}
