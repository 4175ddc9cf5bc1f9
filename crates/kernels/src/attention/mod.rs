//! Attention that reads keys and values where they lie: through block tables, in the paged cache.
//!
//! Each (token, head) is computed over its positions in ascending order: a softmax that goes on from one tile of 64
//! positions to the next (Milakov and Gimelshein, 2018; Dao et al., 2022), begun anew in every `RANGE` and joined in
//! ascending order. Tiles and ranges are cut at absolute positions, so the result depends on the token's own past only;
//! which blocks hold it, who else is in the step, how the prompt was cut and how many threads share the ranges leave no
//! trace. Values that a token does not see never meet it. Without causality it sees all of its chunk, which then is its past.
//!
//! Heads that share keys and values, and neighbouring tokens of a chunk, are computed together, up to eight rows, so that
//! each cached number is read and widened once for all of them.

mod cache;
mod element;
mod layout;
mod places;
mod range;
mod scores;
mod values;
mod work;
mod write;

use std::cell::RefCell;
use std::ops::Range;

use crate::isa::Isa;
use crate::parallel::{Columns, for_each_chunk, for_each_range, threads};
use places::Places;
use range::{Partial, Scratch};
use work::{ROWS, STRIPS, Work};

pub use cache::Cache;
pub use layout::{Geometry, KvDtype};

/// Positions whose softmax is begun anew: long contexts of few sequences are shared out by it.
const RANGE: usize = 512;

/// How queries meet a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// A multiple of the cache's key/value heads; head `h` reads those of head `h / (heads / kv_heads)`.
    pub heads: usize,
    /// What scores are multiplied by before the softmax.
    pub scale: f32,
    /// Scores `s` then become `cap * tanh(s / cap)` (Gemma 2).
    pub cap: Option<f32>,
    /// A token sees itself and the `window - 1` positions before it; `None` sees all.
    pub window: Option<usize>,
    /// A token sees no position after its own. Otherwise it sees those up to the end of its chunk, too.
    pub causal: bool,
}

/// Consecutive tokens of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Rows of the queries.
    pub rows: Range<usize>,
    /// The position of the first row.
    pub position: usize,
    /// The sequence's part of the tables; covers the last row's position.
    pub table: Range<usize>,
}

/// Rows of queries, and whose they are.
#[derive(Clone, Copy)]
pub struct Queries<'a> {
    /// `[T, heads, head_dim]`
    pub q: &'a [f32],
    /// Cover `T`.
    pub chunks: &'a [Chunk],
    /// The physical block of each logical one, for all chunks.
    pub tables: &'a [u32],
}

/// Some rows of a chunk, computed together.
#[derive(Clone, Copy, Debug)]
struct RowTile {
    chunk: usize,
    /// The chunk's first tile, and how many it has.
    first: usize,
    count: usize,
    /// The first row, counted from the chunk's first.
    row: usize,
    rows: usize,
}

/// Fills `out`, `[T, heads, head_dim]`.
///
/// # Panics
/// When lengths differ, or a table does not cover its positions or names a block outside the cache.
pub fn attention(queries: &Queries, cache: &Cache, shape: &Shape, out: &mut [f32]) {
    attention_on(Isa::current(), queries, cache, shape, out);
}

/// [`attention`] with instructions of one's choice: the same bits, another speed.
///
/// # Panics
/// Also when this machine does not have them.
pub fn attention_on(isa: Isa, queries: &Queries, cache: &Cache, shape: &Shape, out: &mut [f32]) {
    let Queries { q, chunks, tables } = *queries;
    assert!(isa.is_here(), "{} on a machine without it", isa.name());
    let kv_heads = cache.geometry.kv_heads;
    let width = shape.heads * cache.geometry.head_dim;
    let rows = chunks.last().map_or(0, |chunk| chunk.rows.end);
    assert!(shape.heads.is_multiple_of(kv_heads), "{} heads share {kv_heads}", shape.heads);
    assert!(q.len() == rows * width && out.len() == q.len(), "queries and outputs of {rows} rows");
    thread_local! {
        static ROW_TILES: RefCell<(Vec<RowTile>, Vec<Partial>)> = RefCell::default();
    }
    ROW_TILES.with_borrow_mut(|(row_tiles, partials)| {
        cut(chunks, shape.heads / kv_heads, row_tiles);
        let job = Job { isa, q, cache, chunks, tables, shape, row_tiles, out: Columns::new(out, width) };
        let seen: usize = chunks.iter().map(|c| c.rows.len() * (c.position + c.rows.len())).sum();
        let (cost, units) = (seen * width * 2, job.row_tiles.len() * kv_heads);
        let longest = chunks.iter().map(|chunk| chunk.position + chunk.rows.len()).max().unwrap_or(0);
        let ranges = longest.div_ceil(RANGE);
        if ranges > 1 && units < 4 * threads() {
            job.split(units, ranges, cost, partials);
        } else {
            // Ranges, for a unit asks memory for the next one's keys.
            for_each_range(units, 1, cost, |units| {
                with_scratch(|scratch| units.for_each(|unit| job.whole(unit, scratch)))
            });
        }
    });
}

fn with_scratch(compute: impl FnOnce(&mut Scratch)) {
    thread_local! {
        static SCRATCH: RefCell<Scratch> = RefCell::default();
    }
    SCRATCH.with_borrow_mut(compute);
}

/// Cuts chunks into tiles whose tokens, times the `group` of heads that share keys, make up to eight rows.
fn cut(chunks: &[Chunk], group: usize, row_tiles: &mut Vec<RowTile>) {
    let most = (ROWS / group).max(1);
    row_tiles.clear();
    for (index, chunk) in chunks.iter().enumerate() {
        let rows = chunk.rows.len();
        let whole = RowTile { chunk: index, first: row_tiles.len(), count: rows.div_ceil(most), row: 0, rows: 0 };
        row_tiles.extend((0..rows).step_by(most).map(|row| RowTile { row, rows: most.min(rows - row), ..whole }));
    }
}

/// One call. A unit of work is a tile of rows and a key/value head.
struct Job<'a> {
    isa: Isa,
    q: &'a [f32],
    cache: &'a Cache,
    chunks: &'a [Chunk],
    tables: &'a [u32],
    shape: &'a Shape,
    row_tiles: &'a [RowTile],
    out: Columns<'a>,
}

impl Job<'_> {
    /// All ranges of a unit, one after another.
    fn whole(&self, unit: usize, scratch: &mut Scratch) {
        self.each_eight(unit, |heads, sees| {
            self.load(unit, &heads, scratch);
            let end = sees.iter().map(|sees| sees.end).max().unwrap_or(0);
            let first = sees.iter().map(|sees| sees.start).min().unwrap_or(0) / RANGE;
            for index in first..end.div_ceil(RANGE) {
                self.range(unit, sees, index, scratch);
                let Scratch { partial, total, .. } = scratch;
                if index == first {
                    std::mem::swap(partial, total);
                } else {
                    total.join(partial, sees.len());
                }
            }
            self.write(unit, &heads, sees.len(), &scratch.total);
        });
    }

    /// Few units with long pasts: every range of every unit on its own, joined in the same order as [`Job::whole`] does.
    fn split(&self, units: usize, ranges: usize, cost: usize, partials: &mut Vec<Partial>) {
        let group = self.shape.heads / self.cache.geometry.kv_heads;
        // A unit of more than eight heads is done in several goes.
        let goes = group.div_ceil(ROWS);
        partials.resize_with((units * ranges * goes).max(partials.len()), Partial::default);
        for_each_chunk(&mut partials[..units * ranges * goes], goes, cost, |index, slots| {
            let (unit, range) = (index / ranges, index % ranges);
            with_scratch(|scratch| {
                let mut slots = slots.iter_mut();
                self.each_eight(unit, |heads, sees| {
                    self.load(unit, &heads, scratch);
                    self.range(unit, sees, range, scratch);
                    std::mem::swap(slots.next().expect("a slot per go"), &mut scratch.partial);
                });
            });
        });
        for unit in 0..units {
            let mut go = 0;
            self.each_eight(unit, |heads, sees| {
                let first = sees.iter().map(|sees| sees.start).min().unwrap_or(0) / RANGE;
                let end = sees.iter().map(|sees| sees.end).max().unwrap_or(0).div_ceil(RANGE);
                let at = |range: usize| (unit * ranges + range) * goes + go;
                for range in first + 1..end {
                    let (before, after) = partials.split_at_mut(at(range));
                    before[at(first)].join(&after[0], sees.len());
                }
                self.write(unit, &heads, sees.len(), &partials[at(first)]);
                go += 1;
            });
        }
    }

    fn place(&self, unit: usize) -> (RowTile, usize) {
        // Neighbouring units are neighbouring tiles of rows with the same keys, then heads whose keys are neighbours in
        // memory. A chunk has as many times more units than tiles as there are heads.
        let RowTile { first, count, .. } = self.row_tiles[unit / self.cache.geometry.kv_heads];
        let unit = unit - first * self.cache.geometry.kv_heads;
        (self.row_tiles[first + unit % count], unit / count)
    }

    /// Calls `each` with the heads (of those that share keys) of up to eight rows, and what each row sees. A row is a token
    /// and a head, tokens first.
    fn each_eight(&self, unit: usize, mut each: impl FnMut(Range<usize>, &[Range<usize>])) {
        let (tile, _) = self.place(unit);
        let group = self.shape.heads / self.cache.geometry.kv_heads;
        let chunk = &self.chunks[tile.chunk];
        let (position, end) = (chunk.position + tile.row, chunk.position + chunk.rows.len());
        for first in (0..group).step_by(ROWS) {
            let heads = first..group.min(first + ROWS);
            let mut sees: [Range<usize>; ROWS] = Default::default();
            let mut rows = 0;
            for token in 0..tile.rows {
                for _ in heads.clone() {
                    sees[rows] = self.shape.span(position + token, end);
                    rows += 1;
                }
            }
            each(heads, &sees[..rows]);
        }
    }

    /// The keys that a unit begins with from `position` on; the next unit's where it sees no more.
    fn next(&self, unit: usize, sees: &[Range<usize>], position: usize) -> Option<[*const u8; STRIPS]> {
        let keys = |unit: usize, position: usize| {
            let (tile, kv_head) = self.place(unit);
            Places::keys(self.cache, &self.tables[self.chunks[tile.chunk].table.clone()], kv_head, position)
        };
        if sees.last().is_some_and(|sees| position < sees.end) {
            return keys(unit, position);
        }
        let next = unit + 1;
        if next == self.row_tiles.len() * self.cache.geometry.kv_heads {
            return None;
        }
        let (tile, _) = self.place(next);
        let chunk = &self.chunks[tile.chunk];
        let position = chunk.position + tile.row;
        keys(next, self.shape.span(position, position + 1).start)
    }

    /// Where the query of a token of the tile and a head of the group starts: row and column.
    fn query(&self, unit: usize, token: usize, head: usize) -> (usize, usize) {
        let (tile, kv_head) = self.place(unit);
        let group = self.shape.heads / self.cache.geometry.kv_heads;
        let row = self.chunks[tile.chunk].rows.start + tile.row + token;
        (row, (kv_head * group + head) * self.cache.geometry.head_dim)
    }

    fn load(&self, unit: usize, heads: &Range<usize>, scratch: &mut Scratch) {
        let (tile, _) = self.place(unit);
        let head_dim = self.cache.geometry.head_dim;
        scratch.queries.clear();
        for token in 0..tile.rows {
            for head in heads.clone() {
                let (row, column) = self.query(unit, token, head);
                let start = row * self.shape.heads * head_dim + column;
                scratch.queries.extend_from_slice(&self.q[start..start + head_dim]);
            }
        }
    }

    fn range(&self, unit: usize, sees: &[Range<usize>], index: usize, scratch: &mut Scratch) {
        let (tile, kv_head) = self.place(unit);
        let work = Work {
            cache: self.cache,
            table: &self.tables[self.chunks[tile.chunk].table.clone()],
            kv_head,
            sees,
            range: index * RANGE..(index + 1) * RANGE,
            scale: self.shape.scale,
            cap: self.shape.cap,
            next: self.next(unit, sees, (index + 1) * RANGE),
        };
        range::range_on(self.isa, &work, scratch);
    }

    fn write(&self, unit: usize, heads: &Range<usize>, rows: usize, total: &Partial) {
        let head_dim = self.cache.geometry.head_dim;
        let width = total.out.len() / ROWS;
        for index in 0..rows {
            let (row, column) = self.query(unit, index / heads.len(), heads.start + index % heads.len());
            let scale = 1.0 / total.sum[index];
            let out = &total.out[index * width..][..head_dim];
            self.out.write_each(row, column, out.iter().map(|x| x * scale));
        }
    }
}

impl Shape {
    /// The positions that a token at `position` sees, of a chunk that stops before `end`.
    fn span(&self, position: usize, end: usize) -> Range<usize> {
        let start = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
        start..if self.causal { position + 1 } else { end }
    }
}

#[cfg(test)]
mod tests;
