//! Root-mean-square normalisation (Zhang and Sennrich, 2019).
#![allow(unsafe_code)] // lanes; rows dealt to several threads

use crate::activation;
use crate::dot::dot;
use crate::isa::Isa;
use crate::lanes::{LANES, Lanes, on_lanes};
use crate::parallel::{Shared, for_each_chunk};

/// Normalises each consecutive group of `weight.len()` values of `x` into `out`: `x / sqrt(mean(x²) + eps) * weight`.
///
/// With a weight as wide as the row this is the usual norm of hidden states, with one as wide as a head the per-head
/// norm of queries and keys.
///
/// # Panics
/// When `x` is not of whole groups, or `out` not as long.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let width = weight.len();
    assert!(width > 0 && x.len().is_multiple_of(width) && out.len() == x.len(), "ragged groups");
    // Several groups together where they are as small as heads.
    let chunk = width * 1024usize.div_ceil(width);
    let isa = Isa::current();
    for_each_chunk(out, chunk, x.len() * 16, |index, out| {
        let x = &x[index * chunk..][..out.len()];
        for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            normalise(isa, x, weight, eps, out);
        }
    });
}

/// `x` becomes `x + y`, and `out` what [`rms_norm`] makes of that: a row is still in the first cache when it is read again.
///
/// # Panics
/// When `x` is not of whole rows, or `y` or `out` not as long.
pub fn add_rms_norm(x: &mut [f32], y: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let (width, numbers) = (weight.len(), x.len());
    assert!(width > 0 && numbers.is_multiple_of(width) && y.len() == numbers && out.len() == numbers, "ragged rows");
    let (isa, x) = (Isa::current(), Shared::new(x));
    for_each_chunk(out, width, numbers * 16, |index, out| {
        let row = index * width..(index + 1) * width;
        // SAFETY: each row is dealt once, and rows do not overlap.
        let x = unsafe { x.part(row.clone()) };
        activation::add(x, &y[row]);
        normalise(isa, x, weight, eps, out);
    });
}

/// One group.
fn normalise(isa: Isa, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let mean_square = dot(x, x) / x.len() as f32;
    scaled_on(isa, x, 1.0 / (mean_square + eps).sqrt(), weight, out);
}

/// Normalises each row of `weight.len()` values of `x` into `out`: `(x - mean) / sqrt(variance + eps) * weight + bias`
/// (Ba, Kiros and Hinton, 2016).
///
/// # Panics
/// When `x` is not of whole rows, or `bias` or `out` not as long as they should be.
pub fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, out: &mut [f32]) {
    let width = weight.len();
    assert!(width > 0 && x.len().is_multiple_of(width) && out.len() == x.len(), "ragged rows");
    assert_eq!(bias.len(), width, "a bias as wide as a row");
    let isa = Isa::current();
    for_each_chunk(out, width, x.len() * 24, |index, out| {
        let x = &x[index * width..][..width];
        // In double precision: a row is short, and what is common to its values may be far larger than they differ.
        let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / width as f64;
        for (out, x) in out.iter_mut().zip(x) {
            *out = (f64::from(*x) - mean) as f32;
        }
        let variance = dot(out, out) / width as f32;
        shifted_on(isa, out, 1.0 / (variance + eps).sqrt(), weight, bias);
    });
}

on_lanes!(fn shifted_on(x: &mut [f32], scale: f32, weight: &[f32], bias: &[f32]) = shifted);
on_lanes!(fn scaled_on(x: &[f32], scale: f32, weight: &[f32], out: &mut [f32]) = scaled);

/// `out = x * scale * weight`
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn scaled<V: Lanes>(x: &[f32], scale: f32, weight: &[f32], out: &mut [f32]) {
    let ((x, x_rest), (weight, weight_rest)) = (x.as_chunks::<LANES>(), weight.as_chunks::<LANES>());
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    for ((x, weight), out) in x.iter().zip(weight).zip(out) {
        // SAFETY: as the caller promises; sixteen numbers each, as the types say.
        unsafe {
            V::load(x.as_ptr()).mul(V::splat(scale)).mul(V::load(weight.as_ptr())).store(out.as_mut_ptr());
        }
    }
    for ((x, weight), out) in x_rest.iter().zip(weight_rest).zip(out_rest) {
        *out = x * scale * weight;
    }
}

/// `x = x * scale * weight + bias`, rounded once after the last product.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn shifted<V: Lanes>(x: &mut [f32], scale: f32, weight: &[f32], bias: &[f32]) {
    let (x, x_rest) = x.as_chunks_mut::<LANES>();
    let ((weight, weight_rest), (bias, bias_rest)) = (weight.as_chunks::<LANES>(), bias.as_chunks::<LANES>());
    for ((x, weight), bias) in x.iter_mut().zip(weight).zip(bias) {
        // SAFETY: as the caller promises; sixteen numbers each, as the types say.
        unsafe {
            let scaled = V::load(x.as_ptr()).mul(V::splat(scale));
            scaled.fma(V::load(weight.as_ptr()), V::load(bias.as_ptr())).store(x.as_mut_ptr());
        }
    }
    for ((x, weight), bias) in x_rest.iter_mut().zip(weight_rest).zip(bias_rest) {
        *x = (*x * scale).mul_add(*weight, *bias);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_and_its_norm_are_those_of_two_passes() {
        for (rows, width) in [(1usize, 5usize), (3, 48), (70, 256)] {
            let numbers = |step: f32| (0..rows * width).map(|i| (i as f32 * step).sin()).collect::<Vec<f32>>();
            let (mut x, y, weight) = (numbers(0.37), numbers(0.71), &numbers(1.3)[..width]);
            let (mut sum, mut expected, mut normed) = (x.clone(), vec![0.0; x.len()], vec![0.0; x.len()]);
            activation::add(&mut sum, &y);
            rms_norm(&sum, weight, 1e-6, &mut expected);
            add_rms_norm(&mut x, &y, weight, 1e-6, &mut normed);
            assert!(x == sum && normed == expected, "{rows} rows of {width}");
        }
    }

    #[test]
    fn layer_norms_agree_with_double_precision_on_every_path() {
        for width in [1usize, 5, 16, 37, 384] {
            let part = |step: usize| (0..width).map(|i| (i * step % 7) as f32 - 2.5).collect::<Vec<f32>>();
            let (weight, bias) = (part(3), part(5));
            // What the values have in common is large.
            let x: Vec<f32> = (0..3 * width).map(|i| 100.0 + (i * i % 11) as f32 * 0.25).collect();
            let mut y = vec![f32::NAN; x.len()];
            layer_norm(&x, &weight, &bias, 1e-5, &mut y);
            for (x, y) in x.chunks(width).zip(y.chunks(width)) {
                let mean = x.iter().map(|&v| f64::from(v)).sum::<f64>() / width as f64;
                let variance = x.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / width as f64;
                for i in 0..width {
                    let unit = (f64::from(x[i]) - mean) / (variance + 1e-5).sqrt();
                    let exact = unit * f64::from(weight[i]) + f64::from(bias[i]);
                    assert!((f64::from(y[i]) - exact).abs() < 2e-5, "{width}: {} for {exact}", y[i]);
                }
            }
            let on = |isa| {
                let mut y = x[..width].to_vec();
                shifted_on(isa, &mut y, 0.731, &weight, &bias);
                y
            };
            assert!(Isa::available().into_iter().all(|isa| on(isa) == on(Isa::Scalar)), "{width}");
        }
    }

    #[test]
    fn agrees_with_double_precision_group_by_group() {
        for width in [5usize, 16, 37, 128] {
            let weight: Vec<f32> = (0..width).map(|i| (i % 5) as f32 - 1.5).collect();
            let x: Vec<f32> = (0..3 * width).map(|i| (i * i % 11) as f32 - 4.0).collect();
            let mut y = vec![f32::NAN; x.len()];
            rms_norm(&x, &weight, 1e-5, &mut y);
            for (x, y) in x.chunks(width).zip(y.chunks(width)) {
                let mean = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / width as f64;
                for i in 0..width {
                    let exact = f64::from(x[i]) / (mean + 1e-5).sqrt() * f64::from(weight[i]);
                    assert!((f64::from(y[i]) - exact).abs() < 1e-5);
                }
            }
        }
    }

    #[test]
    fn every_path_gives_the_same_bits() {
        let x: Vec<f32> = (0..77).map(|i| (i as f32 * 0.37).sin()).collect();
        let weight: Vec<f32> = (0..77).map(|i| (i as f32 * 0.11).cos()).collect();
        let on = |isa| {
            let mut y = vec![0.0; 77];
            scaled_on(isa, &x, 0.731, &weight, &mut y);
            y
        };
        assert!(Isa::available().into_iter().all(|isa| on(isa) == on(Isa::Scalar)));
    }
}
