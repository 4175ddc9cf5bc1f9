//! Weights in blocks of 32: a tile of up to 16 rows times a tile of 16 outputs, one group at a time.
//!
//! The tile unit multiplies signed bytes: codes of eight bits as they lie in the panel, others unpacked with their offset
//! taken off. Its sums of one group are stored and then scaled and added by AVX-512 while the next tiles are computed.
//! Integers are exact, and the floating part is the formula of [`crate::quant::scalar`], so outputs are those of the other
//! paths and may be mixed with them: a few rows take [`crate::quant::avx512`].
//!
//! While tiles are multiplied, one vector unit of two does no products (measured on Sapphire Rapids), so a group costs some
//! 20 ns per 16 rows and outputs, of which the tile unit itself takes half: 800 GOPS a core.
#![allow(unsafe_code)] // intrinsics and tile instructions that load through pointers

use std::arch::x86_64::*;
use std::ops::Range;

use super::blocks32_tiles::{GroupTiles, Sums};
use super::cut::ROWS;
use crate::quant::avx512::load;
use crate::quant::expand::Scratch;
use crate::quant::format::{Codes, GROUP, GROUP_CODES, Header, PANEL, Scheme};
use crate::quant::job::Job;

/// Computes the outputs of `panels`.
///
/// # Safety
/// The system has granted AMX, and the rows are laid out as tiles.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(crate) unsafe fn panels(job: &Job, panels: Range<usize>, scratch: &mut Scratch) {
    let tiles = &job.layouts.tiles;
    let format = job.panels.format;
    let groups = job.panels.groups();
    // SAFETY: as the caller promises; a tile has at most 16 rows.
    let configured = unsafe { GroupTiles::configure(tiles.cut.height) };
    let mut sums = Sums::new();
    // Bytes of the next panel that each two groups of a tile ask for.
    let share = (2 * format.codes.bytes() / tiles.cut.tiles).next_multiple_of(64);
    for index in panels {
        let (header, codes) = job.panels.whole(index);
        let next = codes.as_ptr().wrapping_add(codes.len() + header.len());
        let codes = if format.codes == Codes::Eight {
            codes
        } else {
            let wide = &mut scratch.codes[..groups];
            load::codes(format.codes, format.scheme.offset() as u8, codes, wide);
            bytemuck::cast_slice(wide)
        };
        for tile in 0..tiles.cut.tiles {
            let (x, x_scales, x_sums) = tiles.part(tile, groups);
            let next = Ahead { at: next.wrapping_add(tile * share * (groups / 2)), bytes: share };
            let input = Input { x, x_scales, x_sums, codes, header, next };
            let to = Place { job, index, rows: tiles.cut.start(tile)..tiles.cut.start(tile) + tiles.cut.height };
            match (format.scheme, tiles.lines) {
                (Scheme::Symmetric { .. }, 8) => block::<SYMMETRIC, 8>(&configured, &input, &mut sums, &to),
                (Scheme::Symmetric { .. }, _) => block::<SYMMETRIC, ROWS>(&configured, &input, &mut sums, &to),
                (_, 8) => block::<AFFINE, 8>(&configured, &input, &mut sums, &to),
                _ => block::<AFFINE, ROWS>(&configured, &input, &mut sums, &to),
            }
        }
    }
}

// How a scheme adds up one group.
const SYMMETRIC: u8 = 0;
const AFFINE: u8 = 1;

/// Bytes of a group's entry in the header.
const fn entry(scheme: u8) -> usize {
    if scheme == AFFINE { Header::DAndM.bytes() } else { Header::D.bytes() }
}

/// A tile of rows and a panel.
struct Input<'a> {
    /// `[groups, lines, 32]`
    x: &'a [i8],
    /// `[groups, lines]`
    x_scales: &'a [f32],
    x_sums: &'a [f32],
    /// Signed, `[groups, 512]`.
    codes: &'a [u8],
    /// Scales, and shifts beside them where the scheme is affine.
    header: &'a [u8],
    next: Ahead,
}

/// What memory is asked for while a tile is multiplied. All tiles of rows together fetch the next panel, each its share at an even pace: a
/// first tile that did it alone would wait for memory, and the others would leave it idle.
#[derive(Clone, Copy)]
struct Ahead {
    at: *const u8,
    /// For each two groups.
    bytes: usize,
}

/// Where outputs go.
struct Place<'a> {
    job: &'a Job<'a>,
    index: usize,
    rows: Range<usize>,
}

#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn block<const SCHEME: u8, const LINES: usize>(configured: &GroupTiles, input: &Input, sums: &mut Sums, to: &Place) {
    // The outputs' lines are fetched while they are computed: stores are done in order, and tile stores behind one that
    // waits for memory would fill the processor's buffer.
    for t in to.rows.clone() {
        _mm_prefetch::<_MM_HINT_ET0>(to.job.out.place(t, to.index * PANEL).0.cast());
    }
    let y = lines::<SCHEME, LINES>(configured, input, sums);
    for (t, y) in to.rows.clone().zip(y) {
        let (place, count) = to.job.out.place(t, to.index * PANEL);
        // SAFETY: `place` has room for `count` numbers, and the mask keeps the others.
        unsafe { _mm512_mask_storeu_ps(place, 0xffff >> (PANEL - count.min(PANEL)), y) }
    }
}

/// The loop is kept to pointers that all fit registers, in a function of its own: a reload from the stack may share its
/// lower address bits with the tile stores under way, and would wait for them.
#[inline(never)]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn lines<const SCHEME: u8, const LINES: usize>(
    configured: &GroupTiles,
    input: &Input,
    sums: &mut Sums,
) -> [__m512; LINES] {
    let groups = input.codes.len() / GROUP_CODES;
    assert!(input.x.len() == LINES * groups * GROUP && input.header.len() >= groups * entry(SCHEME), "a tile's shape");
    assert!(input.x_scales.len() == LINES * groups && input.x_sums.len() == LINES * groups, "a tile's scales");
    let mut at = Pointers::<SCHEME, LINES> {
        codes: input.codes.as_ptr(),
        x: input.x.as_ptr(),
        header: input.header.as_ptr(),
        x_scales: input.x_scales.as_ptr(),
        x_sums: input.x_sums.as_ptr(),
    };
    let mut next = input.next;
    let mut y = [_mm512_setzero_ps(); LINES];
    // SAFETY: AMX is granted and configured, says `configured`. `at` begins at group 0 and advances by what was computed;
    // by the assertions, every array goes on to `groups`. Prefetches may point anywhere.
    unsafe {
        let mut left = groups / 2;
        let mut ready = sums.half(0);
        if left > 0 {
            configured.two::<LINES, 0>(at.x, at.codes, ready);
        }
        while left > 1 {
            let filling = sums.other(ready);
            configured.two::<LINES, 2>(at.x, at.codes, filling);
            at.fetch();
            next.fetch();
            add_up(&mut y, ready, &at, 2);
            at.advance(2);
            ready = filling;
            left -= 1;
        }
        if groups >= 2 {
            at.fetch();
            next.fetch();
            add_up(&mut y, ready, &at, 2);
            at.advance(2);
        }
        if groups % 2 == 1 {
            configured.one(at.x, at.codes, ready);
            add_up(&mut y, ready, &at, 1);
        }
    }
    y
}

impl Ahead {
    #[inline(always)]
    fn fetch(&mut self) {
        let end = self.at.wrapping_add(self.bytes);
        while self.at < end {
            // SAFETY: prefetches may point anywhere.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(self.at.cast()) };
            self.at = self.at.wrapping_add(64);
        }
    }
}

/// Where a tile's next group is.
struct Pointers<const SCHEME: u8, const LINES: usize> {
    codes: *const u8,
    x: *const i8,
    header: *const u8,
    x_scales: *const f32,
    x_sums: *const f32,
}

impl<const SCHEME: u8, const LINES: usize> Pointers<SCHEME, LINES> {
    #[inline(always)]
    fn advance(&mut self, groups: usize) {
        self.codes = self.codes.wrapping_add(groups * GROUP_CODES);
        self.x = self.x.wrapping_add(groups * LINES * GROUP);
        self.header = self.header.wrapping_add(groups * entry(SCHEME));
        self.x_scales = self.x_scales.wrapping_add(groups * LINES);
        self.x_sums = self.x_sums.wrapping_add(groups * LINES);
    }

    /// Asks for what will be multiplied soon: tile loads stall on what is not in the first cache.
    #[inline(always)]
    fn fetch(&self) {
        // SAFETY: prefetches may point anywhere.
        unsafe {
            for line in 0..2 * GROUP_CODES / 64 {
                _mm_prefetch::<_MM_HINT_T0>(self.codes.wrapping_add(load::AHEAD + 64 * line).cast());
            }
            for line in 0..2 * LINES * GROUP / 64 {
                _mm_prefetch::<_MM_HINT_T0>(self.x.wrapping_add(load::AHEAD + 64 * line));
            }
        }
    }
}

/// Adds the next groups to `y`.
///
/// # Safety
/// `sums` holds their one or two tiles, `at` points at them.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn add_up<const SCHEME: u8, const LINES: usize>(
    y: &mut [__m512; LINES],
    sums: *const i32,
    at: &Pointers<SCHEME, LINES>,
    groups: usize,
) {
    for g in 0..groups {
        // SAFETY: as the caller promises; a tile is 16 rows of 16 sums.
        unsafe {
            let halves = |row: usize| {
                let entry = at.header.add(g * entry(SCHEME) + row * 2 * PANEL);
                _mm512_cvtph_ps(_mm256_loadu_si256(entry.cast()))
            };
            let scale = halves(0);
            let second = if SCHEME == AFFINE { halves(1) } else { scale };
            for (r, y) in y.iter_mut().enumerate() {
                let dots =
                    |tile: usize| _mm512_cvtepi32_ps(_mm512_load_si512(sums.add((tile * ROWS + r) * PANEL).cast()));
                let mut part = _mm512_mul_ps(dots(g), scale);
                if SCHEME == AFFINE {
                    part = _mm512_fmadd_ps(_mm512_set1_ps(*at.x_sums.add(g * LINES + r)), second, part);
                }
                *y = _mm512_fmadd_ps(part, _mm512_set1_ps(*at.x_scales.add(g * LINES + r)), *y);
            }
        }
    }
}
