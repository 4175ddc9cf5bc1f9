//! How large a model's sizes may be, whatever file they come from.

use std::ops::RangeInclusive;

// Far beyond any published model, small enough that products of any three fit a u64.
pub(crate) const MAX_WIDTH: usize = 1 << 20;
pub(crate) const MAX_VOCAB: usize = 1 << 24;
pub(crate) const MAX_LAYERS: usize = 4096;
pub(crate) const MAX_HEADS: usize = 4096;
pub(crate) const MAX_HEAD_DIM: usize = 4096;
pub(crate) const MAX_POSITIONS: usize = 1 << 28;
pub(crate) const MAX_EXPERTS: usize = 4096;
pub(crate) const FACTOR: RangeInclusive<f64> = 1.0..=1e6;
pub(crate) const THETA: RangeInclusive<f64> = 1.0..=1e15;
/// Of multipliers and caps.
pub(crate) const MULTIPLIER: RangeInclusive<f64> = 1e-9..=1e9;
