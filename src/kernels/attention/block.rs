//! Up to eight rows of queries against one range of positions of one head: scores, online softmax, weighted values.
#![allow(unsafe_code)] // loads through pointers into the cache

use std::ops::Range;

use super::super::lanes::{self, LANES, Lanes};
use super::super::packed::halves;
use super::cache::{Cache, GROUP, KvDtype, SCALE, key_at, key_scale_at, padded};
use super::element::{Bf16, Element, F16, F32, Q8};

/// Rows of queries that are computed together.
pub(super) const ROWS: usize = 8;
/// Up to this many rows the cache is read from memory rather than from the processor's caches, and asked for ahead.
const FEW: usize = 4;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Positions between two looks at the maximum: two strips.
const TILE: usize = 2 * LANES;

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
    /// See [`super::Shape::cap`].
    pub cap: Option<f32>,
}

/// What a range of positions adds up to, for each row: the largest score, the sum of exponentials relative to it, and the
/// values weighted by them. A row that sees nothing in the range has a sum of zero.
#[derive(Default)]
pub(super) struct Partial {
    pub max: [f32; ROWS],
    pub sum: [f32; ROWS],
    /// `[ROWS, padded head_dim]`
    pub out: Vec<f32>,
}

/// Room of one thread, kept between calls.
#[derive(Default)]
pub(super) struct Scratch {
    /// `[rows, head_dim]`
    pub queries: Vec<f32>,
    pub partial: Partial,
    pub total: Partial,
    /// Two strips, where the cache's own are not sixteen wide.
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

    fn clear(&mut self, width: usize) {
        self.max = [f32::NEG_INFINITY; ROWS];
        self.sum = [0.0; ROWS];
        self.out.clear();
        self.out.resize(ROWS * width, 0.0);
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
    partial.clear(width);
    let first = work.sees.iter().map(|sees| sees.start).min().unwrap_or(0).max(work.range.start) / TILE * TILE;
    let last = work.sees.iter().map(|sees| sees.end).max().unwrap_or(0).min(work.range.end);
    let mut sums = [[0.0f32; LANES]; ROWS];
    let mut weights = [[0.0f32; TILE]; ROWS];
    for start in (first..last).step_by(TILE) {
        let visible: [Range<usize>; ROWS] = std::array::from_fn(|row| match work.sees.get(row) {
            Some(sees) => sees.start.clamp(start, start + TILE) - start..sees.end.clamp(start, start + TILE) - start,
            None => 0..0,
        });
        let visible = &visible[..rows];
        // SAFETY: as the caller promises; strips and rows of values are whole, and offsets stay within them.
        unsafe {
            let keys = key_strips(work, start, last, strips);
            let values = value_rows(work, start..last.min(start + TILE));
            let mut row = 0;
            while row < rows {
                let (q, out) = (queries.as_ptr().add(row * head_dim), weights[row].as_mut_ptr());
                let count = run::<V, E>(rows - row);
                match count {
                    1 => scores::<V, E, 1>(q, head_dim, keys, work.scale, out, values[0]),
                    2 => scores::<V, E, 2>(q, head_dim, keys, work.scale, out, values[0]),
                    4 => scores::<V, E, 4>(q, head_dim, keys, work.scale, out, values[0]),
                    _ => scores::<V, E, 8>(q, head_dim, keys, work.scale, out, values[0]),
                }
                row += count;
            }
            if let Some(cap) = work.cap {
                cap_scores::<V>(&mut weights[..rows], cap);
            }
            for (row, visible) in visible.iter().enumerate() {
                let out = &mut partial.out[row * width..(row + 1) * width];
                softmax::<V>(&mut weights[row], visible, &mut partial.max[row], &mut sums[row], out);
            }
            let next = next_keys(work, start + TILE, last);
            add_values::<V, E>(&weights, visible, &Values { rows: values, next }, width, &mut partial.out);
        }
    }
    for (sum, lanes) in partial.sum.iter_mut().zip(sums) {
        *sum = super::super::dot::sum_lanes(lanes);
    }
}

/// How many of the next `left` rows are taken together: 8, 4, 2 or 1.
///
/// Loops over runs are written out where they are needed: a closure would be compiled without the instructions of `V`.
#[inline(always)]
fn run<V: Lanes, E: Element>(left: usize) -> usize {
    // A scale per group needs its own sums beside the row's.
    let most = if E::SCALED { (V::ROWS / 2).max(1) } else { V::ROWS };
    1 << left.min(most).ilog2()
}

/// The strips of positions `start..start + 16` and the sixteen after them; the second is the first again where no position
/// below `last` is in it.
fn key_strips(work: &Work, start: usize, last: usize, room: &mut Vec<u8>) -> [*const u8; 2] {
    let block_size = work.cache.geometry.block_size;
    let strip =
        |position: usize| work.cache.key_strip(work.table[position / block_size], work.kv_head, position % block_size);
    let second = start + LANES;
    if work.cache.strip() == LANES {
        let first = strip(start).as_ptr();
        return [first, if second < last { strip(second).as_ptr() } else { first }];
    }
    gather(work, start..last.min(start + TILE), room);
    let bytes = room.len() / 2;
    [room.as_ptr(), room[bytes..].as_ptr()]
}

/// Puts columns of narrower strips side by side.
fn gather(work: &Work, positions: Range<usize>, room: &mut Vec<u8>) {
    let cache = work.cache;
    let (dtype, head_dim, block_size) = (cache.dtype, cache.geometry.head_dim, cache.geometry.block_size);
    let (width, size, bytes) = (cache.strip(), dtype.size(), LANES * dtype.key_bytes(head_dim));
    room.resize(2 * bytes, 0);
    for (column, position) in positions.enumerate() {
        let from = cache.key_strip(work.table[position / block_size], work.kv_head, position % block_size);
        let from_column = position % block_size % width;
        let to = &mut room[column / LANES * bytes..][..bytes];
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
}

/// Where the next tile's keys lie, as far as that is known without gathering them; null where there are none.
fn next_keys(work: &Work, start: usize, last: usize) -> [*const u8; 2] {
    let strip = |position: usize| {
        if position >= last || work.cache.strip() != LANES {
            return std::ptr::null();
        }
        let block_size = work.cache.geometry.block_size;
        work.cache.key_strip(work.table[position / block_size], work.kv_head, position % block_size).as_ptr()
    };
    [strip(start), strip(start + LANES)]
}

/// Where the values of a tile lie; null for positions that are not asked for.
fn value_rows(work: &Work, positions: Range<usize>) -> [*const u8; TILE] {
    let mut rows = [std::ptr::null(); TILE];
    let block_size = work.cache.geometry.block_size;
    let (mut position, mut row) = (positions.start, 0);
    while position < positions.end {
        let offset = position % block_size;
        let count = (block_size - offset).min(positions.end - position);
        let values = work.cache.value_rows(work.table[position / block_size], work.kv_head, offset..offset + count);
        for values in values {
            rows[row] = values.as_ptr();
            row += 1;
        }
        position += count;
    }
    rows
}

/// A tile's values, and what to fetch while they are added up.
struct Values {
    rows: [*const u8; TILE],
    /// Strips of the next tile's keys.
    next: [*const u8; 2],
}

/// `out[r][p] = scale · Σ_d q[r][d] · key[p][d]`, `d` ascending, for `R` rows and the 32 positions of two strips.
///
/// # Safety
/// The processor has the instructions of `V`; `q` points at `R` rows of `head_dim`, `keys` at whole strips of `E`, `out` at
/// `R` rows of 32. What is at `ahead` will be read next.
#[inline(always)]
unsafe fn scores<V: Lanes, E: Element, const R: usize>(
    q: *const f32,
    head_dim: usize,
    keys: [*const u8; 2],
    scale: f32,
    out: *mut f32,
    ahead: *const u8,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut sums = [[V::splat(0.0); 2]; R];
        if E::SCALED {
            let group_bytes = LANES * (SCALE + GROUP);
            for group in 0..head_dim / GROUP {
                let at = [keys[0].add(group * group_bytes), keys[1].add(group * group_bytes)];
                let codes = [at[0].add(LANES * SCALE), at[1].add(LANES * SCALE)];
                let mut parts = [[V::splat(0.0); 2]; R];
                let ahead = ahead.wrapping_add(group * GROUP * LINE);
                products::<V, E, R>(q.add(group * GROUP), head_dim, codes, GROUP, &mut parts, ahead);
                let scales = [V::load_f16(at[0].cast()), V::load_f16(at[1].cast())];
                for r in 0..R {
                    for i in 0..2 {
                        sums[r][i] = parts[r][i].fma(scales[i], sums[r][i]);
                    }
                }
            }
        } else {
            products::<V, E, R>(q, head_dim, keys, head_dim, &mut sums, ahead);
        }
        for (r, sums) in sums.iter().enumerate() {
            for (i, sum) in sums.iter().enumerate() {
                sum.mul(V::splat(scale)).store(out.add(r * TILE + i * LANES));
            }
        }
    }
}

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn cap_scores<V: Lanes>(scores: &mut [[f32; TILE]], cap: f32) {
    for part in scores.iter_mut().flat_map(|row| row.chunks_exact_mut(LANES)) {
        // SAFETY: as the caller promises; a part is sixteen numbers.
        unsafe { lanes::capped(V::load(part.as_ptr()), cap).store(part.as_mut_ptr()) }
    }
}

/// Adds `count` dimensions; `stride` is from one row of `q` to the next.
///
/// # Safety
/// As for [`scores`].
#[inline(always)]
unsafe fn products<V: Lanes, E: Element, const R: usize>(
    q: *const f32,
    stride: usize,
    keys: [*const u8; 2],
    count: usize,
    sums: &mut [[V; 2]; R],
    ahead: *const u8,
) {
    for d in 0..count {
        // SAFETY: as the caller promises.
        unsafe {
            if R <= FEW {
                V::prefetch(ahead.wrapping_add(d * LINE));
            }
            let offset = d * LANES * E::SIZE;
            let (first, second) = (E::load::<V>(keys[0].add(offset)), E::load::<V>(keys[1].add(offset)));
            for (r, sums) in sums.iter_mut().enumerate() {
                let q = V::splat(*q.add(r * stride + d));
                sums[0] = first.fma(q, sums[0]);
                sums[1] = second.fma(q, sums[1]);
            }
        }
    }
}

/// Turns a row's scores into exponentials relative to the largest so far, and what was added up before along with them.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn softmax<V: Lanes>(
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
    // SAFETY: as the caller promises; a tile is two values, `out` whole ones.
    unsafe {
        let at = scores.as_mut_ptr();
        let (a, b) = (V::load(at), V::load(at.add(LANES)));
        let largest = lanes::largest(a.max(b));
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
        let (a, b) = (lanes::exp(a.sub(larger)), lanes::exp(b.sub(larger)));
        a.store(at);
        b.store(at.add(LANES));
        V::load(sums.as_ptr()).add(a).add(b).store(sums.as_mut_ptr());
    }
}

/// `out[r] += Σ_p weights[r][p] · value[p]`, `p` ascending over the positions that row `r` sees. Values that a row does not
/// see do not meet it even with a weight of zero, for they may be anything.
///
/// # Safety
/// The processor has the instructions of `V`; `values` point at rows of `E` wherever a row sees a position.
#[inline(always)]
unsafe fn add_values<V: Lanes, E: Element>(
    weights: &[[f32; TILE]; ROWS],
    visible: &[Range<usize>],
    values: &Values,
    width: usize,
    out: &mut [f32],
) {
    let rows = visible.len();
    let start = visible.iter().map(|v| v.start).max().unwrap_or(0);
    let end = visible.iter().map(|v| v.end).min().unwrap_or(0).max(start);
    // SAFETY: as the caller promises; `weights` and `out` have as many rows as are taken together.
    unsafe {
        for (row, visible) in visible.iter().enumerate() {
            let (w, out) = (weights[row].as_ptr(), out[row * width..(row + 1) * width].as_mut_ptr());
            weighted::<V, E, 1>(w, values, visible.start..visible.end.min(start), width, out);
        }
        let mut row = 0;
        while row < rows {
            let count = run::<V, E>(rows - row);
            let (w, out) = (weights[row].as_ptr(), out[row * width..(row + count) * width].as_mut_ptr());
            match count {
                1 => weighted::<V, E, 1>(w, values, start..end, width, out),
                2 => weighted::<V, E, 2>(w, values, start..end, width, out),
                4 => weighted::<V, E, 4>(w, values, start..end, width, out),
                _ => weighted::<V, E, 8>(w, values, start..end, width, out),
            }
            row += count;
        }
        for (row, visible) in visible.iter().enumerate() {
            let (w, out) = (weights[row].as_ptr(), out[row * width..(row + 1) * width].as_mut_ptr());
            weighted::<V, E, 1>(w, values, visible.start.max(end)..visible.end, width, out);
        }
    }
}

/// # Safety
/// As for [`add_values`]; `weights` points at `R` rows of 32, `out` at `R` rows of `width`.
#[inline(always)]
unsafe fn weighted<V: Lanes, E: Element, const R: usize>(
    weights: *const f32,
    values: &Values,
    positions: Range<usize>,
    width: usize,
    out: *mut f32,
) {
    if positions.is_empty() {
        return;
    }
    let mut d = 0;
    // SAFETY: as the caller promises; `width` is a multiple of sixteen.
    unsafe {
        while d + 2 * LANES <= width {
            columns::<V, E, R, 2>(weights, values, positions.clone(), width, d, out);
            d += 2 * LANES;
        }
        if d < width {
            columns::<V, E, R, 1>(weights, values, positions, width, d, out);
        }
    }
}

/// Dimensions `d..d + 16 · C`.
///
/// # Safety
/// As for [`weighted`].
#[inline(always)]
unsafe fn columns<V: Lanes, E: Element, const R: usize, const C: usize>(
    weights: *const f32,
    values: &Values,
    positions: Range<usize>,
    width: usize,
    d: usize,
    out: *mut f32,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut sums = [[V::splat(0.0); C]; R];
        for (r, sums) in sums.iter_mut().enumerate() {
            for (c, sum) in sums.iter_mut().enumerate() {
                *sum = V::load(out.add(r * width + d + c * LANES));
            }
        }
        for p in positions {
            let row = *values.rows.get_unchecked(p);
            if R <= FEW {
                // Two strips of 16 positions, line by line.
                let line = d + p / 2 * 2;
                V::prefetch(values.next[p % 2].wrapping_add(line / 2 * LINE));
            }
            let (at, scale) = if E::SCALED {
                let group = row.add(d / GROUP * (SCALE + GROUP));
                (group.add(SCALE), halves::f16(group.cast::<[u8; SCALE]>().read()))
            } else {
                (row.add(d * E::SIZE), 1.0)
            };
            let mut v = [V::splat(0.0); C];
            for (c, v) in v.iter_mut().enumerate() {
                *v = E::load::<V>(at.add(c * LANES * E::SIZE));
                if E::SCALED {
                    *v = v.mul(V::splat(scale));
                }
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let weight = V::splat(*weights.add(r * TILE + p));
                for (c, sum) in sums.iter_mut().enumerate() {
                    *sum = v[c].fma(weight, *sum);
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (c, sum) in sums.iter().enumerate() {
                sum.store(out.add(r * width + d + c * LANES));
            }
        }
    }
}
