//! Gated activations: the middle of an MLP.

use super::parallel::for_each_chunk;

/// The cost of one exponential, in multiplications.
const EXP_COST: usize = 16;

/// `gate = silu(gate) * up`, element by element; `silu(v) = v / (1 + e^-v)`.
pub fn silu_gate(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "gate and up");
    const CHUNK: usize = 1024;
    let cost = gate.len() * EXP_COST;
    for_each_chunk(gate, CHUNK, cost, |index, gate| {
        for (gate, up) in gate.iter_mut().zip(&up[index * CHUNK..]) {
            *gate = *gate / (1.0 + (-*gate).exp()) * up;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_double_precision() {
        let gate: Vec<f32> = (0..3000).map(|i| (i as f32 - 1500.0) / 10.0).collect();
        let up: Vec<f32> = (0..3000).map(|i| (i % 7) as f32 - 3.0).collect();
        let mut y = gate.clone();
        silu_gate(&mut y, &up);
        for i in 0..gate.len() {
            let v = gate[i] as f64;
            let exact = v / (1.0 + (-v).exp()) * up[i] as f64;
            assert!((y[i] as f64 - exact).abs() <= 1e-6 * exact.abs().max(1.0), "at {v}");
        }
    }
}
