//! AMX: a tile of 16 rows times a tile of 16 outputs, one group at a time, for at least 16 rows of `x`.
//!
//! The tile unit multiplies signed bytes, so codes are unpacked with their offset taken off. Its sums of one group are
//! stored and then scaled and added by AVX-512 while the next tiles are computed. Integers are exact, and the floating
//! part is the formula of [`super::scalar`], so outputs are those of the other paths and may be mixed with them: fewer
//! than 16 rows take [`super::avx512`].
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code)] // intrinsics and tile instructions that load through pointers

pub(in crate::kernels) mod system;
pub(in crate::kernels) mod tiles;

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::isa::Isa;
use super::super::parallel::{Shared, for_each_index};
use super::avx512::{self, load};
use super::expand::GroupScales;
use super::format::{GROUP, PANEL, Scheme};
use super::job::{GroupCodes, Job, Scratch};
use super::rows::{Rows, Span};
use tiles::{Configured, Sums};

/// Rows of a tile.
const ROWS: usize = 16;

/// Below this AVX-512 is as fast.
const MANY_ROWS: usize = 48;

/// Rows by sixteen: the last block may overlap the one before, and computes the same again. Empty for so few rows that
/// AVX-512 is as fast.
#[derive(Default)]
pub(super) struct Tiles {
    starts: Vec<usize>,
    /// `[blocks, groups, 16]`: codes as tiles, scales, and sums as `f32`.
    codes: Vec<[i8; GROUP]>,
    scales: Vec<f32>,
    sums: Vec<f32>,
}

impl Tiles {
    /// Becomes those of `rows`, empty but for AMX.
    pub fn fill(&mut self, isa: Isa, rows: &Rows) {
        let (count, groups) = (rows.count(), rows.groups());
        self.starts.clear();
        // Weights in blocks of 256 take rows as they are.
        if isa != Isa::Amx || count < MANY_ROWS || rows.span() == Span::Block {
            return;
        }
        let last = count - ROWS;
        self.starts.extend((0..last).step_by(ROWS).chain([last]));
        let each = groups * ROWS;
        let len = self.starts.len() * each;
        self.codes.resize(len, [0; GROUP]);
        self.scales.resize(len, 0.0);
        self.sums.resize(len, 0.0);
        let x = rows.codes.as_chunks::<GROUP>().0;
        let (codes, scales, sums) =
            (Shared::new(&mut self.codes), Shared::new(&mut self.scales), Shared::new(&mut self.sums));
        for_each_index(self.starts.len(), len * GROUP, |block| {
            let part = block * each..(block + 1) * each;
            // SAFETY: every block is dealt once, and blocks do not overlap here.
            let (codes, scales, sums) =
                unsafe { (codes.part(part.clone()), scales.part(part.clone()), sums.part(part)) };
            for r in 0..ROWS {
                for g in 0..groups {
                    let (from, to) = ((self.starts[block] + r) * groups + g, g * ROWS + r);
                    codes[to] = x[from];
                    scales[to] = rows.scales[from];
                    sums[to] = (rows.sums[from][0] + rows.sums[from][1]) as f32;
                }
            }
        });
    }
}

/// Computes the outputs of `panels`.
///
/// # Safety
/// The system has granted AMX.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn panels(job: &Job, panels: Range<usize>, scratch: &mut Scratch) {
    let tiles = &job.rows.tiles;
    if tiles.starts.is_empty() {
        return avx512::panels(job, panels, scratch);
    }
    let format = job.panels.format;
    let groups = job.panels.groups();
    // SAFETY: as the caller promises.
    let configured = unsafe { Configured::groups() };
    let mut sums = Sums::new();
    for index in panels {
        let (header, codes) = job.panels.panel(index);
        let scales = &mut scratch.scales[..groups];
        load::scales(format, header, scales);
        let wide = &mut scratch.codes[..groups];
        load::codes(format.codes, format.scheme.offset() as u8, codes, wide);
        for block in 0..tiles.starts.len() {
            let at = block * groups * ROWS..(block + 1) * groups * ROWS;
            let start = tiles.starts[block];
            let input = Input {
                x: bytemuck::cast_slice(&tiles.codes[at.clone()]),
                x_scales: &tiles.scales[at.clone()],
                x_sums: &tiles.sums[at],
                codes: wide,
                scales,
            };
            // The outputs' lines are fetched while they are computed: stores are done in order, and tile stores behind one
            // that waits for memory would fill the processor's buffer.
            for r in 0..ROWS {
                _mm_prefetch::<_MM_HINT_ET0>(job.out.place(start + r, index * PANEL).0.cast());
            }
            let y = match format.scheme {
                Scheme::Symmetric { .. } => sixteen::<SYMMETRIC>(&configured, &input, &mut sums),
                Scheme::Affine | Scheme::Super { .. } => sixteen::<AFFINE>(&configured, &input, &mut sums),
            };
            for (r, y) in y.iter().enumerate() {
                let (place, count) = job.out.place(start + r, index * PANEL);
                // SAFETY: `place` has room for `count` numbers, and the mask keeps the others.
                unsafe { _mm512_mask_storeu_ps(place, 0xffff >> (PANEL - count.min(PANEL)), *y) }
            }
        }
    }
}

// How a scheme adds up one group.
const SYMMETRIC: u8 = 0;
const AFFINE: u8 = 1;

/// Sixteen rows and a panel.
struct Input<'a> {
    /// `[groups, 16, 32]`
    x: &'a [i8],
    /// `[groups, 16]`
    x_scales: &'a [f32],
    x_sums: &'a [f32],
    /// Signed.
    codes: &'a [GroupCodes],
    scales: &'a [GroupScales],
}

/// The loop is kept to pointers that all fit registers: a reload from the stack may share its lower address bits with the
/// tile stores under way, and would wait for them.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn sixteen<const SCHEME: u8>(configured: &Configured, input: &Input, sums: &mut Sums) -> [__m512; ROWS] {
    let groups = input.codes.len();
    assert!(input.x.len() == ROWS * groups * GROUP && input.scales.len() == groups, "a block's shape");
    assert!(input.x_scales.len() == ROWS * groups && input.x_sums.len() == ROWS * groups, "a block's scales");
    let mut at = Pointers {
        codes: input.codes.as_ptr().cast(),
        x: input.x.as_ptr(),
        scales: input.scales.as_ptr(),
        x_scales: input.x_scales.as_ptr(),
        x_sums: input.x_sums.as_ptr(),
    };
    let next_x = input.x.len();
    let mut y = [_mm512_setzero_ps(); ROWS];
    // SAFETY: AMX is granted and configured, says `configured`. `at` begins at group 0 and advances by what was computed;
    // by the assertions, every array goes on to `groups`. Prefetches may point anywhere.
    unsafe {
        let mut left = groups / 2;
        let mut ready = sums.half(0);
        if left > 0 {
            configured.two(at.x, at.codes, ready);
        }
        while left > 1 {
            let filling = sums.other(ready);
            let ahead = at.advanced(2);
            configured.two(ahead.x, ahead.codes, filling);
            // Tile loads stall on what is not in the first cache: the next block's share of `x` is asked for meanwhile.
            for line in 0..2 * ROWS * GROUP / 64 {
                _mm_prefetch::<_MM_HINT_T0>(at.x.wrapping_add(next_x + 64 * line));
            }
            add_up::<SCHEME>(&mut y, ready, &at, 2);
            (at, ready) = (ahead, filling);
            left -= 1;
        }
        if groups >= 2 {
            add_up::<SCHEME>(&mut y, ready, &at, 2);
            at = at.advanced(2);
        }
        if groups % 2 == 1 {
            configured.one(at.x, at.codes, ready);
            add_up::<SCHEME>(&mut y, ready, &at, 1);
        }
    }
    y
}

/// Where a block's next group is.
#[derive(Clone, Copy)]
struct Pointers {
    codes: *const u8,
    x: *const i8,
    scales: *const GroupScales,
    x_scales: *const f32,
    x_sums: *const f32,
}

impl Pointers {
    #[inline(always)]
    fn advanced(self, groups: usize) -> Pointers {
        Pointers {
            codes: self.codes.wrapping_add(groups * ROWS * GROUP),
            x: self.x.wrapping_add(groups * ROWS * GROUP),
            scales: self.scales.wrapping_add(groups),
            x_scales: self.x_scales.wrapping_add(groups * ROWS),
            x_sums: self.x_sums.wrapping_add(groups * ROWS),
        }
    }
}

/// Adds the next groups to `y`.
///
/// # Safety
/// `sums` holds their one or two tiles, `at` points at them.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn add_up<const SCHEME: u8>(y: &mut [__m512; ROWS], sums: *const i32, at: &Pointers, groups: usize) {
    for g in 0..groups {
        // SAFETY: as the caller promises; a tile is 16 rows of 16 sums.
        unsafe {
            let w = &*at.scales.add(g);
            let (scale, second) = (_mm512_load_ps(w.scale.as_ptr()), _mm512_load_ps(w.second.as_ptr()));
            for (r, y) in y.iter_mut().enumerate() {
                let dots =
                    |tile: usize| _mm512_cvtepi32_ps(_mm512_load_si512(sums.add((tile * ROWS + r) * PANEL).cast()));
                let mut part = _mm512_mul_ps(dots(g), scale);
                if SCHEME == AFFINE {
                    part = _mm512_fmadd_ps(_mm512_set1_ps(*at.x_sums.add(g * ROWS + r)), second, part);
                }
                *y = _mm512_fmadd_ps(part, _mm512_set1_ps(*at.x_scales.add(g * ROWS + r)), *y);
            }
        }
    }
}
