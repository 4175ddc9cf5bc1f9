//! Rows as sums of two BF16 numbers, in the order in which the tile unit takes them.
#![allow(unsafe_code)] // parts of the rows, dealt to several threads

use super::unit::{GROUP, TILE, TILE_NUMBERS};
use crate::parallel::{Shared, for_each_index};

/// `[T, inputs]`. Its memory is kept from one call to the next.
#[derive(Default)]
pub(super) struct Split {
    /// `[tiles of rows, groups, (high, low), 16 pairs of inputs, 16 rows]`, a pair in 32 bits.
    pairs: Vec<Pairs>,
    count: usize,
    /// Rows of a tile. The last tile may overlap the one before, and has some rows twice.
    height: usize,
    groups: usize,
}

/// One group of up to 16 rows: high, then low.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(super) struct Pairs([[u32; TILE_NUMBERS / 2]; 2]);

impl Split {
    /// Replaces what was here by the rows of `x`.
    pub fn fill(&mut self, x: &[f32], inputs: usize) {
        (self.count, self.groups) = (x.len() / inputs, inputs / GROUP);
        let tiles = self.count.div_ceil(TILE);
        self.height = self.count.div_ceil(tiles);
        self.pairs.resize(tiles * self.groups, bytemuck::Zeroable::zeroed());
        let Split { count, height, groups, .. } = *self;
        let pairs = Shared::new(&mut self.pairs);
        for_each_index(tiles, x.len(), |tile| {
            // SAFETY: every tile is dealt once, and tiles do not overlap here.
            let pairs = unsafe { pairs.part(tile * groups..(tile + 1) * groups) };
            let start = start(tile, height, count);
            for r in 0..height {
                let row = &x[(start + r) * inputs..][..inputs];
                for (pairs, x) in pairs.iter_mut().zip(row.as_chunks::<GROUP>().0) {
                    split(x, r, pairs);
                }
            }
        });
    }

    pub fn tiles(&self) -> usize {
        self.count.div_ceil(TILE)
    }

    pub fn height(&self) -> usize {
        self.height
    }

    /// The first row of a tile.
    pub fn start(&self, tile: usize) -> usize {
        start(tile, self.height, self.count)
    }

    /// All groups of a tile.
    pub fn tile(&self, tile: usize) -> &[Pairs] {
        &self.pairs[tile * self.groups..][..self.groups]
    }
}

/// The first row of a tile of `height`, of `count` rows in all.
fn start(tile: usize, height: usize, count: usize) -> usize {
    (tile * height).min(count - height)
}

fn split(x: &[f32; GROUP], r: usize, pairs: &mut Pairs) {
    let mut halves = [[0u16; GROUP]; 2];
    let [high, low] = &mut halves;
    for ((high, low), x) in high.iter_mut().zip(low).zip(x) {
        *high = rounded(*x);
        *low = rounded(x - f32::from_bits(u32::from(*high) << 16));
    }
    for (half, out) in halves.iter().zip(&mut pairs.0) {
        for (p, two) in half.as_chunks::<2>().0.iter().enumerate() {
            out[p * TILE + r] = u32::from(two[0]) | u32::from(two[1]) << 16;
        }
    }
}

/// The bits of the nearest BF16, ties to even; NaN stays NaN.
pub(super) fn rounded(x: f32) -> u16 {
    let bits = x.to_bits();
    let nearest = (bits.wrapping_add(0x7fff + (bits >> 16 & 1))) >> 16;
    if x.is_nan() { 0x7fc0 } else { nearest as u16 }
}
