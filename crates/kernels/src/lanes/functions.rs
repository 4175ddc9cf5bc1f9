//! Functions of sixteen floats, written in the operations: the same to the bit on every instruction set.
#![allow(unsafe_code)] // operations, whose instructions callers have asked `Isa` for

use super::operations::{LANES, Lanes, MAGIC};

/// Below this the exponential counts as zero: the result would leave the normal range.
pub(super) const LEAST: f32 = -87.0;
/// Above this the exponential grows no further.
pub(super) const MOST: f32 = 88.0;

/// `e^x`: Cephes' reduction and polynomial (`expf`, Moshier 1992), at most 2 units in the last place off; 0 below -87, the
/// value at 88 above it, NaN for NaN.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn exp<V: Lanes>(x: V) -> V {
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
pub(crate) unsafe fn tanh<V: Lanes>(x: V) -> V {
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
pub(crate) unsafe fn erf<V: Lanes>(x: V) -> V {
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
pub(crate) unsafe fn capped<V: Lanes>(x: V, cap: f32) -> V {
    // SAFETY: as the caller promises.
    unsafe { tanh(x.div(V::splat(cap))).mul(V::splat(cap)) }
}

/// The largest lane; if one is NaN, any of them.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn largest<V: Lanes>(x: V) -> f32 {
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
