//! The same loops compiled for several instruction sets; one is chosen by what the machine has, never by row count.
#![allow(unsafe_code)] // calls into code compiled for instructions that `Isa::detect` has found

use super::super::dot::tile;
use super::super::isa;
use super::super::packed::{Packing, unpack};

/// An instruction set that this machine has: values other than `Baseline` come from [`Isa::detect`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Isa(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The widest one, or what [`isa::VARIABLE`] allows.
    pub(super) fn detect() -> Isa {
        Isa::of(isa::Isa::current())
    }

    fn of(instructions: isa::Isa) -> Isa {
        Isa(match instructions {
            isa::Isa::Scalar => Level::Baseline,
            #[cfg(target_arch = "x86_64")]
            isa::Isa::Avx2 | isa::Isa::AvxVnni => Level::Avx2,
            #[cfg(target_arch = "x86_64")]
            isa::Isa::Avx512 | isa::Isa::Amx => Level::Avx512,
            #[cfg(not(target_arch = "x86_64"))]
            _ => Level::Baseline,
        })
    }

    /// All that this machine has, for the test that they agree.
    #[cfg(test)]
    pub(super) fn available() -> Vec<Isa> {
        isa::Isa::available().into_iter().map(Isa::of).collect()
    }

    /// `out[N, T] = weight[N, inputs] · x[T, inputs]ᵀ`.
    pub(super) fn block(self, x: &[f32], weight: &[f32], inputs: usize, out: &mut [f32]) {
        match self.0 {
            Level::Baseline => block(x, weight, inputs, out),
            // SAFETY: `self` was made by `detect` or `available`, which saw AVX2 on this processor.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { block_avx2(x, weight, inputs, out) },
            // SAFETY: as above, with AVX-512F.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { block_avx512(x, weight, inputs, out) },
        }
    }

    /// [`unpack`].
    pub(super) fn unpack(self, packing: Packing, bytes: &[u8], out: &mut [f32]) {
        match self.0 {
            Level::Baseline => unpack(packing, bytes, out),
            // SAFETY: `self` was made by `detect` or `available`, which saw AVX2 on this processor.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { unpack_avx2(packing, bytes, out) },
            // SAFETY: as above, with AVX-512F.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { unpack_avx512(packing, bytes, out) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn block_avx2(x: &[f32], weight: &[f32], inputs: usize, out: &mut [f32]) {
    block(x, weight, inputs, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn block_avx512(x: &[f32], weight: &[f32], inputs: usize, out: &mut [f32]) {
    block(x, weight, inputs, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn unpack_avx2(packing: Packing, bytes: &[u8], out: &mut [f32]) {
    unpack(packing, bytes, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn unpack_avx512(packing: Packing, bytes: &[u8], out: &mut [f32]) {
    unpack(packing, bytes, out);
}

/// Inlined into each variant above, where it is vectorised with that variant's registers. Rust never fuses a product and
/// a sum on its own, so all variants round alike.
#[inline(always)]
fn block(x: &[f32], weight: &[f32], inputs: usize, out: &mut [f32]) {
    let rows = x.len() / inputs;
    assert_eq!(out.len(), rows * (weight.len() / inputs), "output of a block");
    let fours = rows - rows % 4;
    for row in (0..fours).step_by(4) {
        tiles::<4, 2>(x, row, weight, inputs, out);
    }
    for row in fours..rows {
        tiles::<1, 4>(x, row, weight, inputs, out);
    }
}

/// `R` rows of `x`, from `row` on, against all rows of `weight`, `C` at a time.
#[inline(always)]
fn tiles<const R: usize, const C: usize>(x: &[f32], row: usize, weight: &[f32], inputs: usize, out: &mut [f32]) {
    let rows = x.len() / inputs;
    let x: [&[f32]; R] = std::array::from_fn(|r| &x[(row + r) * inputs..][..inputs]);
    let mut column = 0;
    let mut groups = weight.chunks_exact(C * inputs);
    for group in &mut groups {
        let w: [&[f32]; C] = std::array::from_fn(|c| &group[c * inputs..][..inputs]);
        let sums = tile(x, w);
        for c in 0..C {
            for r in 0..R {
                out[(column + c) * rows + row + r] = sums[r][c];
            }
        }
        column += C;
    }
    for w in groups.remainder().chunks_exact(inputs) {
        let sums = tile(x, [w]);
        for r in 0..R {
            out[column * rows + row + r] = sums[r][0];
        }
        column += 1;
    }
}
