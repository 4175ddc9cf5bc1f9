//! `y[T, N] = x[T, K] · w[N, K]ᵀ` for BF16 weights where the processor multiplies such numbers: in tiles (AMX), or else in pairs
//! (AVX-512 with BF16); elsewhere [`crate::matmul`] multiplies them as `f32`.
//!
//! ```text
//! w → weights.rs: panels of 16 outputs, as the unit takes them, once, at load ┐
//! x → split.rs: high + low, each BF16                                         ┼→ amx.rs
//!     avx512.rs: one BF16                                                     ┴→ avx512.rs
//! ```
//! Before tiles `x` is taken as the sum of two BF16 numbers, sixteen bits together: twice the work of a unit so wide is hardly
//! felt. In pairs it would be, so `x` is rounded to one number, as llama.cpp and programs for GPUs do it.
//!
//! What is computed is exact enough to be written down (and is, in the tests). Tiles: for each group of 32 inputs the even and
//! the odd inputs are added by chains of fused operations, each sum is rounded, and the group is added to the output; first with
//! `high`, then with `low`. Pairs: one chain of fused operations, of each two inputs the odd one first.
//! An output depends on its row of `x` and its row of `w` alone, so all numbers of rows and threads give the same bits.
//! They are not those of another unit, or of none; numbers below 2⁻¹²⁶ count as zero.
//!
//! Two cores of an EPYC (Zen 5), 512 rows: 890 GFLOPS in pairs, where nothing but `vdpbf16ps` does 896, and 410 as `f32`.

#![allow(unsafe_code)] // calls into code compiled for the units

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod split;
mod unit;
mod weights;

use unit::Unit;

pub use weights::Weights;

#[cfg(target_arch = "x86_64")]
use crate::parallel::{Columns, for_each_part, for_each_range};
#[cfg(target_arch = "x86_64")]
use std::ops::Range;
#[cfg(target_arch = "x86_64")]
use unit::TILE;

/// How many bits of each activation count beside BF16 weights in this process: 24 are all of an `f32`.
pub fn row_bits() -> u32 {
    match Unit::current() {
        Some(Unit::Tiles) => 16,
        Some(Unit::Pairs) => 8,
        None => f32::MANTISSA_DIGITS,
    }
}

/// `x` is `[T, inputs]`; fills `y`, `[T, outputs]`.
///
/// # Panics
/// When `x` is not of whole rows, `y` has another length, or this machine does not have the unit.
pub fn matmul_into(x: &[f32], weights: &Weights, y: &mut [f32]) {
    matmuls_into(x, [(weights, y)]);
}

/// Several products of the same rows at once: they are rounded once, and no thread waits for the last part of one product
/// before the next begins.
///
/// # Panics
/// As [`matmul_into`], or when the weights are for several units or numbers of inputs.
#[cfg(target_arch = "x86_64")]
pub fn matmuls_into<const N: usize>(x: &[f32], products: [(&Weights, &mut [f32]); N]) {
    use std::cell::RefCell;
    thread_local! {
        static ROWS: RefCell<(split::Split, avx512::Rounded)> = RefCell::default();
    }
    let Some((first, _)) = products.first() else { return };
    let (inputs, unit) = (first.inputs(), first.unit);
    assert!(x.len().is_multiple_of(inputs), "ragged rows");
    let count = x.len() / inputs;
    if count == 0 {
        return;
    }
    let products = products.map(|(weights, y)| {
        assert!(weights.inputs() == inputs && weights.unit == unit, "weights alike");
        assert_eq!(y.len(), count * weights.outputs(), "length of the output");
        (weights, Columns::new(y, weights.outputs()))
    });
    let cost = products.iter().map(|(weights, _)| x.len() * weights.outputs()).sum();
    let panels = || products.iter().map(|(weights, _)| weights.outputs().div_ceil(TILE));
    let each = |step: usize, compute: &(dyn Fn(&Weights, Range<usize>, &Columns) + Sync)| {
        for_each_range(panels().sum(), step, cost, |range| {
            for_each_part(panels(), range, |index, part| compute(products[index].0, part, &products[index].1));
        });
    };
    ROWS.with_borrow_mut(|(split, rounded)| match unit {
        Unit::Tiles => {
            assert!(Unit::Tiles.is_here(), "no tiles of BF16 on this machine");
            split.fill(x, inputs);
            // SAFETY: the unit was just asked for.
            each(amx::TOGETHER, &|weights, part, out| unsafe { amx::tiles(split, weights, part, out) });
        }
        Unit::Pairs => {
            assert!(Unit::Pairs.is_here(), "no AVX-512 for BF16 on this machine");
            // SAFETY: the instructions were just asked for.
            unsafe { rounded.fill(x, inputs) };
            // SAFETY: as above.
            each(avx512::PANELS, &|weights, part, out| unsafe { avx512::panels(rounded, weights, part, out) });
        }
    });
}

/// Never called: [`Weights::exist`] says so.
#[cfg(not(target_arch = "x86_64"))]
pub fn matmuls_into<const N: usize>(_: &[f32], _: [(&Weights, &mut [f32]); N]) {
    unreachable!("no unit for BF16 on this machine");
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
