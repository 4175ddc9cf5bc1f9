//! AMX: up to 16 rows times two panels times a whole block of 256 inputs.
//!
//! The tile unit adds products of bytes over a whole block only if weights and scales become one: `code · scale` has ten to
//! thirteen bits, so it is cut into two planes of bytes, and `high · 2ⁿ + low` puts the sums together again. A product costs
//! two instead of one, but the sums leave the tiles once per 256 inputs, not eight times, and that is what counts.
//!
//! ```text
//! Affine: code · (scale >> 3), code · (scale & 7)          both below 256
//! Halves: (code − 32) · scale >> 7, and its low seven bits
//! ```
#![allow(unsafe_code)] // intrinsics and tile instructions that load through pointers

use std::arch::asm;
use std::arch::x86_64::*;
use std::ops::Range;

use super::super::amx::tiles::{Configured, TILE};
use super::super::avx512::load::{AHEAD, Five, Four, Load, Six};
use super::super::format::{Codes, GROUP, PANEL};
use super::super::job::{Job, Scratch};
use super::avx512::{self, half, pair, pairs_per_block, wide};
use super::{GROUPS, OFFSET};

/// Rows of a tile, at most.
const ROWS: usize = 16;
/// Below this AVX-512 is faster: a block's planes are made however few rows there are.
const MANY_ROWS: usize = 12;
/// Inputs of a tile.
const STEP: usize = 64;
/// Inputs of a block.
const BLOCK: usize = GROUPS * GROUP;
/// Panels that share the rows' loads.
const PANELS: usize = 2;
/// Bytes of a block's plane.
const PLANE: usize = PANEL * BLOCK;

/// One thread's room.
#[derive(Default)]
pub(in super::super) struct Room {
    planes: Vec<Planes>,
    sums: Vec<Sums>,
    /// Of each tile of rows.
    y: Vec<Output>,
}

/// High and low, each `[4, 16, 64]`, of two panels: what the tile unit takes for weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Planes([[[u8; PLANE]; 2]; PANELS]);

/// High and low of two panels.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Sums([[[i32; TILE]; 2]; PANELS]);

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Output([[f32; TILE]; PANELS]);

/// Rows in tiles of one height; the last tile may overlap the one before, and computes the same again.
struct Cut {
    count: usize,
    height: usize,
    tiles: usize,
}

impl Cut {
    fn of(count: usize) -> Cut {
        let tiles = count.div_ceil(ROWS);
        Cut { count, height: count.div_ceil(tiles), tiles }
    }

    fn start(&self, tile: usize) -> usize {
        (tile * self.height).min(self.count - self.height)
    }
}

/// One block of inputs for one tile of rows.
#[derive(Clone, Copy)]
struct Turn<'a> {
    job: &'a Job<'a>,
    cut: &'a Cut,
    b: usize,
    tile: usize,
}

/// Computes the outputs of `panels`.
///
/// # Safety
/// The system has granted AMX.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(in super::super) unsafe fn panels(job: &Job, panels: Range<usize>, scratch: &mut Scratch) {
    if job.rows.count() < MANY_ROWS {
        return avx512::panels(job, panels, scratch);
    }
    let cut = Cut::of(job.rows.count());
    let rows = cut.height as u8;
    // SAFETY: as the caller promises.
    let configured = unsafe {
        Configured::new(&[
            (0, rows, 64),
            (1, rows, 64),
            (2, rows, 64),
            (3, rows, 64),
            (4, rows, 64),
            (5, rows, 64),
            (6, 16, 64),
            (7, 16, 64),
        ])
    };
    let room = &mut scratch.superblock;
    room.planes.resize(1, bytemuck::Zeroable::zeroed());
    room.sums.resize(2, bytemuck::Zeroable::zeroed());
    room.y.resize(cut.tiles, bytemuck::Zeroable::zeroed());
    for index in panels.clone().step_by(PANELS) {
        let some = index..(index + PANELS).min(panels.end);
        match job.panels.format.codes {
            Codes::Four => some_panels::<Four, true>(job, some, &cut, &configured, room),
            Codes::Five => some_panels::<Five, true>(job, some, &cut, &configured, room),
            _ => some_panels::<Six, false>(job, some, &cut, &configured, room),
        }
    }
}

/// One or two panels; the second of one is whatever was there, and nobody reads what becomes of it.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn some_panels<L: Load, const AFFINE: bool>(
    job: &Job,
    panels: Range<usize>,
    cut: &Cut,
    tiles: &Configured,
    room: &mut Room,
) {
    let (groups, entry_bytes) = (job.panels.groups(), job.panels.format.header.bytes());
    let weights: [_; PANELS] = std::array::from_fn(|n| job.panels.panel((panels.start + n).min(panels.end - 1)));
    let Room { planes, sums, y } = room;
    let planes = &mut planes[0];
    y.fill(bytemuck::Zeroable::zeroed());
    // While the tile unit multiplies a tile of rows, the sums of the one before, if need be of the block before, are added
    // up, and the next block's planes are made.
    let (mut turn, mut pending) = (0, None::<Turn>);
    let mut factors = [[Factors::zero(); PANELS]; 2];
    for b in 0..groups / GROUPS {
        for n in 0..panels.len() {
            let entry = &weights[n].0[b * entry_bytes..][..entry_bytes];
            let codes = &weights[n].1[b * GROUPS * L::BYTES..][..GROUPS * L::BYTES];
            let planes = &mut planes.0[n];
            if AFFINE {
                affine_planes::<L>(entry, codes, planes)
            } else {
                half_planes::<L>(entry, codes, planes)
            }
            factors[b % 2][n] = Factors::new::<AFFINE>(entry);
        }
        for tile in 0..cut.tiles {
            let now = Turn { job, cut, b, tile };
            multiply::<AFFINE>(tiles, now, planes, &mut sums[turn % 2]);
            if b + 1 == groups / GROUPS {
                fetch_outputs(job, cut, tile, panels.clone());
            }
            if let Some(before) = pending.replace(now) {
                add_up_panels::<AFFINE>(before, &factors[before.b % 2][..panels.len()], &sums[(turn + 1) % 2], y);
            }
            turn += 1;
        }
    }
    if let Some(last) = pending {
        add_up_panels::<AFFINE>(last, &factors[last.b % 2][..panels.len()], &sums[(turn + 1) % 2], y);
    }
    write(job, cut, panels, y);
}

#[inline]
#[target_feature(enable = "avx512f")]
fn write(job: &Job, cut: &Cut, panels: Range<usize>, y: &[Output]) {
    for (tile, y) in y.iter().enumerate() {
        for r in 0..cut.height {
            for (index, y) in panels.clone().zip(&y.0) {
                let (place, count) = job.out.place(cut.start(tile) + r, index * PANEL);
                let mask = 0xffff >> (PANEL - count.min(PANEL));
                // SAFETY: a row of 16 numbers; `place` has room for `count`, and the mask keeps the others.
                unsafe { _mm512_mask_storeu_ps(place, mask, _mm512_load_ps(y.as_ptr().add(r * PANEL))) }
            }
        }
    }
}

/// Lines that will be stored to.
#[inline]
#[target_feature(enable = "avx512f")]
fn fetch_outputs(job: &Job, cut: &Cut, tile: usize, panels: Range<usize>) {
    for r in 0..cut.height {
        for index in panels.clone() {
            _mm_prefetch::<_MM_HINT_ET0>(job.out.place(cut.start(tile) + r, index * PANEL).0.cast());
        }
    }
}

/// Sums of block `b` for a tile of rows.
#[inline]
#[target_feature(enable = "avx512f")]
fn multiply<const AFFINE: bool>(tiles: &Configured, turn: Turn, planes: &Planes, sums: &mut Sums) {
    let Turn { job, cut, b, tile } = turn;
    let inputs = job.rows.inputs();
    let x = job.rows.codes[cut.start(tile) * inputs + b * BLOCK..].as_ptr();
    // SAFETY: the tiles are configured for `height` rows of 64 bytes, which lie `inputs` bytes apart in the rows' codes and
    // are all there: `start + height` is at most the number of rows. Planes and sums have the sizes that the tiles take.
    unsafe {
        if AFFINE {
            affine_products(tiles, x, inputs, planes, sums)
        } else {
            half_products(tiles, x, inputs, planes, sums)
        }
    }
    // Tile loads stall on what is not in the first cache: the next tile's lines are asked for meanwhile.
    for r in 0..cut.height {
        for line in 0..BLOCK / 64 {
            _mm_prefetch::<_MM_HINT_T0>(x.wrapping_add((cut.height + r) * inputs + 64 * line));
        }
    }
}

/// Four steps of 64 inputs.
macro_rules! products {
    ($name:ident, $product:literal) => {
        /// # Safety
        /// See [`multiply`].
        #[inline]
        unsafe fn $name(_: &Configured, x: *const i8, stride: usize, planes: &Planes, sums: &mut Sums) {
            // SAFETY: as the caller promises.
            unsafe {
                asm!(
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    "tileloadd tmm4, [{x} + {stride}]",
                    "tileloadd tmm6, [{w} + {line}]",
                    concat!($product, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{w} + {line} + 4096]",
                    concat!($product, " tmm1, tmm4, tmm7"),
                    "tileloadd tmm6, [{w} + {line} + 8192]",
                    concat!($product, " tmm2, tmm4, tmm6"),
                    "tileloadd tmm7, [{w} + {line} + 12288]",
                    concat!($product, " tmm3, tmm4, tmm7"),
                    "tileloadd tmm5, [{x} + {stride} + 64]",
                    "tileloadd tmm6, [{w} + {line} + 1024]",
                    concat!($product, " tmm0, tmm5, tmm6"),
                    "tileloadd tmm7, [{w} + {line} + 5120]",
                    concat!($product, " tmm1, tmm5, tmm7"),
                    "tileloadd tmm6, [{w} + {line} + 9216]",
                    concat!($product, " tmm2, tmm5, tmm6"),
                    "tileloadd tmm7, [{w} + {line} + 13312]",
                    concat!($product, " tmm3, tmm5, tmm7"),
                    "tileloadd tmm4, [{x} + {stride} + 128]",
                    "tileloadd tmm6, [{w} + {line} + 2048]",
                    concat!($product, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{w} + {line} + 6144]",
                    concat!($product, " tmm1, tmm4, tmm7"),
                    "tileloadd tmm6, [{w} + {line} + 10240]",
                    concat!($product, " tmm2, tmm4, tmm6"),
                    "tileloadd tmm7, [{w} + {line} + 14336]",
                    concat!($product, " tmm3, tmm4, tmm7"),
                    "tileloadd tmm5, [{x} + {stride} + 192]",
                    "tileloadd tmm6, [{w} + {line} + 3072]",
                    concat!($product, " tmm0, tmm5, tmm6"),
                    "tileloadd tmm7, [{w} + {line} + 7168]",
                    concat!($product, " tmm1, tmm5, tmm7"),
                    "tileloadd tmm6, [{w} + {line} + 11264]",
                    concat!($product, " tmm2, tmm5, tmm6"),
                    "tileloadd tmm7, [{w} + {line} + 15360]",
                    concat!($product, " tmm3, tmm5, tmm7"),
                    "tilestored [{sums} + {line}], tmm0",
                    "tilestored [{sums} + {line} + 1024], tmm1",
                    "tilestored [{sums} + {line} + 2048], tmm2",
                    "tilestored [{sums} + {line} + 3072], tmm3",
                    x = in(reg) x, w = in(reg) planes, sums = in(reg) sums,
                    stride = in(reg) stride, line = in(reg) STEP, options(nostack, preserves_flags),
                );
            }
        }
    };
}

products!(affine_products, "tdpbsud");
products!(half_products, "tdpbssd");

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
    #[target_feature(enable = "avx512f")]
    fn zero() -> Factors {
        let zero = _mm512_setzero_ps();
        Factors { d: zero, dmin: zero, mins: [_mm512_setzero_si512(); GROUPS / 2] }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn new<const AFFINE: bool>(entry: &[u8]) -> Factors {
        assert!(entry.len() >= (if AFFINE { 4 + 2 * GROUPS } else { 2 + 2 * GROUPS }) * PANEL, "an entry");
        // SAFETY: within the entry.
        unsafe {
            let mut factors = Factors { d: half(entry.as_ptr()), ..Factors::zero() };
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

/// Adds the sums of a tile of rows to their outputs, of as many panels as there are factors.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_up_panels<const AFFINE: bool>(turn: Turn, factors: &[Factors], sums: &Sums, y: &mut [Output]) {
    for ((factors, sums), y) in factors.iter().zip(&sums.0).zip(&mut y[turn.tile].0) {
        add_up::<AFFINE>(turn, factors, sums, y);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_up<const AFFINE: bool>(turn: Turn, factors: &Factors, [high, low]: &[[i32; TILE]; 2], y: &mut [f32; TILE]) {
    let Turn { job, cut, b, tile } = turn;
    let rows = cut.start(tile)..cut.start(tile) + cut.height;
    let groups = job.rows.groups();
    let (blocks, pairs) = (groups / GROUPS, pairs_per_block(AFFINE));
    let scales = &job.rows.scales[rows.start * groups..rows.end * groups];
    let terms = &job.terms[rows.start * blocks * pairs..rows.end * blocks * pairs];
    assert!(rows.len() <= ROWS && b < blocks, "a tile's rows");
    // SAFETY: `r` is below the number of rows, at most 16, and `b` below `blocks`: all within the slices above and the tiles.
    unsafe {
        for r in 0..rows.len() {
            let at = |tile: &[i32; TILE]| _mm512_load_si512(tile.as_ptr().add(r * PANEL).cast());
            let shifted = if AFFINE { _mm512_slli_epi32::<3>(at(high)) } else { _mm512_slli_epi32::<7>(at(high)) };
            let products = _mm512_cvtepi32_ps(_mm512_add_epi32(shifted, at(low)));
            let mut part = _mm512_mul_ps(products, factors.d);
            if AFFINE {
                let terms = terms.as_ptr().add((r * blocks + b) * pairs);
                let mut sums = _mm512_setzero_si512();
                for (p, mins) in factors.mins.iter().enumerate() {
                    sums = _mm512_dpwssd_epi32(sums, *mins, _mm512_set1_epi32(*terms.add(p)));
                }
                part = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(sums), factors.dmin, part);
            }
            let scale = _mm512_set1_ps(*scales.as_ptr().add(r * groups + b * GROUPS));
            let place = y.as_mut_ptr().add(r * PANEL);
            _mm512_store_ps(place, _mm512_fmadd_ps(part, scale, _mm512_load_ps(place)));
        }
    }
}

/// Products of unsigned codes and scales of six bits.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn affine_planes<L: Load>(entry: &[u8], codes: &[u8], planes: &mut [[u8; PLANE]; 2]) {
    assert!(codes.len() == GROUPS * L::BYTES && entry.len() >= (4 + 2 * GROUPS) * PANEL, "a block");
    let [high, low] = planes;
    for g in 0..GROUPS {
        // SAFETY: `g` is below 8, `j` below 4: within the block, its entry, and the planes of 8 times 512 bytes.
        unsafe {
            let codes = codes.as_ptr().add(g * L::BYTES);
            for line in 0..L::BYTES / 64 {
                _mm_prefetch::<_MM_HINT_T0>(codes.wrapping_add(AHEAD + 64 * line).cast());
            }
            let scale = wide::<true>(entry.as_ptr().add((4 + 2 * g) * PANEL));
            let scale = _mm512_or_si512(scale, _mm512_slli_epi32::<16>(scale));
            let (coarse, fine) = (_mm512_srli_epi16::<3>(scale), _mm512_and_si512(scale, _mm512_set1_epi16(7)));
            for j in 0..4 {
                let (first, second) = L::quads(codes, j);
                for (codes, quad) in [(first, j), (second, 4 + j)] {
                    let at = (g * 8 + quad) * 64;
                    // Two codes at once: the lower one's product stays below 256 and does not reach the upper one.
                    _mm512_store_si512(high.as_mut_ptr().add(at).cast(), _mm512_mullo_epi16(codes, coarse));
                    _mm512_store_si512(low.as_mut_ptr().add(at).cast(), _mm512_mullo_epi16(codes, fine));
                }
            }
        }
    }
}

/// Products of signed codes and signed scales, in sixteen bits and then cut.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn half_planes<L: Load>(entry: &[u8], codes: &[u8], planes: &mut [[u8; PLANE]; 2]) {
    assert!(codes.len() == GROUPS * L::BYTES && entry.len() >= (2 + 2 * GROUPS) * PANEL, "a block");
    let [high, low] = planes;
    let offset = _mm512_set1_epi8(OFFSET as i8);
    for g in 0..GROUPS {
        // SAFETY: as in `affine_planes`.
        unsafe {
            let codes = codes.as_ptr().add(g * L::BYTES);
            for line in 0..L::BYTES / 64 {
                _mm_prefetch::<_MM_HINT_T0>(codes.wrapping_add(AHEAD + 64 * line).cast());
            }
            let scale = |h: usize| {
                let scale = wide::<false>(entry.as_ptr().add((2 + 2 * g + h) * PANEL));
                _mm512_mask_blend_epi16(0xaaaa_aaaa, scale, _mm512_slli_epi32::<16>(scale))
            };
            let scales = (scale(0), scale(1));
            for j in 0..4 {
                let (first, second) = L::quads(codes, j);
                for (codes, scale, quad) in [(first, scales.0, j), (second, scales.1, 4 + j)] {
                    let codes = _mm512_sub_epi8(codes, offset);
                    let even = _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(codes));
                    let even = _mm512_mullo_epi16(even, scale);
                    let odd = _mm512_mullo_epi16(_mm512_srai_epi16::<8>(codes), scale);
                    let odd_bytes = 0xaaaa_aaaa_aaaa_aaaa;
                    let fine = _mm512_mask_blend_epi8(odd_bytes, even, _mm512_slli_epi16::<8>(odd));
                    let coarse = _mm512_srai_epi16::<7>(even);
                    let coarse = _mm512_mask_blend_epi8(odd_bytes, coarse, _mm512_slli_epi16::<1>(odd));
                    let at = (g * 8 + quad) * 64;
                    _mm512_store_si512(high.as_mut_ptr().add(at).cast(), coarse);
                    let fine = _mm512_and_si512(fine, _mm512_set1_epi8(127));
                    _mm512_store_si512(low.as_mut_ptr().add(at).cast(), fine);
                }
            }
        }
    }
}
