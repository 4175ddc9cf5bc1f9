//! Sixteen floats at once, the same to the bit on every instruction set: what kernels that are not products are written in.
//!
//! A kernel is one generic function over [`Lanes`], marked `#[inline(always)]`, and [`on_lanes!`] compiles it once per
//! instruction set. Every operation is one correctly rounded IEEE operation per lane (`fma` rounds once), so a lane does
//! not know how wide its register is. [`scalar`] is the definition.
#![allow(unsafe_code)] // intrinsics behind a trait; callers have asked `Isa`

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

#[cfg(target_arch = "x86_64")]
pub(super) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(super) use avx512::Avx512;
pub(super) use scalar::Scalar;

/// Lanes of a value.
pub(super) const LANES: usize = 16;

/// Sixteen `f32`.
///
/// # Safety
/// All functions: the processor has the implementation's instructions, and pointers point at sixteen readable (writable)
/// numbers of their kind, at any alignment.
pub(super) trait Lanes: Copy {
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
const MAGIC: f32 = 12_582_912.0;

/// Below this the exponential counts as zero: the result would leave the normal range.
const LEAST: f32 = -87.0;
/// Above this the exponential grows no further.
const MOST: f32 = 88.0;

/// `e^x`: Cephes' reduction and polynomial (`expf`, Moshier 1992), at most 2 units in the last place off; 0 below -87, the
/// value at 88 above it, NaN for NaN.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn exp<V: Lanes>(x: V) -> V {
    // SAFETY: as the caller promises.
    unsafe {
        let bounded = V::splat(MOST).min(x);
        let magic = V::splat(MAGIC);
        let shifted = bounded.fma(V::splat(std::f32::consts::LOG2_E), magic);
        let n = shifted.sub(magic);
        let r = n.fma(V::splat(-0.693_359_4), bounded);
        let r = n.fma(V::splat(2.121_944_4e-4), r);
        let mut p = V::splat(1.987_569_1e-4);
        for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
            p = p.fma(r, V::splat(c));
        }
        let y = p.fma(r.mul(r), r).add(V::splat(1.0));
        y.mul(shifted.power_of_magic()).zero_where_less(x, V::splat(LEAST))
    }
}

/// Where the two halves of [`tanh`] meet, and the number before it.
const BEND: f32 = 0.625;
const BELOW_BEND: f32 = BEND.next_down();

/// The hyperbolic tangent: Cephes' polynomial near zero and `1 - 2 / (e^2x + 1)` elsewhere (`tanhf`, Moshier 1989), at most
/// 4 units in the last place off; NaN for NaN.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn tanh<V: Lanes>(x: V) -> V {
    // SAFETY: as the caller promises.
    unsafe {
        let (zero, one) = (V::splat(0.0), V::splat(1.0));
        let size = x.max(zero.sub(x));
        let far = one.sub(V::splat(2.0).div(exp(x.add(x)).add(one)));
        let z = x.mul(x);
        let mut p = V::splat(-5.704_988_7e-3);
        for c in [2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1] {
            p = p.fma(z, V::splat(c));
        }
        let near = p.mul(z).fma(x, x);
        // Each half is zero where the other counts.
        let near = near.zero_where_less(V::splat(BELOW_BEND), size);
        far.zero_where_less(size, V::splat(BEND)).add(near)
    }
}

/// The error function: the rational approximation 7.1.26 of Abramowitz and Stegun (1964), at most 1.5e-7 off plus rounding;
/// NaN for NaN.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn erf<V: Lanes>(x: V) -> V {
    // SAFETY: as the caller promises.
    unsafe {
        let (zero, one) = (V::splat(0.0), V::splat(1.0));
        let size = x.max(zero.sub(x));
        let t = one.div(size.fma(V::splat(0.327_591_1), one));
        let mut p = V::splat(1.061_405_4);
        for c in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
            p = p.fma(t, V::splat(c));
        }
        let far = one.sub(p.mul(t).mul(exp(zero.sub(size.mul(size)))));
        // Each sign is zero where the other counts.
        let positive = far.zero_where_less(x, zero);
        positive.sub(far.zero_where_less(zero.sub(x), V::splat(f32::MIN_POSITIVE)))
    }
}

/// `cap * tanh(x / cap)`
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn capped<V: Lanes>(x: V, cap: f32) -> V {
    // SAFETY: as the caller promises.
    unsafe { tanh(x.div(V::splat(cap))).mul(V::splat(cap)) }
}

/// The largest lane; if one is NaN, any of them.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn largest<V: Lanes>(x: V) -> f32 {
    let mut lanes = [0.0; LANES];
    // SAFETY: as the caller promises; sixteen numbers.
    unsafe { x.store(lanes.as_mut_ptr()) };
    let mut half = LANES / 2;
    while half > 0 {
        for j in 0..half {
            lanes[j] = if lanes[j] > lanes[j + half] { lanes[j] } else { lanes[j + half] };
        }
        half /= 2;
    }
    lanes[0]
}

/// Calls a generic `unsafe fn f::<V: Lanes>(…)`, compiled for each instruction set, with that of the [`Isa`] given.
///
/// `on_lanes!(fn name(isa; a: A, b: B) -> R = f)` declares `fn name(isa: Isa, a: A, b: B) -> R`; `isa` must be one that this
/// machine has.
///
/// [`Isa`]: super::isa::Isa
macro_rules! on_lanes {
    ($vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $generic:ident) => {
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $type),*) $(-> $result)? {
            use $crate::isa::Isa;
            use $crate::lanes;

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
            fn wide($($arg: $type),*) $(-> $result)? {
                // SAFETY: these features are enabled here.
                unsafe { $generic::<lanes::Avx512>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn narrow($($arg: $type),*) $(-> $result)? {
                // SAFETY: these features are enabled here.
                unsafe { $generic::<lanes::Avx2>($($arg),*) }
            }
            match isa {
                // SAFETY: callers pass what `Isa` has found on this processor.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 | Isa::Amx => unsafe { wide($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 | Isa::AvxVnni => unsafe { narrow($($arg),*) },
                // SAFETY: plain Rust needs no instructions.
                _ => unsafe { $generic::<lanes::Scalar>($($arg),*) },
            }
        }
    };
}
pub(super) use on_lanes;

#[cfg(test)]
mod tests;
