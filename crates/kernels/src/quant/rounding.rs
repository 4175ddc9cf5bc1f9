//! Rounding rows of activations to small integers, on several instruction sets.
#![allow(unsafe_code)] // calls into code compiled for instructions that `Isa` has found

use super::format::GROUP;
use crate::isa::Isa;
use crate::quant::superblock::BLOCK;

/// How many inputs are rounded in the same steps. As ggml has it, so that the same file gives the same roundings and, but
/// for the order of additions, the same logits: a user who comes from llama.cpp meets the same answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoundingGroup {
    /// 32, the step rounded to F16: beside weights in blocks of 32 (`Q8_0` and `Q8_1` there).
    #[default]
    Of32,
    /// 256: beside weights in blocks of 256 (`Q8_K` there).
    Of256,
}

impl RoundingGroup {
    /// How many inputs there are in a group.
    pub const fn inputs(self) -> usize {
        match self {
            RoundingGroup::Of32 => GROUP,
            RoundingGroup::Of256 => BLOCK,
        }
    }
}

/// Below this a group counts as zero: the reciprocal of its scale would overflow.
const SMALLEST: f32 = 1e-30;

/// Where some rows' codes go: that part of each of the lists in [`super::row_codes::RowCodes`].
pub(super) struct Part<'a> {
    pub codes: &'a mut [i8],
    pub scales: &'a mut [f32],
    pub sums: &'a mut [[i32; 2]],
}

/// Rounds rows `x` into `rows` with the widest registers of `isa`.
pub(super) fn quantise_on(isa: Isa, x: &[f32], rows: Part, group: RoundingGroup) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: values above `Scalar` come from `Isa`, which saw the instructions on this processor.
        Isa::Avx512 | Isa::Amx => unsafe { quantise_avx512(x, rows, group) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 | Isa::AvxVnni => unsafe { quantise_avx2(x, rows, group) },
        _ => quantise(x, rows, group),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn quantise_avx2(x: &[f32], rows: Part, group: RoundingGroup) {
    quantise(x, rows, group);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn quantise_avx512(x: &[f32], rows: Part, group: RoundingGroup) {
    quantise(x, rows, group);
}

/// The definition, inlined into functions compiled for wider registers.
#[inline(always)]
fn quantise(x: &[f32], rows: Part, group: RoundingGroup) {
    let groups = x.as_chunks::<GROUP>().0;
    let codes = rows.codes.as_chunks_mut::<GROUP>().0;
    match group {
        RoundingGroup::Of32 => {
            for (((x, codes), scale), sums) in groups.iter().zip(codes).zip(rows.scales).zip(rows.sums) {
                let steps = Steps::of(largest(x), RoundingGroup::Of32);
                *scale = to_f16(steps.scale);
                *sums = round(x, codes, steps);
            }
        }
        RoundingGroup::Of256 => {
            let blocks = groups.as_chunks::<{ BLOCK / GROUP }>().0.iter();
            let codes = codes.as_chunks_mut::<{ BLOCK / GROUP }>().0;
            let scales = rows.scales.as_chunks_mut::<{ BLOCK / GROUP }>().0;
            let sums = rows.sums.as_chunks_mut::<{ BLOCK / GROUP }>().0;
            for (((x, codes), scales), sums) in blocks.zip(codes).zip(scales).zip(sums) {
                let steps = Steps::of(largest(x.as_flattened()), RoundingGroup::Of256);
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
    fn of(largest: u32, group: RoundingGroup) -> Steps {
        let largest = f32::from_bits(largest);
        if !largest.is_finite() {
            return Steps { scale: f32::NAN, inverse: 0.0 };
        }
        if largest < SMALLEST {
            return Steps { scale: 0.0, inverse: 0.0 };
        }
        // Which of the two is rounded first is ggml's choice, and decides ties.
        match group {
            RoundingGroup::Of32 => Steps { scale: largest / 127.0, inverse: 1.0 / (largest / 127.0) },
            RoundingGroup::Of256 => Steps { scale: 1.0 / (127.0 / largest), inverse: 127.0 / largest },
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
}
