//! Rows of activations as small integers, ready to be multiplied with panels on any instruction set.

use super::rounding::RoundingGroup;
use super::row_codes::RowCodes;
use crate::isa::Isa;

#[cfg(target_arch = "x86_64")]
use super::{
    amx::{blocks32_rows::Tiles, superblock_rows::Pairs},
    avx512::superblock_rows::Lines,
};

/// Activations `[T, inputs]`, rounded to the nearest of 255 steps between minus and plus the largest magnitude of each
/// group. Its memory is kept from one rounding to the next.
#[derive(Default)]
pub struct QuantisedRows {
    pub(super) codes: RowCodes,
    pub(super) layouts: Layouts,
}

/// The rows once more, for the kernels that read them in an order of their own. A layout is empty where it is not used.
#[derive(Default)]
pub(super) struct Layouts {
    /// For AMX beside weights in blocks of 32.
    #[cfg(target_arch = "x86_64")]
    pub tiles: Tiles,
    /// For AMX beside weights in blocks of 256.
    #[cfg(target_arch = "x86_64")]
    pub pairs: Pairs,
    /// For AVX-512 beside weights in blocks of 256.
    #[cfg(target_arch = "x86_64")]
    pub lines: Lines,
}

impl QuantisedRows {
    pub fn inputs(&self) -> usize {
        self.codes.inputs()
    }

    /// How many inputs were rounded in the same steps.
    pub fn rounding_group(&self) -> RoundingGroup {
        self.codes.rounding_group()
    }

    /// The number of rows.
    pub fn count(&self) -> usize {
        self.codes.count()
    }

    /// Replaces what was here by the rows of `x`, `[T, inputs]`. What a row becomes depends on that row alone.
    ///
    /// # Panics
    /// When `inputs` is not a positive multiple of 32 (of 256 for [`RoundingGroup::Of256`]), or `x` not of whole rows.
    pub fn round(&mut self, x: &[f32], inputs: usize, group: RoundingGroup) {
        self.round_on(Isa::current(), x, inputs, group);
    }

    /// [`QuantisedRows::round`] with instructions of one's choice, which this machine must have.
    pub(super) fn round_on(&mut self, isa: Isa, x: &[f32], inputs: usize, group: RoundingGroup) {
        self.codes.round(isa, x, inputs, group);
        self.layouts.fill(isa, &self.codes);
    }

    /// Writes what rounding left of `x`, of which these are the rows, to `left`. It is not finite where `x` was not.
    ///
    /// # Panics
    /// When `left` is not as long as `x`.
    pub fn remainder(&self, x: &[f32], left: &mut [f32]) {
        self.codes.remainder(x, left);
    }
}

/// [`QuantisedRows::round`] into rows of their own.
///
/// # Panics
/// As [`QuantisedRows::round`].
pub fn quantise_rows(x: &[f32], inputs: usize, group: RoundingGroup) -> QuantisedRows {
    let mut rows = QuantisedRows::default();
    rows.round(x, inputs, group);
    rows
}

#[cfg(target_arch = "x86_64")]
impl Layouts {
    /// Lays `rows` out as the kernels of `isa` read them.
    fn fill(&mut self, isa: Isa, rows: &RowCodes) {
        self.tiles.fill(isa, rows);
        self.pairs.fill(isa, rows);
        self.lines.fill(isa, rows, !self.pairs.is_empty());
    }

    /// Whether products on `isa` read one of the layouts.
    pub fn are_read_on(&self, isa: Isa) -> bool {
        let filled = !(self.tiles.is_empty() && self.pairs.is_empty() && self.lines.is_empty());
        filled && matches!(isa, Isa::Avx512 | Isa::Amx)
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Layouts {
    fn fill(&mut self, _: Isa, _: &RowCodes) {}

    pub fn are_read_on(&self, _: Isa) -> bool {
        false
    }
}
