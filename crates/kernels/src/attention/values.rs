//! A tile's values, weighted and added up.
#![allow(unsafe_code)] // loads through pointers into the cache

use std::ops::Range;

use super::element::Element;
use super::layout::{GROUP, SCALE};
use super::scores::{Weights, run};
use super::work::{FEW, LINE, STRIPS, TILE};
use crate::lanes::{LANES, Lanes};

/// Values of sixteen dimensions that are added up at once, at most.
const WIDEST: usize = 8;

/// A tile's values, and what to ask for while they are added up.
pub(super) struct Values {
    /// See [`super::places::Places`].
    pub rows: [*const u8; STRIPS],
    /// From one row to the next.
    pub bytes: usize,
    /// Dimensions, with their padding.
    pub width: usize,
    /// Keys that will be read next.
    pub next: [*const u8; STRIPS],
}

impl Values {
    /// `out[r] += Σ_p weights[r][p] · value[p]`, `p` ascending over the positions that row `r` sees. Values that a row does not
    /// see do not meet it even with a weight of zero, for they may be anything.
    ///
    /// # Safety
    /// The processor has the instructions of `V`; there are rows of `E` wherever a row sees a position.
    #[inline(always)]
    pub unsafe fn add<V: Lanes, E: Element>(&self, weights: &Weights, visible: &[Range<usize>], out: &mut [f32]) {
        let (rows, width) = (visible.len(), self.width);
        let start = visible.iter().map(|v| v.start).max().unwrap_or(0);
        let end = visible.iter().map(|v| v.end).min().unwrap_or(0).max(start);
        // SAFETY: as the caller promises; `weights` and `out` have as many rows as are taken together.
        unsafe {
            for (row, visible) in visible.iter().enumerate() {
                let (w, out) = (weights.0[row].as_ptr(), out[row * width..(row + 1) * width].as_mut_ptr());
                self.weighted::<V, E, 1>(w, visible.start..visible.end.min(start), out);
            }
            let mut row = 0;
            while row < rows {
                let count = run::<V, E>(rows - row);
                let (w, out) = (weights.0[row].as_ptr(), out[row * width..(row + count) * width].as_mut_ptr());
                match count {
                    1 => self.weighted::<V, E, 1>(w, start..end, out),
                    2 => self.weighted::<V, E, 2>(w, start..end, out),
                    4 => self.weighted::<V, E, 4>(w, start..end, out),
                    _ => self.weighted::<V, E, 8>(w, start..end, out),
                }
                row += count;
            }
            for (row, visible) in visible.iter().enumerate() {
                let (w, out) = (weights.0[row].as_ptr(), out[row * width..(row + 1) * width].as_mut_ptr());
                self.weighted::<V, E, 1>(w, visible.start.max(end)..visible.end, out);
            }
        }
    }

    /// `R` rows.
    ///
    /// # Safety
    /// As for [`Values::add`]; `weights` points at `R` rows of a tile, `out` at `R` rows of values.
    #[inline(always)]
    unsafe fn weighted<V: Lanes, E: Element, const R: usize>(
        &self,
        weights: *const f32,
        positions: Range<usize>,
        out: *mut f32,
    ) {
        if positions.is_empty() {
            return;
        }
        let most = (V::SUMS / R).clamp(1, WIDEST);
        let mut d = 0;
        // SAFETY: as the caller promises; dimensions are a multiple of sixteen.
        unsafe {
            while d < self.width {
                let left = (self.width - d) / LANES;
                d += LANES
                    * match left.min(most) {
                        8.. => self.columns::<V, E, R, 8>(weights, positions.clone(), d, out),
                        4.. => self.columns::<V, E, R, 4>(weights, positions.clone(), d, out),
                        2.. => self.columns::<V, E, R, 2>(weights, positions.clone(), d, out),
                        _ => self.columns::<V, E, R, 1>(weights, positions.clone(), d, out),
                    };
            }
        }
    }

    /// `C` times sixteen dimensions from `d` on; says how many times that was.
    ///
    /// # Safety
    /// As for [`Values::weighted`].
    #[inline(always)]
    unsafe fn columns<V: Lanes, E: Element, const R: usize, const C: usize>(
        &self,
        weights: *const f32,
        positions: Range<usize>,
        d: usize,
        out: *mut f32,
    ) -> usize {
        // SAFETY: as the caller promises.
        unsafe {
            let at = |r: usize, c: usize| out.add(r * self.width + d + c * LANES);
            let mut sums = [[V::splat(0.0); C]; R];
            for (r, sums) in sums.iter_mut().enumerate() {
                for (c, sum) in sums.iter_mut().enumerate() {
                    *sum = V::load(at(r, c));
                }
            }
            for strip in positions.start / LANES..positions.end.div_ceil(LANES) {
                let first = positions.start.max(strip * LANES);
                let mut row = self.rows[strip].add(first % LANES * self.bytes);
                let ahead = self.after::<E, C>(strip + E::AHEAD, &positions, d);
                for p in first..positions.end.min((strip + 1) * LANES) {
                    if R <= FEW {
                        self.fetch::<V, E, C>(&ahead, p % LANES);
                    }
                    let v = loaded::<V, E, C>(row, d);
                    for (r, sums) in sums.iter_mut().enumerate() {
                        let weight = V::splat(*weights.add(r * TILE + p));
                        for (v, sum) in v.iter().zip(sums) {
                            *sum = v.fma(weight, *sum);
                        }
                    }
                    row = row.add(self.bytes);
                }
            }
            for (r, sums) in sums.iter().enumerate() {
                for (c, sum) in sums.iter().enumerate() {
                    sum.store(at(r, c));
                }
            }
        }
        C
    }

    /// What is read as strip `strip`, from dimension `d` on, of the strips of `positions` and all that follows.
    #[inline(always)]
    fn after<E: Element, const C: usize>(&self, strip: usize, positions: &Range<usize>, d: usize) -> Ahead {
        let strips = positions.start / LANES..positions.end.div_ceil(LANES);
        if strip < strips.end {
            return Ahead::Rows(self.rows[strip].wrapping_add(d * E::SIZE));
        }
        let (later, d) = (strip - strips.end, d + C * LANES);
        if d < self.width {
            return Ahead::Rows(self.rows[(strips.start + later).min(strips.end - 1)].wrapping_add(d * E::SIZE));
        }
        Ahead::Keys(later * LANES)
    }

    /// Asks for as much as a row has: one of the rows, or of four strips of keys in turns.
    #[inline(always)]
    fn fetch<V: Lanes, E: Element, const C: usize>(&self, ahead: &Ahead, row: usize) {
        let lines = const { (C * LANES * E::SIZE).div_ceil(LINE) };
        for line in 0..lines {
            let at = match ahead {
                Ahead::Rows(rows) => rows.wrapping_add(row * self.bytes + line * LINE),
                Ahead::Keys(rows) => {
                    let line = (rows + row) * lines + line;
                    self.next[line % STRIPS].wrapping_add(line / STRIPS * LINE)
                }
            };
            // SAFETY: prefetches may point anywhere; callers have the instructions of `V`.
            unsafe { V::prefetch(at) };
        }
    }
}

/// What comes next: sixteen rows, or keys, of which so many rows' bytes were asked for before.
enum Ahead {
    Rows(*const u8),
    Keys(usize),
}

/// `C` times sixteen numbers of a row of values, from dimension `d` on.
///
/// # Safety
/// The processor has the instructions of `V`; the row has them.
#[inline(always)]
unsafe fn loaded<V: Lanes, E: Element, const C: usize>(row: *const u8, d: usize) -> [V; C] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut v = [V::splat(0.0); C];
        let mut scale = V::splat(1.0);
        for (c, v) in v.iter_mut().enumerate() {
            let d = d + c * LANES;
            if !E::SCALED {
                *v = E::load::<V>(row.add(d * E::SIZE));
                continue;
            }
            let group = row.add(d / GROUP * (SCALE + GROUP));
            // More than one begin with a group.
            if C == 1 || c % 2 == 0 {
                scale = V::splat_f16(group.cast());
            }
            *v = E::load::<V>(group.add(SCALE + d % GROUP)).mul(scale);
        }
        v
    }
}
