//! AMX: up to 2 × 16 rows times 16 outputs times a whole block of 256 inputs.
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
/// Below this AVX-512 is as fast.
const MANY_ROWS: usize = 6;
/// Inputs of a tile.
const STEP: usize = 64;
/// Inputs of a block.
const BLOCK: usize = GROUPS * GROUP;
/// Bytes of a block's plane.
const PLANE: usize = PANEL * BLOCK;

/// One thread's room.
#[derive(Default)]
pub(in super::super) struct Room {
    planes: Vec<Planes>,
    sums: Vec<Sums>,
    /// Of each tile of rows, `[16, 16]`.
    y: Vec<Output>,
}

/// High and low, each `[4, 16, 64]`: what the tile unit takes for weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Planes([[u8; PLANE]; 2]);

/// Of two tiles of rows: high, low, high, low.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Sums([[i32; TILE]; 4]);

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Output([f32; TILE]);

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
    room.planes.resize(2, bytemuck::Zeroable::zeroed());
    room.sums.resize(2, bytemuck::Zeroable::zeroed());
    room.y.resize(cut.tiles, bytemuck::Zeroable::zeroed());
    for index in panels {
        match job.panels.format.codes {
            Codes::Four => panel::<Four, true>(job, index, &cut, &configured, room),
            Codes::Five => panel::<Five, true>(job, index, &cut, &configured, room),
            _ => panel::<Six, false>(job, index, &cut, &configured, room),
        }
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn panel<L: Load, const AFFINE: bool>(job: &Job, index: usize, cut: &Cut, tiles: &Configured, room: &mut Room) {
    let (header, codes) = job.panels.panel(index);
    let entries = header.chunks_exact(job.panels.format.header.bytes());
    let Room { planes, sums, y } = room;
    y.fill(bytemuck::Zeroable::zeroed());
    // Lines to be stored to are fetched meanwhile.
    for tile in 0..cut.tiles {
        for r in 0..cut.height {
            _mm_prefetch::<_MM_HINT_ET0>(job.out.place(cut.start(tile) + r, index * PANEL).0.cast());
        }
    }
    // While the tile unit multiplies a pair of tiles, the sums of the pair before, if need be of the block before, are added
    // up, and the next block's planes are made.
    let (mut turn, mut pending) = (0, None::<Pending>);
    for (b, (entry, codes)) in entries.zip(codes.chunks_exact(GROUPS * L::BYTES)).enumerate() {
        let planes = &mut planes[b % 2];
        if AFFINE {
            affine_planes::<L>(entry, codes, planes)
        } else {
            half_planes::<L>(entry, codes, planes)
        }
        let factors = Factors::new::<AFFINE>(entry);
        for tile in (0..cut.tiles).step_by(2) {
            let second = (tile + 1 < cut.tiles).then(|| cut.start(tile + 1));
            multiply::<AFFINE>(tiles, job, b, cut.start(tile), second, planes, &mut sums[turn % 2]);
            if let Some(before) = pending.replace(Pending { b, tile, factors }) {
                before.add_up::<AFFINE>(job, cut, &sums[(turn + 1) % 2], y);
            }
            turn += 1;
        }
    }
    if let Some(last) = pending {
        last.add_up::<AFFINE>(job, cut, &sums[(turn + 1) % 2], y);
    }
    for (tile, y) in y.iter().enumerate() {
        for (r, y) in y.0.as_chunks::<PANEL>().0.iter().take(cut.height).enumerate() {
            let (place, count) = job.out.place(cut.start(tile) + r, index * PANEL);
            // SAFETY: `place` has room for `count` numbers, and the mask keeps the others.
            unsafe { _mm512_mask_storeu_ps(place, 0xffff >> (PANEL - count.min(PANEL)), _mm512_load_ps(y.as_ptr())) }
        }
    }
}

/// Sums of block `b` for the rows from `first` on, and from `second` on.
#[inline]
fn multiply<const AFFINE: bool>(
    tiles: &Configured,
    job: &Job,
    b: usize,
    first: usize,
    second: Option<usize>,
    planes: &Planes,
    sums: &mut Sums,
) {
    let inputs = job.rows.inputs();
    let x = |start: usize| job.rows.codes[start * inputs + b * BLOCK..].as_ptr();
    // SAFETY: the tiles are configured for `height` rows of 64 bytes, which lie `inputs` bytes apart in the rows' codes and
    // are all there: `start + height` is at most the number of rows. Planes and sums have the sizes that the tiles take.
    unsafe {
        match (second, AFFINE) {
            (None, true) => one_affine(tiles, x(first), inputs, planes, sums),
            (None, false) => one_halves(tiles, x(first), inputs, planes, sums),
            (Some(second), true) => two_affine(tiles, x(first), x(second), inputs, planes, sums),
            (Some(second), false) => two_halves(tiles, x(first), x(second), inputs, planes, sums),
        }
    }
}

/// Four steps of 64 inputs, one tile of rows (`$one`) or two (`$two`).
macro_rules! products {
    ($one:ident, $two:ident, $product:literal) => {
        /// # Safety
        /// See [`multiply`].
        #[inline]
        unsafe fn $one(_: &Configured, x: *const i8, stride: usize, planes: &Planes, sums: &mut Sums) {
            // SAFETY: as the caller promises.
            unsafe {
                asm!(
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tileloadd tmm4, [{x} + {stride}]",
                    "tileloadd tmm6, [{w} + {line}]",
                    concat!($product, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{w} + {line} + 4096]",
                    concat!($product, " tmm1, tmm4, tmm7"),
                    "tileloadd tmm5, [{x} + {stride} + 64]",
                    "tileloadd tmm6, [{w} + {line} + 1024]",
                    concat!($product, " tmm0, tmm5, tmm6"),
                    "tileloadd tmm7, [{w} + {line} + 5120]",
                    concat!($product, " tmm1, tmm5, tmm7"),
                    "tileloadd tmm4, [{x} + {stride} + 128]",
                    "tileloadd tmm6, [{w} + {line} + 2048]",
                    concat!($product, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{w} + {line} + 6144]",
                    concat!($product, " tmm1, tmm4, tmm7"),
                    "tileloadd tmm5, [{x} + {stride} + 192]",
                    "tileloadd tmm6, [{w} + {line} + 3072]",
                    concat!($product, " tmm0, tmm5, tmm6"),
                    "tileloadd tmm7, [{w} + {line} + 7168]",
                    concat!($product, " tmm1, tmm5, tmm7"),
                    "tilestored [{sums} + {line}], tmm0",
                    "tilestored [{sums} + {line} + 1024], tmm1",
                    x = in(reg) x, w = in(reg) planes, sums = in(reg) sums,
                    stride = in(reg) stride, line = in(reg) STEP, options(nostack, preserves_flags),
                );
            }
        }

        /// # Safety
        /// See [`multiply`].
        #[inline]
        unsafe fn $two(
            _: &Configured,
            x: *const i8,
            second: *const i8,
            stride: usize,
            planes: &Planes,
            sums: &mut Sums,
        ) {
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
                    "tileloadd tmm5, [{second} + {stride}]",
                    concat!($product, " tmm2, tmm5, tmm6"),
                    concat!($product, " tmm3, tmm5, tmm7"),
                    "tileloadd tmm4, [{x} + {stride} + 64]",
                    "tileloadd tmm6, [{w} + {line} + 1024]",
                    concat!($product, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{w} + {line} + 5120]",
                    concat!($product, " tmm1, tmm4, tmm7"),
                    "tileloadd tmm5, [{second} + {stride} + 64]",
                    concat!($product, " tmm2, tmm5, tmm6"),
                    concat!($product, " tmm3, tmm5, tmm7"),
                    "tileloadd tmm4, [{x} + {stride} + 128]",
                    "tileloadd tmm6, [{w} + {line} + 2048]",
                    concat!($product, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{w} + {line} + 6144]",
                    concat!($product, " tmm1, tmm4, tmm7"),
                    "tileloadd tmm5, [{second} + {stride} + 128]",
                    concat!($product, " tmm2, tmm5, tmm6"),
                    concat!($product, " tmm3, tmm5, tmm7"),
                    "tileloadd tmm4, [{x} + {stride} + 192]",
                    "tileloadd tmm6, [{w} + {line} + 3072]",
                    concat!($product, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{w} + {line} + 7168]",
                    concat!($product, " tmm1, tmm4, tmm7"),
                    "tileloadd tmm5, [{second} + {stride} + 192]",
                    concat!($product, " tmm2, tmm5, tmm6"),
                    concat!($product, " tmm3, tmm5, tmm7"),
                    "tilestored [{sums} + {line}], tmm0",
                    "tilestored [{sums} + {line} + 1024], tmm1",
                    "tilestored [{sums} + {line} + 2048], tmm2",
                    "tilestored [{sums} + {line} + 3072], tmm3",
                    x = in(reg) x, second = in(reg) second, w = in(reg) planes, sums = in(reg) sums,
                    stride = in(reg) stride, line = in(reg) STEP, options(nostack, preserves_flags),
                );
            }
        }
    };
}

products!(one_affine, two_affine, "tdpbsud");
products!(one_halves, two_halves, "tdpbssd");

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
            let mut factors = Factors {
                d: half(entry.as_ptr()),
                dmin: _mm512_setzero_ps(),
                mins: [_mm512_setzero_si512(); GROUPS / 2],
            };
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

/// A pair of tiles whose sums are on their way.
struct Pending {
    b: usize,
    tile: usize,
    factors: Factors,
}

impl Pending {
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
    fn add_up<const AFFINE: bool>(&self, job: &Job, cut: &Cut, sums: &Sums, y: &mut [Output]) {
        for (n, y) in y[self.tile..].iter_mut().take(2).enumerate() {
            let start = cut.start(self.tile + n);
            let rows = start..start + cut.height;
            add_up::<AFFINE>(job, self.b, rows, &self.factors, &sums.0[2 * n], &sums.0[2 * n + 1], y);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_up<const AFFINE: bool>(
    job: &Job,
    b: usize,
    rows: Range<usize>,
    factors: &Factors,
    high: &[i32; TILE],
    low: &[i32; TILE],
    y: &mut Output,
) {
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
            let place = y.0.as_mut_ptr().add(r * PANEL);
            _mm512_store_ps(place, _mm512_fmadd_ps(part, scale, _mm512_load_ps(place)));
        }
    }
}

/// Products of unsigned codes and scales of six bits.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn affine_planes<L: Load>(entry: &[u8], codes: &[u8], planes: &mut Planes) {
    assert!(codes.len() == GROUPS * L::BYTES && entry.len() >= (4 + 2 * GROUPS) * PANEL, "a block");
    let [high, low] = &mut planes.0;
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
fn half_planes<L: Load>(entry: &[u8], codes: &[u8], planes: &mut Planes) {
    assert!(codes.len() == GROUPS * L::BYTES && entry.len() >= (2 + 2 * GROUPS) * PANEL, "a block");
    let [high, low] = &mut planes.0;
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
