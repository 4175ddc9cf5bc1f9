//! Rotary position embedding in the half-split form of the Hugging Face checkpoints: dimension `i` of a head is rotated
//! together with dimension `i + head_dim / 2`, not with its neighbour.

/// Rotates each head of `x` (`[T, heads, head_dim]`) in place; `cos` and `sin` are `[T, head_dim / 2]`.
pub fn rotate(x: &mut [f32], cos: &[f32], sin: &[f32], head_dim: usize) {
    let half = head_dim / 2;
    assert!(half > 0 && head_dim.is_multiple_of(2) && cos.len().is_multiple_of(half), "odd head");
    assert_eq!(cos.len(), sin.len(), "angles");
    let tokens = cos.len() / half;
    if tokens == 0 {
        return;
    }
    assert!(x.len().is_multiple_of(tokens * head_dim), "ragged heads");
    let width = x.len() / tokens;
    for ((row, cos), sin) in x.chunks_exact_mut(width).zip(cos.chunks_exact(half)).zip(sin.chunks_exact(half)) {
        for head in row.chunks_exact_mut(head_dim) {
            let (first, second) = head.split_at_mut(half);
            for i in 0..half {
                let (a, b) = (first[i], second[i]);
                first[i] = a * cos[i] - b * sin[i];
                second[i] = b * cos[i] + a * sin[i];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotates_each_pair_by_its_angle() {
        // Two tokens, two heads of four; the pairs are (0, 2) and (1, 3).
        let angles = [0.3f32, -1.2, 2.0, 0.0];
        let (cos, sin) = (angles.map(f32::cos), angles.map(f32::sin));
        let x: Vec<f32> = (0..16).map(|i| (i as f32) * 0.25 - 1.0).collect();
        let mut y = x.clone();
        rotate(&mut y, &cos, &sin, 4);
        for token in 0..2 {
            for head in 0..2 {
                for i in 0..2 {
                    let at = token * 8 + head * 4 + i;
                    let (length, angle) = (x[at].hypot(x[at + 2]), x[at + 2].atan2(x[at]) + angles[token * 2 + i]);
                    assert!((y[at] - length * angle.cos()).abs() < 1e-5);
                    assert!((y[at + 2] - length * angle.sin()).abs() < 1e-5);
                }
            }
        }
    }
}
