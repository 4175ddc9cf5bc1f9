//! Activations as small integers: 32 inputs share a scale.

#![allow(unsafe_code)] // parts of the rows, dealt to several threads

use std::ops::Range;

use super::super::isa::Isa;
use super::super::parallel::{Shared, for_each_range};
use super::dispatch;
use super::format::GROUP;

/// `[T, inputs]`, rounded to the nearest of 255 steps between minus and plus the largest magnitude of each group. Its
/// memory is kept from one rounding to the next.
#[derive(Default)]
pub struct Rows {
    inputs: usize,
    span: Span,
    /// `[T, inputs]`, from -127 to 127.
    pub(super) codes: Vec<i8>,
    /// `[T, groups]`; NaN where a group holds a number that is not finite, so that all outputs of the row become NaN.
    pub(super) scales: Vec<f32>,
    /// `[T, groups]`: sums of codes, of the first and the second 16 inputs.
    pub(super) sums: Vec<[i32; 2]>,
    /// The same for AMX, which takes rows by 16; empty elsewhere and for few rows.
    #[cfg(target_arch = "x86_64")]
    pub(super) tiles: super::amx::Tiles,
    /// Beside weights in blocks of 256.
    #[cfg(target_arch = "x86_64")]
    pub(super) pairs: super::superblock::amx::Pairs,
    /// The same for AVX-512.
    #[cfg(target_arch = "x86_64")]
    pub(super) lines: super::superblock::avx512::Lines,
}

/// How many inputs are rounded in the same steps. As ggml has it, so that the same file gives the same roundings and, but
/// for the order of additions, the same logits: a user who comes from llama.cpp meets the same answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Span {
    /// 32, the step rounded to F16: beside weights in blocks of 32 (`Q8_0` and `Q8_1` there).
    #[default]
    Group,
    /// 256: beside weights in blocks of 256 (`Q8_K` there).
    Block,
}

/// Inputs of a [`Span::Block`].
const BLOCK: usize = 256;

/// Below this a group counts as zero: the reciprocal of its scale would overflow.
const SMALLEST: f32 = 1e-30;

impl Rows {
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    pub fn span(&self) -> Span {
        self.span
    }

    pub fn count(&self) -> usize {
        self.codes.len().checked_div(self.inputs).unwrap_or(0)
    }

    /// Becomes the rows of `x`, `[T, inputs]`. What a row becomes depends on that row alone.
    ///
    /// # Panics
    /// When `inputs` is not a positive multiple of 32 (of 256 for [`Span::Block`]), or `x` not of whole rows.
    pub fn round(&mut self, x: &[f32], inputs: usize, span: Span) {
        self.round_on(Isa::current(), x, inputs, span);
    }

    pub(super) fn round_on(&mut self, isa: Isa, x: &[f32], inputs: usize, span: Span) {
        let unit = if span == Span::Block { BLOCK } else { GROUP };
        assert!(inputs > 0 && inputs.is_multiple_of(unit) && x.len().is_multiple_of(inputs), "ragged rows");
        let (count, groups) = (x.len() / inputs, inputs / GROUP);
        (self.inputs, self.span) = (inputs, span);
        self.codes.resize(x.len(), 0);
        self.scales.resize(count * groups, 0.0);
        self.sums.resize(count * groups, [0; 2]);
        let (codes, scales, sums) =
            (Shared::new(&mut self.codes), Shared::new(&mut self.scales), Shared::new(&mut self.sums));
        for_each_range(count, 1, x.len() * 16, |rows: Range<usize>| {
            let groups = rows.start * groups..rows.end * groups;
            // SAFETY: ranges of rows do not overlap.
            let part = unsafe {
                Part {
                    codes: codes.part(groups.start * GROUP..groups.end * GROUP),
                    scales: scales.part(groups.clone()),
                    sums: sums.part(groups),
                }
            };
            dispatch::quantise(isa, &x[rows.start * inputs..rows.end * inputs], part, span);
        });
        #[cfg(target_arch = "x86_64")]
        {
            let mut tiles = std::mem::take(&mut self.tiles);
            tiles.fill(isa, self);
            self.tiles = tiles;
            let mut pairs = std::mem::take(&mut self.pairs);
            pairs.fill(isa, self);
            self.pairs = pairs;
            let mut lines = std::mem::take(&mut self.lines);
            lines.fill(isa, self, !self.pairs.is_empty());
            self.lines = lines;
        }
    }

    /// What rounding left of `x`, of which these are the rows. Not finite where `x` was not.
    ///
    /// # Panics
    /// When `left` is not as long as `x`.
    pub fn remainder(&self, x: &[f32], left: &mut [f32]) {
        assert!(x.len() == self.codes.len() && left.len() == x.len(), "what was rounded, and room for what is left");
        let groups = x.as_chunks::<GROUP>().0.iter().zip(self.codes.as_chunks::<GROUP>().0).zip(&self.scales);
        for (((x, codes), scale), left) in groups.zip(left.as_chunks_mut::<GROUP>().0) {
            *left = std::array::from_fn(|k| f32::from(codes[k]).mul_add(-scale, x[k]));
        }
    }

    /// Whether products on `isa` read a layout of their own.
    pub(super) fn are_laid_out(&self, isa: Isa) -> bool {
        #[cfg(target_arch = "x86_64")]
        let kept = !(self.tiles.is_empty() && self.pairs.is_empty() && self.lines.is_empty());
        #[cfg(not(target_arch = "x86_64"))]
        let kept = false;
        kept && matches!(isa, Isa::Avx512 | Isa::Amx)
    }

    pub(super) fn groups(&self) -> usize {
        self.inputs / GROUP
    }
}

/// [`Rows::round`] into rows of their own.
///
/// # Panics
/// As [`Rows::round`].
pub fn quantise_rows(x: &[f32], inputs: usize, span: Span) -> Rows {
    let mut rows = Rows::default();
    rows.round(x, inputs, span);
    rows
}

/// Some rows' part of [`Rows`].
pub(super) struct Part<'a> {
    codes: &'a mut [i8],
    scales: &'a mut [f32],
    sums: &'a mut [[i32; 2]],
}

/// Inlined into functions compiled for wider registers.
#[inline(always)]
pub(super) fn quantise(x: &[f32], rows: Part, span: Span) {
    let groups = x.as_chunks::<GROUP>().0;
    let codes = rows.codes.as_chunks_mut::<GROUP>().0;
    match span {
        Span::Group => {
            for (((x, codes), scale), sums) in groups.iter().zip(codes).zip(rows.scales).zip(rows.sums) {
                let steps = Steps::of(largest(x), Span::Group);
                *scale = to_f16(steps.scale);
                *sums = round(x, codes, steps);
            }
        }
        Span::Block => {
            let blocks = groups.as_chunks::<{ BLOCK / GROUP }>().0.iter();
            let codes = codes.as_chunks_mut::<{ BLOCK / GROUP }>().0;
            let scales = rows.scales.as_chunks_mut::<{ BLOCK / GROUP }>().0;
            let sums = rows.sums.as_chunks_mut::<{ BLOCK / GROUP }>().0;
            for (((x, codes), scales), sums) in blocks.zip(codes).zip(scales).zip(sums) {
                let steps = Steps::of(largest(x.as_flattened()), Span::Block);
                *scales = [steps.scale; BLOCK / GROUP];
                for ((x, codes), sums) in x.iter().zip(codes).zip(sums) {
                    *sums = round(x, codes, steps);
                }
            }
        }
    }
}

/// The bits of the largest magnitude. Bit patterns of magnitudes are ordered as the magnitudes, with infinity and then NaN
/// above all: one maximum finds the scale and what is not finite. `f32::max` would skip NaN.
#[inline(always)]
fn largest(x: &[f32]) -> u32 {
    // A loop: a fold that is not inlined would be compiled for the least of processors.
    let mut largest = 0;
    for x in x {
        largest = largest.max(x.to_bits() & 0x7fff_ffff);
    }
    largest
}

/// The width of a step, and its reciprocal.
#[derive(Clone, Copy)]
struct Steps {
    scale: f32,
    inverse: f32,
}

impl Steps {
    #[inline(always)]
    fn of(largest: u32, span: Span) -> Steps {
        let largest = f32::from_bits(largest);
        if !largest.is_finite() {
            return Steps { scale: f32::NAN, inverse: 0.0 };
        }
        if largest < SMALLEST {
            return Steps { scale: 0.0, inverse: 0.0 };
        }
        // Which of the two is rounded first is ggml's choice, and decides ties.
        match span {
            Span::Group => Steps { scale: largest / 127.0, inverse: 1.0 / (largest / 127.0) },
            Span::Block => Steps { scale: 1.0 / (127.0 / largest), inverse: 127.0 / largest },
        }
    }
}

/// The nearest number with the eleven bits of an F16, ties to even, without F16's bounds.
#[inline(always)]
fn to_f16(x: f32) -> f32 {
    const LOST: u32 = 13;
    if x.is_nan() {
        return x;
    }
    let bits = x.to_bits();
    let even = (bits >> LOST) & 1;
    f32::from_bits((bits + (1 << (LOST - 1)) - 1 + even) & !((1 << LOST) - 1))
}

#[inline(always)]
fn round(x: &[f32; GROUP], codes: &mut [i8; GROUP], steps: Steps) -> [i32; 2] {
    if steps.inverse == 0.0 {
        *codes = [0; GROUP];
        return [0; 2];
    }
    // Adding 1.5 · 2²³ leaves the nearest integer, ties to even, in the low bits; no conversion can saturate.
    const MAGIC: f32 = 12_582_912.0;
    let mut rounded = [0i32; GROUP];
    for (rounded, x) in rounded.iter_mut().zip(x) {
        *rounded = (x * steps.inverse + MAGIC).to_bits() as i32 - MAGIC.to_bits() as i32;
    }
    for (code, rounded) in codes.iter_mut().zip(rounded) {
        *code = rounded as i8;
    }
    let (first, second) = rounded.split_at(GROUP / 2);
    [first.iter().sum(), second.iter().sum()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_even_and_ties_go_to_even() {
        let mut x = [0.0f32; 32];
        x[..6].copy_from_slice(&[127.0, -127.0, 0.5, 1.5, -2.5, 3.49]);
        let rows = quantise_rows(&x, 32, Span::Group);
        assert_eq!(rows.codes[..6], [127, -127, 0, 2, -2, 3]);
        assert_eq!((rows.scales[0], rows.sums[0]), (1.0, [3, 0]));
    }

    #[test]
    fn scales_have_the_bits_of_an_f16() {
        for (x, expected) in
            [(1.0f32, 1.0f32), (1.0 / 127.0, 0.007_873_535), (1.000_488_3, 1.0), (1.000_488_5, 1.000_976_6)]
        {
            assert_eq!(to_f16(x), expected, "{x}");
        }
        assert!(to_f16(f32::NAN).is_nan());
        for n in 1..2_000u32 {
            let x = n as f32 * 0.37;
            assert_eq!(to_f16(x), half::f16::from_f32(x).to_f32(), "{x}");
        }
    }

    #[test]
    fn blocks_share_the_scale_of_their_largest() {
        let mut x = vec![0.5f32; 512];
        (x[100], x[300]) = (-254.0, 12.7);
        let rows = quantise_rows(&x, 512, Span::Block);
        assert_eq!(rows.scales[..8], [2.0; 8]);
        assert!(rows.scales[8..].iter().all(|scale| (scale - 0.1).abs() < 1e-6));
        assert_eq!((rows.codes[100], rows.codes[0], rows.codes[300], rows.codes[256]), (-127, 0, 127, 5));
        let mut left = vec![0.0; 512];
        rows.remainder(&x, &mut left);
        assert_eq!(left[0], 0.5);
    }

    #[test]
    fn every_magnitude_is_kept_within_half_a_step() {
        for magnitude in [1e-38f32, 1e-31, 1e-29, 1e-3, 1.0, 1e10, f32::MAX] {
            let x: Vec<f32> = (0..64).map(|i| magnitude * ((i * 37 % 64) as f32 / 31.5 - 1.0)).collect();
            let rows = quantise_rows(&x, 64, Span::Group);
            for (k, &x) in x.iter().enumerate() {
                let (scale, code) = (f64::from(rows.scales[k / 32]), f64::from(rows.codes[k]));
                // Half a step, and what the step's own rounding makes of the largest code.
                let allowed = (f64::from(magnitude) / 127.0 * (0.501 + 127.0 / 2048.0)).max(1e-30);
                assert!((code * scale - f64::from(x)).abs() <= allowed, "{magnitude:e}: {x:e} as {code} · {scale:e}");
            }
        }
    }

    #[test]
    fn what_is_not_finite_marks_its_group_alone() {
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN] {
            let mut x = vec![1.0; 128];
            x[70] = odd;
            let rows = quantise_rows(&x, 64, Span::Group);
            assert!(rows.scales[2].is_nan());
            assert!([0, 1, 3].iter().all(|&g| rows.scales[g] == to_f16(1.0 / 127.0) && rows.sums[g] == [16 * 127; 2]));
        }
    }
}
