//! The operations on sixteen floats that every instruction set has.
#![allow(unsafe_code)] // pointers, and instructions that callers have asked `Isa` for

/// Lanes of a value.
pub(crate) const LANES: usize = 16;

/// Sixteen `f32`.
///
/// # Safety
/// All functions: the processor has the implementation's instructions, and pointers point at sixteen readable (writable)
/// numbers of their kind, at any alignment.
pub(crate) trait Lanes: Copy {
    /// Sums that a kernel should keep at once, so that they stay in registers.
    const SUMS: usize;

    /// Asks for what will be read soon; `at` may point anywhere.
    unsafe fn prefetch(at: *const u8);
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(at: *const f32) -> Self;
    unsafe fn load_f16(at: *const u16) -> Self;
    /// The number at `at`, for all lanes.
    unsafe fn splat_f16(at: *const u16) -> Self;
    unsafe fn load_bf16(at: *const u16) -> Self;
    unsafe fn load_i8(at: *const i8) -> Self;
    unsafe fn store(self, at: *mut f32);
    /// As the nearest `f16`, ties to even; infinite beyond the largest.
    unsafe fn store_f16(self, at: *mut u16);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    /// `self * factor + term`, rounded once.
    unsafe fn fma(self, factor: Self, term: Self) -> Self;
    /// The larger; `other` where either is NaN.
    unsafe fn max(self, other: Self) -> Self;
    /// The smaller; `other` where either is NaN.
    unsafe fn min(self, other: Self) -> Self;
    /// Zero where `x` is less than `limit`, else `self`.
    unsafe fn zero_where_less(self, x: Self, limit: Self) -> Self;
    /// `2^n` for each lane that holds [`MAGIC`]` + n`, with `n` from -126 to 127; anything for others.
    unsafe fn power_of_magic(self) -> Self;
}

/// Adding 1.5 · 2²³ leaves the nearest integer, ties to even, in the low bits.
pub(super) const MAGIC: f32 = 12_582_912.0;
