//! Scores of a tile, and what the softmax makes of them.
#![allow(unsafe_code)] // loads through pointers into the cache

use std::ops::Range;

use super::element::{Element, MOST_AHEAD};
use super::layout::{GROUP, SCALE};
use super::work::{FEW, LINE, ROWS, STRIPS, TILE};
use crate::lanes::{self, LANES, Lanes};

/// Rows of weights; each sixteen of them are a cache line.
#[repr(align(64))]
pub(super) struct Weights(pub [[f32; TILE]; ROWS]);

/// A tile's keys and the rows that meet them.
pub(super) struct Scores<'a> {
    /// `[rows, head_dim]`
    pub queries: &'a [f32],
    pub head_dim: usize,
    pub keys: &'a [*const u8; STRIPS],
    /// Strips with positions that are asked for.
    pub strips: usize,
    pub scale: f32,
}

/// How many of the next `left` rows are taken together: 8, 4, 2 or 1, two values of sums each.
///
/// Loops over runs are written out where they are needed: a closure would be compiled without the instructions of `V`.
#[inline(always)]
pub(super) fn run<V: Lanes, E: Element>(left: usize) -> usize {
    1 << left.min((sums::<V, E>() / 2).max(1)).ilog2()
}

/// Values of sums at once. A scale per group needs its own beside the row's.
const fn sums<V: Lanes, E: Element>() -> usize {
    if E::SCALED { V::SUMS / 2 } else { V::SUMS }
}

impl Scores<'_> {
    /// `out[r][p] = scale · Σ_d q[r][d] · key[p][d]`, `d` ascending, for `R` rows from `row` on and the positions of all
    /// strips, and perhaps of one more. What is at `next` will be read after them.
    ///
    /// # Safety
    /// The processor has the instructions of `V`; there are as many rows, and keys are whole strips of `E`.
    #[inline(always)]
    pub unsafe fn fill<V: Lanes, E: Element, const R: usize>(
        &self,
        row: usize,
        out: &mut Weights,
        next: [*const u8; MOST_AHEAD],
    ) {
        let most = (sums::<V, E>() / R).max(1);
        let mut strip = 0;
        while strip < self.strips {
            let left = self.strips - strip;
            let together = if left.min(most) > 2 { 4 } else { left.min(most) };
            let next = std::array::from_fn(|n| match strip + together + n {
                strip if strip < self.strips => self.keys[strip],
                strip => next[(strip - self.strips).min(MOST_AHEAD - 1)],
            });
            // SAFETY: as the caller promises.
            unsafe {
                match together {
                    4 => self.strips::<V, E, R, 4>(row, strip, out, next),
                    2 => self.strips::<V, E, R, 2>(row, strip, out, next),
                    _ => self.strips::<V, E, R, 1>(row, strip, out, next),
                }
            }
            strip += together;
        }
    }

    /// `S` strips.
    ///
    /// # Safety
    /// As for [`Scores::fill`].
    #[inline(always)]
    unsafe fn strips<V: Lanes, E: Element, const R: usize, const S: usize>(
        &self,
        row: usize,
        strip: usize,
        out: &mut Weights,
        next: [*const u8; MOST_AHEAD],
    ) {
        let keys: [*const u8; S] = std::array::from_fn(|s| self.keys[strip + s]);
        // SAFETY: as the caller promises.
        unsafe {
            let q = self.queries.as_ptr().add(row * self.head_dim);
            let mut sums = [[V::splat(0.0); S]; R];
            if E::SCALED {
                let group_bytes = LANES * (SCALE + GROUP);
                let bytes = self.head_dim / GROUP * group_bytes;
                for group in 0..self.head_dim / GROUP {
                    let at = keys.map(|keys| keys.add(group * group_bytes));
                    let codes = at.map(|at| at.add(LANES * SCALE));
                    let mut parts = [[V::splat(0.0); S]; R];
                    let q = q.add(group * GROUP);
                    let ahead = Ahead::of::<E>(keys, bytes, group * group_bytes, next);
                    products::<V, E, R, S>(q, self.head_dim, codes, GROUP, &mut parts, ahead);
                    for s in 0..S {
                        let scale = V::load_f16(at[s].cast());
                        for r in 0..R {
                            sums[r][s] = parts[r][s].fma(scale, sums[r][s]);
                        }
                    }
                }
            } else {
                // In parts, for each of which memory is asked for something else.
                let (bytes, whole) = (LANES * E::SIZE, self.head_dim);
                let length = if R <= FEW { whole.div_ceil(STRIPS) } else { whole };
                for start in (0..whole).step_by(length) {
                    let ahead = Ahead::of::<E>(keys, whole * bytes, start * bytes, next);
                    let keys = keys.map(|keys| keys.add(start * bytes));
                    products::<V, E, R, S>(q.add(start), whole, keys, length.min(whole - start), &mut sums, ahead);
                }
            }
            for (r, sums) in sums.iter().enumerate() {
                for (s, sum) in sums.iter().enumerate() {
                    sum.mul(V::splat(self.scale)).store(out.0[row + r].as_mut_ptr().add((strip + s) * LANES));
                }
            }
        }
    }
}

/// What memory is asked for while `S` strips are read side by side, in the order in which they will be read. A processor forgets
/// what it is asked for while memory gives no more: twice as far ahead is worse.
struct Ahead<const S: usize> {
    runs: [*const u8; S],
    /// From one line to the next.
    pace: usize,
}

impl<const S: usize> Ahead<S> {
    /// From `at` on, of strips of so many `bytes`; those at `next` come after them.
    #[inline(always)]
    fn of<E: Element>(strips: [*const u8; S], bytes: usize, at: usize, next: [*const u8; MOST_AHEAD]) -> Ahead<S> {
        let at = at + E::AHEAD * bytes / S;
        if at < bytes {
            return Ahead { runs: strips.map(|strip| strip.wrapping_add(at)), pace: LINE };
        }
        let after = (at - bytes) * S;
        let start = next[(after / bytes).min(MOST_AHEAD - 1)].wrapping_add(after % bytes);
        Ahead { runs: std::array::from_fn(|s| start.wrapping_add(s * LINE)), pace: S * LINE }
    }
}

/// Adds `count` dimensions; `stride` is from one row of `q` to the next. Memory is asked for at the pace of the keys.
///
/// # Safety
/// As for [`Scores::fill`].
#[inline(always)]
unsafe fn products<V: Lanes, E: Element, const R: usize, const S: usize>(
    q: *const f32,
    stride: usize,
    keys: [*const u8; S],
    count: usize,
    sums: &mut [[V; S]; R],
    mut ahead: Ahead<S>,
) {
    let step = const { (LINE / (LANES * E::SIZE)).next_power_of_two() };
    for first in (0..count).step_by(step) {
        // SAFETY: as the caller promises; prefetches may point anywhere.
        unsafe {
            if R <= FEW {
                for run in &mut ahead.runs {
                    V::prefetch(*run);
                    *run = run.wrapping_add(ahead.pace);
                }
            }
            for d in first..(first + step).min(count) {
                let keys = keys.map(|keys| E::load::<V>(keys.add(d * LANES * E::SIZE)));
                for (r, sums) in sums.iter_mut().enumerate() {
                    let q = V::splat(*q.add(r * stride + d));
                    for (key, sum) in keys.iter().zip(sums) {
                        *sum = key.fma(q, *sum);
                    }
                }
            }
        }
    }
}

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn cap_scores<V: Lanes>(scores: &mut [[f32; TILE]], cap: f32) {
    for part in scores.iter_mut().flat_map(|row| row.chunks_exact_mut(LANES)) {
        // SAFETY: as the caller promises; a part is sixteen numbers.
        unsafe { lanes::capped(V::load(part.as_ptr()), cap).store(part.as_mut_ptr()) }
    }
}

/// Turns a row's scores into exponentials relative to the largest so far, and what was added up before along with them.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn softmax<V: Lanes>(
    scores: &mut [f32; TILE],
    visible: &Range<usize>,
    max: &mut f32,
    sums: &mut [f32; LANES],
    out: &mut [f32],
) {
    if visible.is_empty() {
        *scores = [0.0; TILE];
        return;
    }
    scores[..visible.start].fill(f32::NEG_INFINITY);
    scores[visible.end..].fill(f32::NEG_INFINITY);
    // SAFETY: as the caller promises; a tile is four values, `out` whole ones.
    unsafe {
        let at: [*mut f32; STRIPS] = std::array::from_fn(|strip| scores.as_mut_ptr().add(strip * LANES));
        let [a, b, c, d] = at.map(|at| V::load(at));
        let largest = lanes::largest(a.max(b).max(c.max(d)));
        let larger = if *max > largest { *max } else { largest };
        if larger > *max && *max > f32::NEG_INFINITY {
            let mut factor = [0.0; LANES];
            lanes::exp(V::splat(*max - larger)).store(factor.as_mut_ptr());
            let factor = V::splat(factor[0]);
            V::load(sums.as_ptr()).mul(factor).store(sums.as_mut_ptr());
            for part in out.chunks_exact_mut(LANES) {
                V::load(part.as_ptr()).mul(factor).store(part.as_mut_ptr());
            }
        }
        *max = larger;
        let larger = V::splat(larger);
        let mut sum = V::load(sums.as_ptr());
        for at in at {
            let weight = lanes::exp(V::load(at).sub(larger));
            weight.store(at);
            sum = sum.add(weight);
        }
        sum.store(sums.as_mut_ptr());
    }
}
