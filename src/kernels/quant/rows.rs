//! Activations as small integers: 32 inputs share a scale.

use super::super::isa::Isa;
use super::dispatch;
use super::format::GROUP;

/// `[T, inputs]`, rounded to the nearest of 255 steps between minus and plus the largest magnitude of each group.
pub struct Rows {
    inputs: usize,
    /// `[T, inputs]`, from -127 to 127.
    pub(super) codes: Vec<i8>,
    /// `[T, groups]`; NaN where a group holds a number that is not finite, so that all outputs of the row become NaN.
    pub(super) scales: Vec<f32>,
    /// `[T, groups]`: sums of codes, of the first and the second 16 inputs.
    pub(super) sums: Vec<[i32; 2]>,
}

/// Below this a group counts as zero: the reciprocal of its scale would overflow.
const SMALLEST: f32 = 1e-30;

impl Rows {
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    pub fn count(&self) -> usize {
        self.codes.len() / self.inputs
    }

    /// What rounding left of `x`, of which these are the rows. Not finite where `x` was not.
    pub fn remainder(&self, x: &[f32]) -> Vec<f32> {
        let groups = x.as_chunks::<GROUP>().0.iter().zip(self.codes.as_chunks::<GROUP>().0).zip(&self.scales);
        let left = |((x, codes), scale): ((&[f32; GROUP], &[i8; GROUP]), &f32)| -> [f32; GROUP] {
            std::array::from_fn(|k| f32::from(codes[k]).mul_add(-scale, x[k]))
        };
        groups.flat_map(left).collect()
    }

    pub(super) fn groups(&self) -> usize {
        self.inputs / GROUP
    }
}

/// `x` is `[T, inputs]`. What a row becomes depends on that row alone.
///
/// # Panics
/// When `inputs` is not a positive multiple of 32, or `x` not of whole rows.
pub fn quantise_rows(x: &[f32], inputs: usize) -> Rows {
    assert!(inputs > 0 && inputs.is_multiple_of(GROUP) && x.len().is_multiple_of(inputs), "ragged rows");
    let groups = x.len() / GROUP;
    let mut rows = Rows { inputs, codes: vec![0; x.len()], scales: vec![0.0; groups], sums: vec![[0; 2]; groups] };
    dispatch::quantise(Isa::current(), x, &mut rows);
    rows
}

/// Inlined into functions compiled for wider registers.
#[inline(always)]
pub(super) fn quantise(x: &[f32], rows: &mut Rows) {
    let codes = rows.codes.as_chunks_mut::<GROUP>().0;
    let outs = codes.iter_mut().zip(&mut rows.scales).zip(&mut rows.sums);
    for (x, ((codes, scale), sums)) in x.as_chunks::<GROUP>().0.iter().zip(outs) {
        (*scale, *sums) = group(x, codes);
    }
}

#[inline(always)]
fn group(x: &[f32; GROUP], codes: &mut [i8; GROUP]) -> (f32, [i32; 2]) {
    // Bit patterns of magnitudes are ordered as the magnitudes, with infinity and then NaN above all: one maximum finds
    // the scale and what is not finite. `f32::max` would skip NaN.
    let mut largest = 0;
    for x in x {
        largest = largest.max(x.to_bits() & 0x7fff_ffff);
    }
    let largest = f32::from_bits(largest);
    if !largest.is_finite() {
        *codes = [0; GROUP];
        return (f32::NAN, [0; 2]);
    }
    let (scale, inverse) = if largest < SMALLEST { (0.0, 0.0) } else { (largest / 127.0, 127.0 / largest) };
    // Adding 1.5 · 2²³ leaves the nearest integer, ties to even, in the low bits; no conversion can saturate.
    const MAGIC: f32 = 12_582_912.0;
    let mut rounded = [0i32; GROUP];
    for (rounded, x) in rounded.iter_mut().zip(x) {
        *rounded = (x * inverse + MAGIC).to_bits() as i32 - MAGIC.to_bits() as i32;
    }
    for (code, rounded) in codes.iter_mut().zip(rounded) {
        *code = rounded as i8;
    }
    let (first, second) = rounded.split_at(GROUP / 2);
    (scale, [first.iter().sum(), second.iter().sum()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_even_and_ties_go_to_even() {
        let mut x = [0.0f32; 32];
        x[..6].copy_from_slice(&[127.0, -127.0, 0.5, 1.5, -2.5, 3.49]);
        let rows = quantise_rows(&x, 32);
        assert_eq!(rows.codes[..6], [127, -127, 0, 2, -2, 3]);
        assert_eq!((rows.scales[0], rows.sums[0]), (1.0, [3, 0]));
    }

    #[test]
    fn every_magnitude_is_kept_within_half_a_step() {
        for magnitude in [1e-38f32, 1e-31, 1e-29, 1e-3, 1.0, 1e10, f32::MAX] {
            let x: Vec<f32> = (0..64).map(|i| magnitude * ((i * 37 % 64) as f32 / 31.5 - 1.0)).collect();
            let rows = quantise_rows(&x, 64);
            for (k, &x) in x.iter().enumerate() {
                let (scale, code) = (f64::from(rows.scales[k / 32]), f64::from(rows.codes[k]));
                let allowed = (f64::from(magnitude) / 127.0 * 0.501).max(1e-30);
                assert!((code * scale - f64::from(x)).abs() <= allowed, "{magnitude:e}: {x:e} as {code} · {scale:e}");
            }
        }
    }

    #[test]
    fn what_is_not_finite_marks_its_group_alone() {
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN] {
            let mut x = vec![1.0; 128];
            x[70] = odd;
            let rows = quantise_rows(&x, 64);
            assert!(rows.scales[2].is_nan());
            assert!([0, 1, 3].iter().all(|&g| rows.scales[g] == 1.0 / 127.0 && rows.sums[g] == [16 * 127; 2]));
        }
    }
}
