//! Rows of activations as small integers, in the plain layout that every kernel can read.
#![allow(unsafe_code)] // parts of the rows, dealt to several threads

use std::ops::Range;

use super::format::GROUP;
use super::rounding::{Part, RoundingGroup, quantise_on};
use crate::isa::Isa;
use crate::parallel::{Shared, for_each_range};

/// `[T, inputs]`, rounded to the nearest of 255 steps between minus and plus the largest magnitude of each group.
#[derive(Default)]
pub(super) struct RowCodes {
    inputs: usize,
    rounding_group: RoundingGroup,
    /// `[T, inputs]`, from -127 to 127.
    pub codes: Vec<i8>,
    /// `[T, groups]`; NaN where a group holds a number that is not finite, so that all outputs of the row become NaN.
    pub scales: Vec<f32>,
    /// `[T, groups]`: sums of codes, of the first and the second 16 inputs.
    pub sums: Vec<[i32; 2]>,
}

impl RowCodes {
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    pub fn rounding_group(&self) -> RoundingGroup {
        self.rounding_group
    }

    pub fn count(&self) -> usize {
        self.codes.len().checked_div(self.inputs).unwrap_or(0)
    }

    /// Groups of 32 inputs in a row.
    pub fn groups(&self) -> usize {
        self.inputs / GROUP
    }

    /// See [`super::rows::QuantisedRows::round`].
    pub fn round(&mut self, isa: Isa, x: &[f32], inputs: usize, group: RoundingGroup) {
        assert!(inputs > 0 && inputs.is_multiple_of(group.inputs()) && x.len().is_multiple_of(inputs), "ragged rows");
        let (count, groups) = (x.len() / inputs, inputs / GROUP);
        (self.inputs, self.rounding_group) = (inputs, group);
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
            quantise_on(isa, &x[rows.start * inputs..rows.end * inputs], part, group);
        });
    }

    /// See [`super::rows::QuantisedRows::remainder`].
    pub fn remainder(&self, x: &[f32], left: &mut [f32]) {
        assert!(x.len() == self.codes.len() && left.len() == x.len(), "what was rounded, and room for what is left");
        let groups = x.as_chunks::<GROUP>().0.iter().zip(self.codes.as_chunks::<GROUP>().0).zip(&self.scales);
        for (((x, codes), scale), left) in groups.zip(left.as_chunks_mut::<GROUP>().0) {
            *left = std::array::from_fn(|k| f32::from(codes[k]).mul_add(-scale, x[k]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(x: &[f32], inputs: usize, group: RoundingGroup) -> RowCodes {
        let mut rows = RowCodes::default();
        rows.round(Isa::current(), x, inputs, group);
        rows
    }

    #[test]
    fn steps_are_even_and_ties_go_to_even() {
        let mut x = [0.0f32; 32];
        x[..6].copy_from_slice(&[127.0, -127.0, 0.5, 1.5, -2.5, 3.49]);
        let rows = rounded(&x, 32, RoundingGroup::Of32);
        assert_eq!(rows.codes[..6], [127, -127, 0, 2, -2, 3]);
        assert_eq!((rows.scales[0], rows.sums[0]), (1.0, [3, 0]));
    }

    #[test]
    fn blocks_share_the_scale_of_their_largest() {
        let mut x = vec![0.5f32; 512];
        (x[100], x[300]) = (-254.0, 12.7);
        let rows = rounded(&x, 512, RoundingGroup::Of256);
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
            let rows = rounded(&x, 64, RoundingGroup::Of32);
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
            let rows = rounded(&x, 64, RoundingGroup::Of32);
            assert!(rows.scales[2].is_nan());
            let step = half::f16::from_f32(1.0 / 127.0).to_f32();
            assert!([0, 1, 3].iter().all(|&g| rows.scales[g] == step && rows.sums[g] == [16 * 127; 2]));
        }
    }
}
