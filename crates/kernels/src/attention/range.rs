//! Up to eight rows of queries against one range of positions of one head: scores, online softmax, weighted values.
#![allow(unsafe_code)] // kernels that load through pointers into the cache

use std::ops::Range;

use super::element::{Bf16, Element, F16, F32, Q8};
use super::layout::{KvDtype, padded};
use super::places::Places;
use super::scores::{Scores, Weights, cap_scores, run, softmax};
use super::values::Values;
use super::work::{ROWS, TILE, Work};
use crate::dot::sum_lanes;
use crate::floats::Floats;
use crate::lanes::{self, LANES, Lanes};

/// What a range of positions adds up to, for each row: the largest score, the sum of exponentials relative to it, and the
/// values weighted by them. A row that sees nothing in the range has a sum of zero.
#[derive(Default)]
pub(super) struct Partial {
    pub max: [f32; ROWS],
    pub sum: [f32; ROWS],
    /// `[ROWS, padded head_dim]`
    pub out: Floats,
}

/// Scratch memory of one thread, kept between calls.
#[derive(Default)]
pub(super) struct Scratch {
    /// `[rows, head_dim]`
    pub queries: Vec<f32>,
    pub partial: Partial,
    pub total: Partial,
    /// A tile's strips, where the cache's own are not sixteen wide.
    strips: Vec<u8>,
}

impl Partial {
    /// Joins what later positions add up to.
    pub fn join(&mut self, later: &Partial, rows: usize) {
        let width = self.out.len() / ROWS;
        for row in 0..rows {
            let (mine, other) = (row * width..(row + 1) * width, later.sum[row]);
            if other == 0.0 {
                continue;
            }
            if self.sum[row] == 0.0 {
                (self.max[row], self.sum[row]) = (later.max[row], other);
                self.out[mine.clone()].copy_from_slice(&later.out[mine]);
                continue;
            }
            let max = if self.max[row] > later.max[row] { self.max[row] } else { later.max[row] };
            let (a, b) = ((self.max[row] - max).exp(), (later.max[row] - max).exp());
            self.sum[row] = self.sum[row] * a + other * b;
            self.max[row] = max;
            for (mine, later) in self.out[mine.clone()].iter_mut().zip(&later.out[mine]) {
                *mine = *mine * a + later * b;
            }
        }
    }

    fn clear(&mut self, rows: usize, width: usize) {
        self.max = [f32::NEG_INFINITY; ROWS];
        self.sum = [0.0; ROWS];
        self.out.fit(ROWS * width);
        self.out[..rows * width].fill(0.0);
    }
}

lanes::on_lanes!(pub(super) fn range_on(work: &Work, scratch: &mut Scratch) = range);

/// Fills `scratch.partial` from `scratch.queries`.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn range<V: Lanes>(work: &Work, scratch: &mut Scratch) {
    // SAFETY: as the caller promises.
    unsafe {
        match work.cache.dtype {
            KvDtype::F32 => tiles::<V, F32>(work, scratch),
            KvDtype::F16 => tiles::<V, F16>(work, scratch),
            KvDtype::Bf16 => tiles::<V, Bf16>(work, scratch),
            KvDtype::Q8_0 => tiles::<V, Q8>(work, scratch),
        }
    }
}

/// # Safety
/// The processor has the instructions of `V`; the cache holds `E`.
#[inline(always)]
unsafe fn tiles<V: Lanes, E: Element>(work: &Work, scratch: &mut Scratch) {
    let head_dim = work.cache.geometry.head_dim;
    let width = padded(head_dim);
    let rows = work.sees.len();
    assert!(rows <= ROWS && scratch.queries.len() == rows * head_dim, "rows of queries");
    let Scratch { queries, partial, strips, .. } = scratch;
    partial.clear(rows, width);
    let first = work.sees.iter().map(|sees| sees.start).min().unwrap_or(0).max(work.range.start) / TILE * TILE;
    let last = work.sees.iter().map(|sees| sees.end).max().unwrap_or(0).min(work.range.end);
    let value_bytes = work.cache.dtype.value_bytes(head_dim);
    let mut sums = [[0.0f32; LANES]; ROWS];
    let mut weights = Weights([[0.0f32; TILE]; ROWS]);
    for start in (first..last).step_by(TILE) {
        let visible: [Range<usize>; ROWS] = std::array::from_fn(|row| match work.sees.get(row) {
            Some(sees) => sees.start.clamp(start, start + TILE) - start..sees.end.clamp(start, start + TILE) - start,
            None => 0..0,
        });
        let visible = &visible[..rows];
        let places = Places::find(work, start, last, strips);
        let asked = (last - start).min(TILE).div_ceil(LANES);
        // SAFETY: as the caller promises; strips are whole, and offsets stay within them.
        unsafe {
            let scores = Scores { queries, head_dim, keys: &places.keys, strips: asked, scale: work.scale };
            let next = std::array::from_fn(|strip| places.values[strip]);
            let mut row = 0;
            while row < rows {
                let count = run::<V, E>(rows - row);
                match count {
                    1 => scores.fill::<V, E, 1>(row, &mut weights, next),
                    2 => scores.fill::<V, E, 2>(row, &mut weights, next),
                    4 => scores.fill::<V, E, 4>(row, &mut weights, next),
                    _ => scores.fill::<V, E, 8>(row, &mut weights, next),
                }
                row += count;
            }
            if let Some(cap) = work.cap {
                cap_scores::<V>(&mut weights.0[..rows], cap);
            }
            for (row, visible) in visible.iter().enumerate() {
                let out = &mut partial.out[row * width..(row + 1) * width];
                softmax::<V>(&mut weights.0[row], visible, &mut partial.max[row], &mut sums[row], out);
            }
            let next = if start + TILE < last {
                Places::keys(work.cache, work.table, work.kv_head, start + TILE)
            } else {
                work.next
            };
            let values = Values { rows: places.values, bytes: value_bytes, width, next: next.unwrap_or(places.keys) };
            values.add::<V, E>(&weights, visible, &mut partial.out);
        }
    }
    for (sum, lanes) in partial.sum.iter_mut().zip(sums) {
        *sum = sum_lanes(lanes);
    }
}
