//! Lanes against their definition, and exponentials against double precision.
#![allow(unsafe_code)] // kernels over lanes

use super::functions::{LEAST, MOST};
use super::*;
use crate::isa::Isa;

on_lanes!(fn exp_on(x: &mut [f32; LANES]) = exp_in_place);

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn exp_in_place<V: Lanes>(x: &mut [f32; LANES]) {
    // SAFETY: as the caller promises; sixteen numbers.
    unsafe { exp(V::load(x.as_ptr())).store(x.as_mut_ptr()) }
}

#[test]
fn exponentials_are_close_and_the_same_everywhere() {
    for n in 0..20_000 {
        let x: [f32; LANES] = std::array::from_fn(|j| (n as f32 - 12_000.0) / 110.0 + j as f32 * 1e-3);
        let mut expected = x;
        exp_on(Isa::Scalar, &mut expected);
        for (x, y) in x.iter().zip(expected) {
            let exact = f64::from(x.clamp(-1e3, MOST)).exp();
            if *x < LEAST {
                assert_eq!(y, 0.0, "at {x}");
            } else {
                assert!((f64::from(y) - exact).abs() <= 2.5e-7 * exact, "at {x}: {y} instead of {exact}");
            }
        }
        for isa in Isa::available() {
            let mut y = x;
            exp_on(isa, &mut y);
            assert_eq!(y.map(f32::to_bits), expected.map(f32::to_bits), "{isa:?} from {}", x[0]);
        }
    }
}

#[test]
fn exponentials_of_what_is_not_finite() {
    for isa in Isa::available() {
        let mut x = [0.0; LANES];
        x[..4].copy_from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0]);
        exp_on(isa, &mut x);
        assert!(x[0].is_nan() && x[1] > 1e38 && x[1].is_finite(), "{isa:?}: {x:?}");
        assert_eq!(x[2..], [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], "{isa:?}");
    }
}

on_lanes!(fn everything_on(bytes: &[u8; 64]) -> Vec<u32> = everything);

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn everything<V: Lanes>(bytes: &[u8; 64]) -> Vec<u32> {
    let mut all = Vec::new();
    let mut keep = |x: V| {
        let mut lanes = [0.0f32; LANES];
        // SAFETY: as the caller promises.
        unsafe { x.store(lanes.as_mut_ptr()) };
        // The payload of a NaN is nobody's promise.
        all.extend(lanes.map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }));
    };
    // SAFETY: as the caller promises; 64 bytes are at least sixteen numbers of each kind.
    unsafe {
        let (a, b) = (V::load(bytes.as_ptr().cast()), V::load_f16(bytes.as_ptr().cast()));
        let (c, d) = (V::load_bf16(bytes.as_ptr().add(32).cast()), V::load_i8(bytes.as_ptr().add(16).cast()));
        for x in [
            a,
            b,
            c,
            d,
            V::splat_f16(bytes.as_ptr().add(7).cast()),
            a.add(b),
            b.sub(c),
            c.mul(d),
            a.div(b),
            b.fma(c, d),
            a.max(b),
            b.min(c),
        ] {
            keep(x);
        }
        keep(d.zero_where_less(a, b));
        let mut halves = [0u16; LANES];
        for x in [a, b, c, d] {
            x.store_f16(halves.as_mut_ptr());
            all.extend(halves.map(|bits| if half::f16::from_bits(bits).is_nan() { u32::MAX } else { u32::from(bits) }));
        }
        all.push(largest(d).to_bits());
    }
    all
}

#[test]
fn every_operation_is_the_same_everywhere() {
    let mut state = 7u64;
    for round in 0..500 {
        let bytes = std::array::from_fn(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        });
        let expected = everything_on(Isa::Scalar, &bytes);
        for isa in Isa::available() {
            assert_eq!(everything_on(isa, &bytes), expected, "{isa:?}, round {round}");
        }
    }
}
