//! Rotary position embedding in the half-split form of the Hugging Face checkpoints: dimension `i` of a head is rotated
//! together with dimension `i + head_dim / 2`, not with its neighbour.
#![allow(unsafe_code)] // lanes

use crate::isa::Isa;
use crate::lanes::{LANES, Lanes, on_lanes};
use crate::parallel::for_each_chunk;

/// Rotates the first `dims` dimensions of each head of `x` (`[T, heads, head_dim]`) in place; `cos` and `sin` are
/// `[T, dims / 2]`. The dimensions behind stay as they are.
pub fn rotate(x: &mut [f32], cos: &[f32], sin: &[f32], dims: usize, head_dim: usize) {
    rotate_on(Isa::current(), x, cos, sin, dims, head_dim);
}

/// [`rotate`] on this thread, for who has dealt out the rows.
pub(super) fn rotate_here(isa: Isa, x: &mut [f32], (cos, sin): (&[f32], &[f32]), dims: usize, head_dim: usize) {
    let half = dims / 2;
    let tokens = cos.len() / half;
    let width = x.len().checked_div(tokens).unwrap_or(0).max(1);
    for ((row, cos), sin) in x.chunks_exact_mut(width).zip(cos.chunks_exact(half)).zip(sin.chunks_exact(half)) {
        for head in row.chunks_exact_mut(head_dim) {
            let (first, second) = head[..dims].split_at_mut(half);
            pairs_on(isa, first, second, cos, sin);
        }
    }
}

fn rotate_on(isa: Isa, x: &mut [f32], cos: &[f32], sin: &[f32], dims: usize, head_dim: usize) {
    let half = dims / 2;
    assert!(half > 0 && dims.is_multiple_of(2) && dims <= head_dim && cos.len().is_multiple_of(half), "odd head");
    assert_eq!(cos.len(), sin.len(), "angles");
    let tokens = cos.len() / half;
    if tokens == 0 {
        return;
    }
    assert!(x.len().is_multiple_of(tokens * head_dim), "ragged heads");
    let (width, cost) = (x.len() / tokens, x.len() * 8);
    for_each_chunk(x, width, cost, |token, row| {
        let angles = token * half..(token + 1) * half;
        rotate_here(isa, row, (&cos[angles.clone()], &sin[angles]), dims, head_dim);
    });
}

on_lanes!(fn pairs_on(first: &mut [f32], second: &mut [f32], cos: &[f32], sin: &[f32]) = pairs);

/// Rotates `(first[i], second[i])`; all four are of one length. Products are rounded before they are added.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn pairs<V: Lanes>(first: &mut [f32], second: &mut [f32], cos: &[f32], sin: &[f32]) {
    let whole = first.len() / LANES * LANES;
    assert!(second.len() == first.len() && cos.len() == first.len() && sin.len() == first.len(), "halves");
    for i in (0..whole).step_by(LANES) {
        // SAFETY: as the caller promises; all four have sixteen numbers from `i` on.
        unsafe {
            let (a, b) = (first.as_mut_ptr().add(i), second.as_mut_ptr().add(i));
            let (cos, sin) = (V::load(cos.as_ptr().add(i)), V::load(sin.as_ptr().add(i)));
            let (x, y) = (V::load(a), V::load(b));
            x.mul(cos).sub(y.mul(sin)).store(a);
            y.mul(cos).add(x.mul(sin)).store(b);
        }
    }
    for i in whole..first.len() {
        let (a, b) = (first[i], second[i]);
        first[i] = a * cos[i] - b * sin[i];
        second[i] = b * cos[i] + a * sin[i];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_gives_the_same_bits() {
        for head_dim in [8, 32, 80, 128] {
            let numbers = |count: usize, step: f32| (0..count).map(|i| (i as f32 * step).sin()).collect::<Vec<f32>>();
            let (cos, sin) = (numbers(3 * head_dim / 2, 0.7), numbers(3 * head_dim / 2, 1.3));
            let on = |isa| {
                let mut x = numbers(3 * 2 * head_dim, 0.37);
                rotate_on(isa, &mut x, &cos, &sin, head_dim, head_dim);
                x
            };
            assert!(Isa::available().into_iter().all(|isa| on(isa) == on(Isa::Scalar)), "{head_dim}");
        }
    }

    #[test]
    fn rotates_each_pair_by_its_angle() {
        // Two tokens, two heads of four; the pairs are (0, 2) and (1, 3).
        let angles = [0.3f32, -1.2, 2.0, 0.0];
        let (cos, sin) = (angles.map(f32::cos), angles.map(f32::sin));
        let x: Vec<f32> = (0..16).map(|i| (i as f32) * 0.25 - 1.0).collect();
        let mut y = x.clone();
        rotate(&mut y, &cos, &sin, 4, 4);
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

    #[test]
    fn dimensions_behind_the_rotated_ones_stay() {
        let x: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let mut whole = vec![0.0, 1.0, 2.0, 3.0, 6.0, 7.0, 8.0, 9.0];
        let (cos, sin) = ([0.5, 0.25], [0.75, -0.5]);
        rotate(&mut whole, &cos, &sin, 4, 4);
        let mut part = x.clone();
        rotate(&mut part, &cos, &sin, 4, 6);
        assert_eq!(
            (&part[..4], &part[4..6], &part[6..10], &part[10..]),
            (&whole[..4], &x[4..6], &whole[4..], &x[10..])
        );
    }
}
