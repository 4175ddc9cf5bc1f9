//! What is done element by element: gated activations (the middle of an MLP), soft caps, sums, factors.
#![allow(unsafe_code)] // lanes

use crate::isa::Isa;
use crate::lanes::{self, LANES, Lanes, on_lanes};
use crate::parallel::for_each_chunk;

/// The cost of one exponential, in multiplications.
const EXP_COST: usize = 16;
const CHUNK: usize = 4096;

/// `gate = silu(gate) * up`, element by element; `silu(v) = v / (1 + e^-v)`.
pub fn silu_gate(gate: &mut [f32], up: &[f32]) {
    gate_on(Isa::current(), silu_on, gate, up);
}

/// `gate = gelu(gate) * up`, element by element; `gelu(v) = v / 2 * (1 + tanh(sqrt(2 / pi) * (v + 0.044715 v^3)))`
/// (Hendrycks and Gimpel, 2016).
pub fn gelu_tanh_gate(gate: &mut [f32], up: &[f32]) {
    gate_on(Isa::current(), gelu_tanh_on, gate, up);
}

/// `gate = gelu(gate) * up`, element by element; `gelu(v) = v / 2 * (1 + erf(v / sqrt(2)))`.
pub fn gelu_gate(gate: &mut [f32], up: &[f32]) {
    gate_on(Isa::current(), gelu_on, gate, up);
}

/// `x = gelu(x)`, as [`gelu_gate`] has it.
pub fn gelu(x: &mut [f32]) {
    alone_on(Isa::current(), gelu_alone_on, x);
}

/// `x = gelu(x)`, as [`gelu_tanh_gate`] has it.
pub fn gelu_tanh(x: &mut [f32]) {
    alone_on(Isa::current(), gelu_tanh_alone_on, x);
}

/// `x = silu(x)`, as [`silu_gate`] has it.
pub fn silu(x: &mut [f32]) {
    alone_on(Isa::current(), silu_alone_on, x);
}

fn alone_on(isa: Isa, part: fn(Isa, &mut [f32]), x: &mut [f32]) {
    let cost = x.len() * EXP_COST;
    for_each_chunk(x, CHUNK, cost, |_, x| part(isa, x));
}

fn gate_on(isa: Isa, part: fn(Isa, &mut [f32], &[f32]), gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "gate and up");
    let cost = gate.len() * EXP_COST;
    for_each_chunk(gate, CHUNK, cost, |index, gate| {
        let up = &up[index * CHUNK..][..gate.len()];
        part(isa, gate, up);
    });
}

on_lanes!(fn silu_on(gate: &mut [f32], up: &[f32]) = silu_lanes);
on_lanes!(fn gelu_tanh_on(gate: &mut [f32], up: &[f32]) = gelu_tanh_lanes);
on_lanes!(fn gelu_on(gate: &mut [f32], up: &[f32]) = gelu_lanes);
on_lanes!(fn silu_alone_on(x: &mut [f32]) = silu_alone);
on_lanes!(fn gelu_tanh_alone_on(x: &mut [f32]) = gelu_tanh_alone);
on_lanes!(fn gelu_alone_on(x: &mut [f32]) = gelu_alone);
on_lanes!(fn capped_on(x: &mut [f32], cap: f32) = capped);

/// What becomes of sixteen numbers and their partners.
trait Pairwise: Copy {
    /// # Safety
    /// The processor has the instructions of `V`.
    unsafe fn sixteen<V: Lanes>(self, x: V, y: V) -> V;
}

#[derive(Clone, Copy)]
struct Silu;
#[derive(Clone, Copy)]
struct GeluTanh;
#[derive(Clone, Copy)]
struct Gelu;
#[derive(Clone, Copy)]
struct Cap(f32);
/// Whatever the partner, as if it were one.
#[derive(Clone, Copy)]
struct Alone<P>(P);

impl Pairwise for Silu {
    #[inline(always)]
    unsafe fn sixteen<V: Lanes>(self, gate: V, up: V) -> V {
        // SAFETY: as the caller promises.
        unsafe {
            let below = V::splat(1.0).add(lanes::exp(V::splat(0.0).sub(gate)));
            gate.div(below).mul(up)
        }
    }
}

impl Pairwise for GeluTanh {
    #[inline(always)]
    unsafe fn sixteen<V: Lanes>(self, gate: V, up: V) -> V {
        // SAFETY: as the caller promises.
        unsafe {
            let cube = gate.mul(gate).mul(gate);
            let inner = cube.fma(V::splat(0.044_715), gate).mul(V::splat(0.797_884_6));
            let factor = V::splat(1.0).add(lanes::tanh(inner));
            gate.mul(V::splat(0.5)).mul(factor).mul(up)
        }
    }
}

impl Pairwise for Gelu {
    #[inline(always)]
    unsafe fn sixteen<V: Lanes>(self, gate: V, up: V) -> V {
        // SAFETY: as the caller promises.
        unsafe {
            let factor = V::splat(1.0).add(lanes::erf(gate.mul(V::splat(std::f32::consts::FRAC_1_SQRT_2))));
            gate.mul(V::splat(0.5)).mul(factor).mul(up)
        }
    }
}

impl<P: Pairwise> Pairwise for Alone<P> {
    #[inline(always)]
    unsafe fn sixteen<V: Lanes>(self, x: V, _: V) -> V {
        // SAFETY: as the caller promises.
        unsafe { self.0.sixteen(x, V::splat(1.0)) }
    }
}

impl Pairwise for Cap {
    #[inline(always)]
    unsafe fn sixteen<V: Lanes>(self, x: V, _: V) -> V {
        // SAFETY: as the caller promises.
        unsafe { lanes::capped(x, self.0) }
    }
}

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn silu_lanes<V: Lanes>(gate: &mut [f32], up: &[f32]) {
    // SAFETY: as the caller promises.
    unsafe { pairwise::<V, _>(gate, up, Silu) }
}

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn gelu_tanh_lanes<V: Lanes>(gate: &mut [f32], up: &[f32]) {
    // SAFETY: as the caller promises.
    unsafe { pairwise::<V, _>(gate, up, GeluTanh) }
}

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn gelu_lanes<V: Lanes>(gate: &mut [f32], up: &[f32]) {
    // SAFETY: as the caller promises.
    unsafe { pairwise::<V, _>(gate, up, Gelu) }
}

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn silu_alone<V: Lanes>(x: &mut [f32]) {
    // SAFETY: as the caller promises.
    unsafe { pairwise::<V, _>(x, &[], Alone(Silu)) }
}

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn gelu_tanh_alone<V: Lanes>(x: &mut [f32]) {
    // SAFETY: as the caller promises.
    unsafe { pairwise::<V, _>(x, &[], Alone(GeluTanh)) }
}

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn gelu_alone<V: Lanes>(x: &mut [f32]) {
    // SAFETY: as the caller promises.
    unsafe { pairwise::<V, _>(x, &[], Alone(Gelu)) }
}

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn capped<V: Lanes>(x: &mut [f32], cap: f32) {
    // SAFETY: as the caller promises.
    unsafe { pairwise::<V, _>(x, &[], Cap(cap)) }
}

/// `y` is as long as `x`, or there are no partners.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn pairwise<V: Lanes, P: Pairwise>(x: &mut [f32], y: &[f32], op: P) {
    let ((whole, rest), (partners, last)) = (x.as_chunks_mut::<LANES>(), y.as_chunks::<LANES>());
    let none = [0.0; LANES];
    for (index, x) in whole.iter_mut().enumerate() {
        let y = partners.get(index).unwrap_or(&none);
        // SAFETY: as the caller promises; sixteen numbers each, as the types say.
        unsafe { op.sixteen(V::load(x.as_ptr()), V::load(y.as_ptr())).store(x.as_mut_ptr()) }
    }
    if rest.is_empty() {
        return;
    }
    let (mut a, mut b) = (none, none);
    a[..rest.len()].copy_from_slice(rest);
    b[..last.len()].copy_from_slice(last);
    // SAFETY: as the caller promises; sixteen numbers each, as the types say.
    unsafe { op.sixteen(V::load(a.as_ptr()), V::load(b.as_ptr())).store(a.as_mut_ptr()) }
    rest.copy_from_slice(&a[..rest.len()]);
}

/// `x = cap * tanh(x / cap)`, element by element.
pub fn soft_cap(x: &mut [f32], cap: f32) {
    let isa = Isa::current();
    let cost = x.len() * EXP_COST;
    for_each_chunk(x, CHUNK, cost, |_, x| capped_on(isa, x, cap));
}

/// `x *= factor`, element by element.
pub fn scale(x: &mut [f32], factor: f32) {
    let cost = x.len() / 4;
    for_each_chunk(x, 4 * CHUNK, cost, |_, x| x.iter_mut().for_each(|x| *x *= factor));
}

/// `x += y`, element by element.
pub fn add(x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len(), "terms");
    for_each_chunk(x, CHUNK, y.len() * 4, |index, x| {
        let y = &y[index * CHUNK..][..x.len()];
        x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `on` against `exact`, and against itself on every instruction set.
    fn check(name: &str, tolerance: f64, on: impl Fn(Isa, &mut [f32], &[f32]), exact: impl Fn(f64) -> f64) {
        let gate: Vec<f32> = (0..3003).map(|i| (i as f32 - 1500.0) / 10.0).collect();
        let up: Vec<f32> = (0..3003).map(|i| (i % 7) as f32 - 3.0).collect();
        let run = |isa| {
            let mut y = gate.clone();
            on(isa, &mut y, &up);
            y
        };
        let y = run(Isa::Scalar);
        for i in 0..gate.len() {
            let exact = exact(f64::from(gate[i])) * f64::from(up[i]);
            assert!((f64::from(y[i]) - exact).abs() <= tolerance * exact.abs().max(1.0), "{name} at {}", gate[i]);
        }
        for isa in Isa::available() {
            assert!(run(isa).iter().zip(&y).all(|(a, b)| a.to_bits() == b.to_bits()), "{name}, {isa:?}");
        }
    }

    #[test]
    fn agree_with_double_precision_and_themselves() {
        let gate = |part: fn(Isa, &mut [f32], &[f32])| move |isa, x: &mut [f32], y: &[f32]| gate_on(isa, part, x, y);
        check("silu", 1e-6, gate(silu_on), |v| v / (1.0 + (-v).exp()));
        let inner = |v: f64| (2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v.powi(3));
        check("gelu", 1e-6, gate(gelu_tanh_on), |v| 0.5 * v * (1.0 + inner(v).tanh()));
        // The error function by its series; far out it is one, less 2e-8.
        let erf = |v: f64| {
            if v.abs() > 4.0 {
                return v.signum();
            }
            let (mut term, mut sum) = (v, v);
            for n in 1..200 {
                term *= -v * v / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            sum * 2.0 / std::f64::consts::PI.sqrt()
        };
        let gelu_exact = |v: f64| 0.5 * v * (1.0 + erf(v / std::f64::consts::SQRT_2));
        check("exact gelu", 1e-6, gate(gelu_on), gelu_exact);
        let times = |x: &mut [f32], y: &[f32]| x.iter_mut().zip(y).for_each(|(x, y)| *x *= y);
        let alone = |part: fn(Isa, &mut [f32])| {
            move |isa, x: &mut [f32], y: &[f32]| {
                alone_on(isa, part, x);
                times(x, y);
            }
        };
        check("gelu alone", 1e-6, alone(gelu_alone_on), gelu_exact);
        check("silu alone", 1e-6, alone(silu_alone_on), |v| v / (1.0 + (-v).exp()));
        check("tanh gelu alone", 1e-6, alone(gelu_tanh_alone_on), |v| 0.5 * v * (1.0 + inner(v).tanh()));
        for cap in [1.0, 30.0, 50.0] {
            let capped = |isa, x: &mut [f32], y: &[f32]| {
                capped_on(isa, x, cap);
                times(x, y);
            };
            check("cap", 1e-6, capped, |v| f64::from(cap) * (v / f64::from(cap)).tanh());
        }
    }

    #[test]
    fn the_two_halves_of_the_tangent_meet() {
        let mut near: Vec<f32> = (0..64).map(|i| f32::from_bits(0.625f32.to_bits() - 32 + i)).collect();
        near.extend([-0.625, 0.0, -0.0, 1e-30, f32::INFINITY, f32::NEG_INFINITY]);
        let mut got = near.clone();
        soft_cap(&mut got, 1.0);
        for (x, y) in near.iter().zip(&got) {
            assert!((y - x.tanh()).abs() <= 4.0 * f32::EPSILON * x.tanh().abs(), "{y} at {x}");
        }
        let mut nan = [f32::NAN];
        soft_cap(&mut nan, 3.0);
        assert!(nan[0].is_nan());
    }

    #[test]
    fn scaled_numbers() {
        let mut x: Vec<f32> = (0..100_000).map(|i| i as f32).collect();
        scale(&mut x, 0.3);
        assert!((0..x.len()).all(|i| x[i] == i as f32 * 0.3));
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        let mut gate = [f32::NAN, f32::INFINITY];
        silu_gate(&mut gate, &[1.0, 1.0]);
        assert!(gate[0].is_nan() && gate[1] == f32::INFINITY);
    }

    #[test]
    fn sums_of_many() {
        let mut x: Vec<f32> = (0..700_000).map(|i| i as f32).collect();
        let y: Vec<f32> = (0..700_000).map(|i| (i % 3) as f32).collect();
        add(&mut x, &y);
        assert!((0..x.len()).all(|i| x[i] == i as f32 + (i % 3) as f32));
    }
}
