//! Gated activations: the middle of an MLP.
#![allow(unsafe_code)] // lanes

use super::isa::Isa;
use super::lanes::{self, LANES, Lanes, on_lanes};
use super::parallel::for_each_chunk;

/// The cost of one exponential, in multiplications.
const EXP_COST: usize = 2;

/// `gate = silu(gate) * up`, element by element; `silu(v) = v / (1 + e^-v)`.
pub fn silu_gate(gate: &mut [f32], up: &[f32]) {
    silu_gate_on(Isa::current(), gate, up);
}

fn silu_gate_on(isa: Isa, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "gate and up");
    const CHUNK: usize = 4096;
    let cost = gate.len() * EXP_COST;
    for_each_chunk(gate, CHUNK, cost, |index, gate| {
        let up = &up[index * CHUNK..][..gate.len()];
        gated_on(isa, gate, up);
    });
}

on_lanes!(fn gated_on(gate: &mut [f32], up: &[f32]) = gated);

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn gated<V: Lanes>(gate: &mut [f32], up: &[f32]) {
    let (gates, gate_rest) = gate.as_chunks_mut::<LANES>();
    let (ups, up_rest) = up.as_chunks::<LANES>();
    for (gate, up) in gates.iter_mut().zip(ups) {
        // SAFETY: as the caller promises.
        unsafe { sixteen::<V>(gate, up) }
    }
    if !gate_rest.is_empty() {
        let (mut gate, mut up) = ([0.0; LANES], [0.0; LANES]);
        gate[..gate_rest.len()].copy_from_slice(gate_rest);
        up[..gate_rest.len()].copy_from_slice(up_rest);
        // SAFETY: as the caller promises.
        unsafe { sixteen::<V>(&mut gate, &up) }
        gate_rest.copy_from_slice(&gate[..gate_rest.len()]);
    }
}

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn sixteen<V: Lanes>(gate: &mut [f32; LANES], up: &[f32; LANES]) {
    // SAFETY: as the caller promises; sixteen numbers each, as the types say.
    unsafe {
        let g = V::load(gate.as_ptr());
        let below = V::splat(1.0).add(lanes::exp(V::splat(0.0).sub(g)));
        g.div(below).mul(V::load(up.as_ptr())).store(gate.as_mut_ptr());
    }
}

/// `x += y`, element by element.
pub fn add(x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len(), "terms");
    const CHUNK: usize = 16384;
    for_each_chunk(x, CHUNK, y.len() / 4, |index, x| {
        let y = &y[index * CHUNK..][..x.len()];
        x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_double_precision_and_itself() {
        let gate: Vec<f32> = (0..3003).map(|i| (i as f32 - 1500.0) / 10.0).collect();
        let up: Vec<f32> = (0..3003).map(|i| (i % 7) as f32 - 3.0).collect();
        let on = |isa| {
            let mut y = gate.clone();
            silu_gate_on(isa, &mut y, &up);
            y
        };
        let y = on(Isa::Scalar);
        for i in 0..gate.len() {
            let v = f64::from(gate[i]);
            let exact = v / (1.0 + (-v).exp()) * f64::from(up[i]);
            assert!((f64::from(y[i]) - exact).abs() <= 1e-6 * exact.abs().max(1.0), "at {v}");
        }
        for isa in Isa::available() {
            assert!(on(isa).iter().zip(&y).all(|(a, b)| a.to_bits() == b.to_bits()), "{isa:?}");
        }
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
