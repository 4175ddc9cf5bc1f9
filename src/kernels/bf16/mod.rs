//! `y[T, N] = x[T, K] · w[N, K]ᵀ` for BF16 weights where the processor multiplies such numbers: in tiles (AMX), or else in pairs
//! (AVX-512 with BF16); elsewhere [`super::matmul`] multiplies them as `f32`.
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
mod weights;

use weights::Unit;

pub use weights::Weights;

#[cfg(target_arch = "x86_64")]
use super::parallel::{Columns, for_each_range};

/// Inputs of a tile.
const GROUP: usize = 32;
/// Outputs of a tile, and rows of `x`.
const TILE: usize = 16;
/// Numbers of a tile of weights or rows.
const TILE_NUMBERS: usize = TILE * GROUP;

/// `x` is `[T, inputs]`; fills `y`, `[T, outputs]`.
///
/// # Panics
/// When `x` is not of whole rows, `y` has another length, or this machine does not have the unit.
#[cfg(target_arch = "x86_64")]
pub fn matmul_into(x: &[f32], weights: &Weights, y: &mut [f32]) {
    use std::cell::RefCell;
    thread_local! {
        static ROWS: RefCell<(split::Split, avx512::Rounded)> = RefCell::default();
    }
    let inputs = weights.inputs();
    assert!(x.len().is_multiple_of(inputs), "ragged rows");
    let count = x.len() / inputs;
    assert_eq!(y.len(), count * weights.outputs(), "length of the output");
    if count == 0 {
        return;
    }
    let out = Columns::new(y, weights.outputs());
    let (tiles, cost) = (weights.outputs().div_ceil(TILE), x.len() * weights.outputs());
    ROWS.with_borrow_mut(|(split, rounded)| match weights.unit {
        Unit::Tiles => {
            assert!(amx::is_here(), "no tiles of BF16 on this machine");
            split.fill(x, inputs);
            // SAFETY: the unit was just asked for.
            for_each_range(tiles, amx::TOGETHER, cost, |range| unsafe { amx::tiles(split, weights, range, &out) });
        }
        Unit::Pairs => {
            assert!(avx512::is_here(), "no AVX-512 for BF16 on this machine");
            // SAFETY: the instructions were just asked for.
            unsafe { rounded.fill(x, inputs) };
            // SAFETY: as above.
            for_each_range(tiles, avx512::PANELS, cost, |range| unsafe {
                avx512::panels(rounded, weights, range, &out)
            });
        }
    });
}

/// Never called: [`Weights::exist`] says so.
#[cfg(not(target_arch = "x86_64"))]
pub fn matmul_into(_: &[f32], _: &Weights, _: &mut [f32]) {
    unreachable!("no unit for BF16 on this machine");
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
