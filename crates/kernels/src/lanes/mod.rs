//! Sixteen floats at once, the same to the bit on every instruction set: what kernels that are not products are written in.
//!
//! A kernel is one generic function over [`Lanes`], marked `#[inline(always)]`, and [`on_lanes!`] compiles it once per
//! instruction set. Every operation is one correctly rounded IEEE operation per lane (`fma` rounds once), so a lane does
//! not know how wide its register is. [`scalar`] is the definition.
//!
//! ```text
//! operations (the trait) → scalar, avx2, avx512 → dispatch (the macro)
//!                        → functions (exponential, tangent, error function, in these operations)
//! ```

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod dispatch;
mod functions;
mod operations;
mod scalar;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use dispatch::on_lanes;
pub(crate) use functions::{capped, erf, exp, largest, tanh};
pub(crate) use operations::{LANES, Lanes};
pub(crate) use scalar::Scalar;

#[cfg(test)]
mod tests;
