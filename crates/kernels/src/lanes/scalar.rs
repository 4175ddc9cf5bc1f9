//! The definition of every operation.
#![allow(unsafe_code)] // pointers, as the trait has them

use super::operations::{LANES, Lanes};
use crate::packed::halves;

/// Plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Scalar([f32; LANES]);

impl Scalar {
    #[inline(always)]
    fn zip(self, other: Scalar, f: impl Fn(f32, f32) -> f32) -> Scalar {
        Scalar(std::array::from_fn(|j| f(self.0[j], other.0[j])))
    }
}

impl Lanes for Scalar {
    const SUMS: usize = 2;

    #[inline(always)]
    unsafe fn prefetch(_at: *const u8) {}

    #[inline(always)]
    unsafe fn splat(x: f32) -> Scalar {
        Scalar([x; LANES])
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Scalar {
        // SAFETY: sixteen numbers, as the caller promises.
        Scalar(std::array::from_fn(|j| unsafe { at.add(j).read_unaligned() }))
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Scalar {
        // SAFETY: as above.
        Scalar(std::array::from_fn(|j| halves::f16(unsafe { at.add(j).read_unaligned() }.to_le_bytes())))
    }

    #[inline(always)]
    unsafe fn splat_f16(at: *const u16) -> Scalar {
        // SAFETY: one number, as the caller promises.
        Scalar([halves::f16(unsafe { at.read_unaligned() }.to_le_bytes()); LANES])
    }

    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> Scalar {
        // SAFETY: as above.
        Scalar(std::array::from_fn(|j| halves::bf16(unsafe { at.add(j).read_unaligned() }.to_le_bytes())))
    }

    #[inline(always)]
    unsafe fn load_i8(at: *const i8) -> Scalar {
        // SAFETY: as above.
        Scalar(std::array::from_fn(|j| f32::from(unsafe { at.add(j).read() })))
    }

    #[inline(always)]
    unsafe fn store_f16(self, at: *mut u16) {
        for (j, x) in self.0.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { at.add(j).write_unaligned(half::f16::from_f32_const(x).to_bits()) }
        }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        for (j, x) in self.0.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { at.add(j).write_unaligned(x) }
        }
    }

    #[inline(always)]
    unsafe fn add(self, other: Scalar) -> Scalar {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn sub(self, other: Scalar) -> Scalar {
        self.zip(other, |a, b| a - b)
    }

    #[inline(always)]
    unsafe fn mul(self, other: Scalar) -> Scalar {
        self.zip(other, |a, b| a * b)
    }

    #[inline(always)]
    unsafe fn div(self, other: Scalar) -> Scalar {
        self.zip(other, |a, b| a / b)
    }

    #[inline(always)]
    unsafe fn fma(self, factor: Scalar, term: Scalar) -> Scalar {
        Scalar(std::array::from_fn(|j| self.0[j].mul_add(factor.0[j], term.0[j])))
    }

    #[inline(always)]
    unsafe fn max(self, other: Scalar) -> Scalar {
        self.zip(other, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    unsafe fn min(self, other: Scalar) -> Scalar {
        self.zip(other, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    unsafe fn zero_where_less(self, x: Scalar, limit: Scalar) -> Scalar {
        Scalar(std::array::from_fn(|j| if x.0[j] < limit.0[j] { 0.0 } else { self.0[j] }))
    }

    #[inline(always)]
    unsafe fn power_of_magic(self) -> Scalar {
        Scalar(self.0.map(|x| f32::from_bits(x.to_bits().wrapping_add(127) << 23)))
    }
}
