//! One product, as the kernels see it.

use crate::parallel::Columns;

/// Weights that kernels read as they are, little end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    F32,
    F16,
    Bf16,
}

impl Numbers {
    pub const fn bytes(self) -> usize {
        match self {
            Numbers::F32 => 4,
            Numbers::F16 | Numbers::Bf16 => 2,
        }
    }
}

/// All rows of `x` against rows of weights.
pub(super) struct Job<'a> {
    /// `[rows, inputs]`
    pub x: &'a [f32],
    pub rows: usize,
    pub inputs: usize,
    pub numbers: Numbers,
    /// Whole rows of `numbers`; the first is column 0 of `out`.
    pub weight: &'a [u8],
    pub out: Columns<'a>,
}
