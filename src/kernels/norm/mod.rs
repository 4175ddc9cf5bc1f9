//! Root-mean-square normalisation (Zhang and Sennrich, 2019).

use super::dot::dot;
use super::parallel::for_each_chunk;

/// Normalises each consecutive group of `weight.len()` values of `x` in place: `x / sqrt(mean(x²) + eps) * weight`.
///
/// With a weight as wide as the row this is the usual norm of hidden states, with one as wide as a head the per-head
/// norm of queries and keys.
pub fn rms_norm(x: &mut [f32], weight: &[f32], eps: f32) {
    let width = weight.len();
    assert!(width > 0 && x.len().is_multiple_of(width), "ragged groups");
    let cost = x.len() * 2;
    for_each_chunk(x, width, cost, |_, group| {
        let mean_square = dot(group, group) / width as f32;
        let scale = 1.0 / (mean_square + eps).sqrt();
        for (value, weight) in group.iter_mut().zip(weight) {
            *value = *value * scale * weight;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_double_precision_group_by_group() {
        let weight = [0.5f32, 1.0, -2.0, 3.0, 1.5];
        let x: Vec<f32> = (0..15).map(|i| (i * i % 11) as f32 - 4.0).collect();
        let mut y = x.clone();
        rms_norm(&mut y, &weight, 1e-5);
        for (x, y) in x.chunks(5).zip(y.chunks(5)) {
            let mean = x.iter().map(|&v| v as f64 * v as f64).sum::<f64>() / 5.0;
            for i in 0..5 {
                let exact = x[i] as f64 / (mean + 1e-5).sqrt() * weight[i] as f64;
                assert!((y[i] as f64 - exact).abs() < 1e-5);
            }
        }
    }
}
