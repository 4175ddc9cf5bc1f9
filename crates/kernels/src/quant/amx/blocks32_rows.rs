//! Rows as the tile unit takes them beside weights in blocks of 32: a tile's group of 32 inputs together.
#![allow(unsafe_code)] // parts of the rows, dealt to several threads

use super::cut::{Cut, ROWS};
use crate::isa::Isa;
use crate::parallel::{Shared, for_each_index};
use crate::quant::format::GROUP;
use crate::quant::rounding::RoundingGroup;
use crate::quant::row_codes::RowCodes;

/// Below this AVX-512 is as fast.
const MANY_ROWS: usize = 6;

/// Rows by up to sixteen, so that what the tile unit loads at once lies together. Empty for so few rows that AVX-512 is as
/// fast.
#[derive(Default)]
pub(crate) struct Tiles {
    pub(super) cut: Cut,
    /// Rows of a tile in memory, a multiple of 8; those beyond its height are not used.
    pub(super) lines: usize,
    /// `[tiles, groups, lines]`: codes, scales, and sums as `f32`.
    codes: Vec<[i8; GROUP]>,
    scales: Vec<f32>,
    sums: Vec<f32>,
}

impl Tiles {
    /// Lays `rows` out; what was here before is gone. Stays empty where `isa` is not AMX.
    pub fn fill(&mut self, isa: Isa, rows: &RowCodes) {
        let (count, groups) = (rows.count(), rows.groups());
        self.cut = Cut::default();
        // Weights in blocks of 256 have tiles of their own.
        if isa != Isa::Amx || count < MANY_ROWS || rows.rounding_group() == RoundingGroup::Of256 {
            return;
        }
        self.cut = Cut::of(count);
        self.lines = self.cut.height.next_multiple_of(ROWS / 2);
        let (cut, lines) = (self.cut, self.lines);
        let each = groups * lines;
        let len = cut.tiles * each;
        self.codes.resize(len, [0; GROUP]);
        self.scales.resize(len, 0.0);
        self.sums.resize(len, 0.0);
        let x = rows.codes.as_chunks::<GROUP>().0;
        let (codes, scales, sums) =
            (Shared::new(&mut self.codes), Shared::new(&mut self.scales), Shared::new(&mut self.sums));
        for_each_index(cut.tiles, len * GROUP, |tile| {
            let part = tile * each..(tile + 1) * each;
            // SAFETY: every tile is dealt once, and tiles do not overlap here.
            let (codes, scales, sums) =
                unsafe { (codes.part(part.clone()), scales.part(part.clone()), sums.part(part)) };
            for r in 0..cut.height {
                for g in 0..groups {
                    let (from, to) = ((cut.start(tile) + r) * groups + g, g * lines + r);
                    codes[to] = x[from];
                    scales[to] = rows.scales[from];
                    sums[to] = (rows.sums[from][0] + rows.sums[from][1]) as f32;
                }
            }
        });
    }

    pub fn is_empty(&self) -> bool {
        self.cut.tiles == 0
    }

    /// The codes, scales and sums of tile `tile`.
    pub(super) fn part(&self, tile: usize, groups: usize) -> (&[i8], &[f32], &[f32]) {
        let at = tile * groups * self.lines..(tile + 1) * groups * self.lines;
        (self.codes[at.clone()].as_flattened(), &self.scales[at.clone()], &self.sums[at])
    }
}
