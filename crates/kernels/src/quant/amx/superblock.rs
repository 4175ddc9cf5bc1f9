//! Weights in blocks of 256: up to two tiles of 16 rows times a panel times a whole block of 256 inputs.
//!
//! The tile unit adds products of bytes over a whole block only if weights and scales become one: `code · scale` has ten to
//! fourteen bits, so it is cut into two planes of bytes, and `high · 2ⁿ + low` puts the sums together again. A product costs
//! two instead of one, but the sums leave the tiles once per 256 inputs, not eight times, and that is what counts.
//!
//! ```text
//! Affine: code · (scale >> 3), code · (scale & 7)          both below 256
//! Halves: (code − 32) · scale >> 8, and its low eight bits
//! ```
//! The three kinds of work (multiplying tiles, adding up the sums of the tile before, making planes of the block after) wait
//! for different units of the processor. They are dealt out in quarters of a tile, in turns, so that none of them idles.
#![allow(unsafe_code)] // intrinsics and tile instructions that load through pointers

use std::arch::x86_64::*;
use std::ops::Range;

use super::cut::TILE;
use crate::amx::registers::Configured;
use crate::quant::amx::superblock_planes::{self as planes, Planes};
use crate::quant::amx::superblock_products::{self as products, PAIR, Sums};
use crate::quant::amx::superblock_rows::{Pairs, STEPS, Tile};
use crate::quant::avx512::load::{Five, Four, Load, Six};
use crate::quant::avx512::superblock_header::{half, pair};
use crate::quant::format::{Codes, PANEL};
use crate::quant::job::Job;
use crate::quant::superblock::GROUPS;

/// How many blocks ahead of the planes weights are asked for.
const AHEAD: usize = 2;

/// Scratch memory of one thread, kept between calls.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Planes of the block at hand and of the one after.
    planes: Vec<TwoPlanes>,
    /// Sums of the tiles at hand and of those before.
    sums: Vec<Sums>,
    /// Outputs of each tile of rows, and of two tiles behind them that are never written out.
    y: Vec<Output>,
}

/// Half a page apart: a load waits for stores under way that differ from it only in the upper bits of the address.
#[derive(Clone, Copy, bytemuck::Zeroable)]
#[repr(C, align(4096))]
struct TwoPlanes {
    one: Planes,
    between: [u8; 2048],
    other: Planes,
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Output([f32; TILE]);

/// Computes the outputs of `panels`.
///
/// # Safety
/// The system has granted AMX, and the rows are laid out as pairs of tiles.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(crate) unsafe fn panels(job: &Job, panels: Range<usize>, scratch: &mut Scratch) {
    let rows = &job.layouts.pairs;
    // SAFETY: as the caller promises; a tile has at most 16 rows.
    let tiles = unsafe { products::configure(rows.cut.height) };
    scratch.planes.resize(1, bytemuck::Zeroable::zeroed());
    scratch.sums.resize(2, bytemuck::Zeroable::zeroed());
    scratch.y.clear();
    scratch.y.resize(rows.cut.tiles + PAIR, bytemuck::Zeroable::zeroed());
    let run = Run { job, rows, panels, blocks: job.panels.groups() / GROUPS };
    match (job.panels.format.codes, rows.cut.tiles > 1) {
        (Codes::Four, false) => run.all::<Four, true, false>(&tiles, scratch),
        (Codes::Four, true) => run.all::<Four, true, true>(&tiles, scratch),
        (Codes::Five, false) => run.all::<Five, true, false>(&tiles, scratch),
        (Codes::Five, true) => run.all::<Five, true, true>(&tiles, scratch),
        (_, false) => run.all::<Six, false, false>(&tiles, scratch),
        (_, true) => run.all::<Six, false, true>(&tiles, scratch),
    }
}

/// Blocks of all panels in one row.
struct Run<'a> {
    job: &'a Job<'a>,
    rows: &'a Pairs,
    panels: Range<usize>,
    /// Blocks of a panel.
    blocks: usize,
}

/// A block of a panel.
struct Weights<'a> {
    /// The block's entry in the header.
    entry: &'a [u8],
    codes: &'a [u8],
}

impl Run<'_> {
    #[inline(always)]
    fn weights(&self, block: usize) -> Weights<'_> {
        let format = self.job.panels.format;
        let (bytes, b) = (format.bytes_together(GROUPS), block % self.blocks);
        let panel = self.job.panels.panel(self.panels.start + block / self.blocks);
        let (entry, codes) = panel[b * bytes..][..bytes].split_at(format.header_bytes(GROUPS));
        Weights { entry, codes }
    }

    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
    fn all<L: Load, const AFFINE: bool, const TWO: bool>(&self, tiles: &Configured, scratch: &mut Scratch) {
        let Scratch { planes, sums, y } = scratch;
        let TwoPlanes { one: planes, other: other_planes, .. } = &mut planes[0];
        let [sums, other_sums] = sums.as_mut_slice() else { unreachable!("two tiles' sums") };
        let (mut planes, mut next_planes) = (planes, other_planes);
        let (mut sums, mut sums_before) = (sums, other_sums);
        let count = self.rows.cut.tiles;
        let last = self.panels.len() * self.blocks - 1;
        let first = self.weights(0);
        (0..GROUPS).for_each(|g| planes::group::<L, AFFINE>(first.entry, first.codes, g, planes));
        let mut factors = [Factors::new::<AFFINE>(first.entry); 2];
        // Before the first turn there is nothing to add up: what is there goes to the outputs that are never written out.
        let (mut tile_before, mut block_before) = (count, 0);
        let mut rows_before = self.rows.tiles(0, 0);
        for block in 0..=last {
            let b = block % self.blocks;
            let (weights, ahead) = (self.weights((block + 1).min(last)), self.weights((block + 1 + AHEAD).min(last)));
            let mut made = 0;
            for tile in (0..count).step_by(PAIR) {
                let rows = self.rows.tiles(tile, b);
                if b + 1 == self.blocks {
                    self.fetch_outputs(block, tile);
                }
                let turn = Turn {
                    rows,
                    planes,
                    sums,
                    rows_before,
                    sums_before,
                    y: &mut y[tile_before..],
                    factors: &factors[block_before % 2],
                    weights: &weights,
                    ahead: &ahead,
                    made,
                    next_planes,
                };
                // SAFETY: AMX is there and configured, says `tiles`.
                made = unsafe {
                    match made {
                        0 if count <= PAIR => turn.take::<L, AFFINE, TWO, 2>(tiles),
                        GROUPS => turn.take::<L, AFFINE, TWO, 0>(tiles),
                        _ => turn.take::<L, AFFINE, TWO, 1>(tiles),
                    }
                };
                self.finish(block_before, tile_before, y);
                std::mem::swap(&mut sums, &mut sums_before);
                (tile_before, block_before, rows_before) = (tile, block, rows);
            }
            while made < GROUPS {
                planes::group::<L, AFFINE>(weights.entry, weights.codes, made, next_planes);
                made += 1;
            }
            std::mem::swap(&mut planes, &mut next_planes);
            factors[(block + 1) % 2] = Factors::new::<AFFINE>(weights.entry);
        }
        let place = &mut y[tile_before..];
        // SAFETY: there are as many outputs as tiles.
        unsafe {
            for step in 0..STEPS {
                add_up::<AFFINE, TWO>(rows_before, sums_before, place, &factors[block_before % 2], step);
            }
        }
        self.finish(block_before, tile_before, y);
    }

    /// Lines that will be stored to: stores are done in order, and tile stores behind one that waits for memory would fill the
    /// processor's buffer.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn fetch_outputs(&self, block: usize, tile: usize) {
        let (cut, column) = (self.rows.cut, (self.panels.start + block / self.blocks) * PANEL);
        for tile in tile..(tile + PAIR).min(cut.tiles) {
            for r in 0..cut.height {
                _mm_prefetch::<_MM_HINT_ET0>(self.job.out.place(cut.start(tile) + r, column).0.cast());
            }
        }
    }

    /// Writes outputs that are complete.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn finish(&self, block: usize, tile: usize, y: &mut [Output]) {
        let cut = self.rows.cut;
        if block % self.blocks + 1 < self.blocks || tile == cut.tiles {
            return;
        }
        let column = (self.panels.start + block / self.blocks) * PANEL;
        for tile in tile..(tile + PAIR).min(cut.tiles) {
            for (r, y) in y[tile].0.as_chunks_mut::<PANEL>().0.iter_mut().enumerate() {
                if r < cut.height {
                    let (place, count) = self.job.out.place(cut.start(tile) + r, column);
                    let mask = 0xffff >> (PANEL - count.min(PANEL));
                    // SAFETY: sixteen numbers; where they go there is room for `count`, and the mask keeps the others.
                    unsafe { _mm512_mask_storeu_ps(place, mask, _mm512_load_ps(y.as_ptr())) }
                }
                *y = [0.0; PANEL];
            }
        }
    }
}

/// What is done while one or two tiles are multiplied. Pointers must stay in registers, and structures be passed by reference
/// and read number by number: a load from memory that the processor cannot take from its store buffer, or that only looks
/// like a store under way in the lower bits of its address, waits for all tile instructions before it.
struct Turn<'a> {
    rows: &'a [Tile],
    planes: &'a Planes,
    sums: &'a mut Sums,
    /// What the turn before multiplied.
    rows_before: &'a [Tile],
    sums_before: &'a Sums,
    y: &'a mut [Output],
    factors: &'a Factors,
    /// The next block, of which `made` groups are planes already.
    weights: &'a Weights<'a>,
    made: usize,
    next_planes: &'a mut Planes,
    /// What memory is asked for.
    ahead: &'a Weights<'a>,
}

impl Turn<'_> {
    /// Multiplies a tile, or `TWO`, and makes planes of `MAKE` groups in each step; says how many there are now.
    ///
    /// # Safety
    /// AMX is there and configured.
    #[inline(never)]
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
    unsafe fn take<L: Load, const AFFINE: bool, const TWO: bool, const MAKE: usize>(self, tiles: &Configured) -> usize {
        let Turn { rows, planes, sums, rows_before, sums_before, y, factors, weights, made, next_planes, ahead } = self;
        let count = 1 + usize::from(TWO);
        assert!(rows.len() == count && rows_before.len() == count && y.len() >= count, "tiles of a turn");
        assert!(made + STEPS * MAKE <= GROUPS && ahead.codes.len() == GROUPS * L::BYTES, "groups of a block");
        // SAFETY: as the caller promises, and as was just seen.
        unsafe {
            products::begin(tiles);
            products::multiply::<AFFINE, TWO>(tiles, rows, planes, 0);
            add_up::<AFFINE, TWO>(rows_before, sums_before, y, factors, 0);
            make::<L, AFFINE, MAKE>(weights, ahead, made, next_planes);
            products::multiply::<AFFINE, TWO>(tiles, rows, planes, 1);
            add_up::<AFFINE, TWO>(rows_before, sums_before, y, factors, 1);
            make::<L, AFFINE, MAKE>(weights, ahead, made + MAKE, next_planes);
            products::multiply::<AFFINE, TWO>(tiles, rows, planes, 2);
            add_up::<AFFINE, TWO>(rows_before, sums_before, y, factors, 2);
            make::<L, AFFINE, MAKE>(weights, ahead, made + 2 * MAKE, next_planes);
            products::multiply::<AFFINE, TWO>(tiles, rows, planes, 3);
            add_up::<AFFINE, TWO>(rows_before, sums_before, y, factors, 3);
            make::<L, AFFINE, MAKE>(weights, ahead, made + 3 * MAKE, next_planes);
            products::end::<TWO>(tiles, sums);
        }
        made + STEPS * MAKE
    }
}

/// Planes of `MAKE` groups from `g` on.
#[inline(always)]
unsafe fn make<L: Load, const AFFINE: bool, const MAKE: usize>(
    weights: &Weights,
    ahead: &Weights,
    g: usize,
    planes: &mut Planes,
) {
    for g in g..g + MAKE {
        // SAFETY: prefetches may point anywhere; the instructions are those of the functions that this is inlined into.
        unsafe {
            for line in 0..L::BYTES / 64 {
                _mm_prefetch::<_MM_HINT_T0>(ahead.codes.as_ptr().wrapping_add(g * L::BYTES + 64 * line).cast());
            }
            _mm_prefetch::<_MM_HINT_T0>(ahead.entry.as_ptr().wrapping_add(64 * g).cast());
            planes::group::<L, AFFINE>(weights.entry, weights.codes, g, planes);
        }
    }
}

/// Adds a quarter of the rows' sums to their outputs.
///
/// # Safety
/// There are as many rows' tiles and outputs as tiles.
#[inline(always)]
unsafe fn add_up<const AFFINE: bool, const TWO: bool>(
    rows: &[Tile],
    sums: &Sums,
    y: &mut [Output],
    factors: &Factors,
    step: usize,
) {
    const QUARTER: usize = TILE / PANEL / STEPS;
    let (sums, y) = (sums.0.as_ptr().cast::<i32>(), y.as_mut_ptr().cast::<f32>());
    // SAFETY: as the caller promises; the instructions are those of the functions that this is inlined into.
    unsafe {
        for tile in 0..1 + usize::from(TWO) {
            let rows = rows.as_ptr().add(tile);
            for r in QUARTER * step..QUARTER * (step + 1) {
                let high = _mm512_load_si512(sums.add(2 * tile * TILE + r * PANEL).cast());
                let low = _mm512_load_si512(sums.add((2 * tile + 1) * TILE + r * PANEL).cast());
                let part = part::<AFFINE>(factors, high, low, (&raw const (*rows).sums[r]).cast());
                let (y, scale) = (y.add(tile * TILE + r * PANEL), _mm512_set1_ps((*rows).scales[r]));
                _mm512_store_ps(y, _mm512_fmadd_ps(part, scale, _mm512_load_ps(y)));
            }
        }
    }
}

/// What one block's sums are multiplied with.
#[derive(Clone, Copy)]
struct Factors {
    d: __m512,
    dmin: __m512,
    /// See [`pair`]; only of `Affine`.
    mins: [__m512i; GROUPS / 2],
}

impl Factors {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn new<const AFFINE: bool>(entry: &[u8]) -> Factors {
        assert!(entry.len() >= (if AFFINE { 4 + 2 * GROUPS } else { 2 + 2 * GROUPS }) * PANEL, "an entry");
        // SAFETY: within the entry.
        unsafe {
            let zero = _mm512_setzero_ps();
            let mut factors =
                Factors { d: half(entry.as_ptr()), dmin: zero, mins: [_mm512_castps_si512(zero); GROUPS / 2] };
            if AFFINE {
                factors.dmin = half(entry.as_ptr().add(2 * PANEL));
                for p in 0..GROUPS / 2 {
                    factors.mins[p] = pair::<true>(entry.as_ptr(), p);
                }
            }
            factors
        }
    }
}

/// One row of a block's sums times the weights' scales.
///
/// # Safety
/// `terms` points at those of the row.
#[inline(always)]
unsafe fn part<const AFFINE: bool>(factors: &Factors, high: __m512i, low: __m512i, terms: *const i32) -> __m512 {
    // At most 2²¹, so that counting from the bits of 1.5 · 2²³ gives that number plus the sum.
    const MAGIC: f32 = 12_582_912.0;
    // SAFETY: as the caller promises; the instructions are those of the functions that this is inlined into.
    unsafe {
        if !AFFINE {
            let products = _mm512_add_epi32(_mm512_slli_epi32::<8>(high), low);
            return _mm512_mul_ps(_mm512_cvtepi32_ps(products), factors.d);
        }
        // Additions have two units, shifts and conversions one, which is busy.
        let high = _mm512_add_epi32(high, high);
        let high = _mm512_add_epi32(high, high);
        let products = _mm512_add_epi32(_mm512_add_epi32(high, high), low);
        let mut sums = _mm512_castps_si512(_mm512_set1_ps(MAGIC));
        for (p, mins) in factors.mins.iter().enumerate() {
            sums = _mm512_dpwssd_epi32(sums, *mins, _mm512_set1_epi32(*terms.add(p)));
        }
        let sums = _mm512_sub_ps(_mm512_castsi512_ps(sums), _mm512_set1_ps(MAGIC));
        let part = _mm512_mul_ps(_mm512_cvtepi32_ps(products), factors.d);
        _mm512_fnmadd_ps(sums, factors.dmin, part)
    }
}
