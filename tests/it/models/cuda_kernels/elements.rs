//! Norms, rotations and gates.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::device::{Argument, Array, Device};
use super::kind::{KINDS, Kind};

fn numbers(kind: Kind, count: usize, seed: u64) -> Vec<f32> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..count).map(|_| kind.rounded(random.random_range(-3.0..3.0))).collect()
}

/// Within one rounding to the type, and some of f32's.
fn check(device: &mut Device, array: Array, kind: Kind, expected: &[f64], what: &str) {
    let found = kind.numbers(&device.read(array));
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (&found, expected)) in found.iter().zip(expected).enumerate() {
        let limit = (kind.precision() + 4e-6) * expected.abs().max(0.5);
        assert!((f64::from(found) - expected).abs() <= limit, "{what} {kind:?} at {index}: {found}, not {expected}");
    }
}

#[test]
fn rms_norms_agree_with_the_definition() {
    let Some(mut device) = Device::start() else { return };
    for kind in KINDS {
        for (groups, width) in [(3, 7), (9, 64), (17, 80), (1, 1024), (2, 1025), (2, 1536), (3, 4096)] {
            for residual in [false, true] {
                norm(&mut device, kind, groups, width, residual);
            }
        }
    }
}

fn norm(device: &mut Device, kind: Kind, groups: usize, width: usize, residual: bool) {
    device.clear();
    let (x, more, weight) =
        (numbers(kind, groups * width, 1), numbers(kind, groups * width, 2), numbers(kind, width, 3));
    let sum: Vec<f32> = match residual {
        true => x.iter().zip(&more).map(|(x, y)| kind.rounded(x + y)).collect(),
        false => x.clone(),
    };
    let of = |group: &[f32]| {
        let mean = group.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / width as f64;
        let factor = 1.0 / (mean + 1e-5).sqrt();
        group.iter().zip(&weight).map(|(&x, &w)| f64::from(x) * factor * f64::from(w)).collect::<Vec<f64>>()
    };
    let expected: Vec<f64> = sum.chunks(width).flat_map(of).collect();
    let x = device.numbers(kind, &x);
    let weight = device.numbers(kind, &weight);
    // The sum in the place of the residual, and without one the norm in that of its input.
    let more = device.numbers(kind, &more);
    let place = if residual { Argument::Array(more) } else { Argument::Null };
    let out = if residual { device.numbers(kind, &vec![f32::NAN; groups * width]) } else { x };
    let mut arguments = vec![Argument::Array(x), place, Argument::Array(weight), Argument::Array(out), place];
    arguments.extend([Argument::U32(groups as u32), Argument::U32(width as u32), Argument::F32(1e-5)]);
    let blocks = if width <= 1024 { groups.div_ceil(8) } else { groups };
    device.launch(&format!("rms_norm_{}", kind.name()), [blocks, 1, 1], 256, &arguments);
    check(device, out, kind, &expected, &format!("norm of {groups} x {width}, residual {residual}"));
    if residual {
        assert!(device.read(more) == kind.bytes(&sum), "the sum of {groups} x {width}");
    }
}

#[test]
fn rotations_agree_with_the_definition() {
    let Some(mut device) = Device::start() else { return };
    for kind in KINDS {
        for (rows, heads, head_dim, dims) in [(1, 1, 6, 2), (3, 5, 80, 80), (2, 3, 40, 20), (2, 9, 128, 128)] {
            device.clear();
            let half = dims / 2;
            let x = numbers(kind, rows * heads * head_dim, 4);
            let (cos, sin) = (numbers(Kind::F32, rows * half, 5), numbers(Kind::F32, rows * half, 6));
            let turned = |index: usize| {
                let (row, d) = (index / (heads * head_dim), index % head_dim);
                let at = |index: usize| f64::from(x[index]);
                let (c, s) = (|i: usize| f64::from(cos[row * half + i]), |i: usize| f64::from(sin[row * half + i]));
                match d {
                    d if d < half => at(index) * c(d) - at(index + half) * s(d),
                    d if d < dims => at(index) * c(d - half) + at(index - half) * s(d - half),
                    _ => at(index),
                }
            };
            let expected: Vec<f64> = (0..x.len()).map(turned).collect();
            let array = device.numbers(kind, &x);
            let [cos, sin] = [&cos, &sin].map(|angles| device.numbers(Kind::F32, angles));
            let mut arguments = [array, cos, sin].map(Argument::Array).to_vec();
            arguments.extend([heads, head_dim, dims].map(|number| Argument::U32(number as u32)));
            let grid = [rows, (heads * half).div_ceil(256), 1];
            device.launch(&format!("rope_{}", kind.name()), grid, 256, &arguments);
            check(&mut device, array, kind, &expected, &format!("rope of {rows} x {heads} x {head_dim}, {dims}"));
        }
    }
}

#[test]
fn gates_agree_with_the_definition() {
    let Some(mut device) = Device::start() else { return };
    for kind in KINDS {
        for (activation, count, gated) in [(0, 1, true), (1, 4099, true), (2, 2048, false), (0, 20_007, false)] {
            device.clear();
            let (gate, up) = (numbers(kind, count, 7), numbers(kind, count, 8));
            let factor = |index: usize| if gated { f64::from(up[index]) } else { 1.0 };
            let of = |(index, &x): (usize, &f32)| activated(f64::from(x), activation) * factor(index);
            let expected: Vec<f64> = gate.iter().enumerate().map(of).collect();
            let [gate, up] = [&gate, &up].map(|numbers| device.numbers(kind, numbers));
            let up = if gated { Argument::Array(up) } else { Argument::Null };
            let arguments = [Argument::Array(gate), up, Argument::Array(gate)];
            let arguments = [&arguments[..], &[Argument::U64(count as u64), Argument::U32(activation)]].concat();
            // Fewer blocks than there is work for: threads stride.
            device.launch(&format!("gate_{}", kind.name()), [2, 1, 1], 256, &arguments);
            check(&mut device, gate, kind, &expected, &format!("activation {activation} of {count}"));
        }
    }
}

fn activated(x: f64, activation: u32) -> f64 {
    match activation {
        0 => x / (1.0 + (-x).exp()),
        1 => x * normal_cdf(x),
        _ => 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()),
    }
}

/// By Simpson's rule from the density, as Rust has no erf.
fn normal_cdf(x: f64) -> f64 {
    let density = |t: f64| (-t * t / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let steps = 200;
    let width = x / f64::from(steps);
    let weight = |i: i32| if i == 0 || i == steps { 1.0 } else { 2.0 + 2.0 * f64::from(i % 2) };
    0.5 + (0..=steps).map(|i| weight(i) * density(f64::from(i) * width)).sum::<f64>() * width / 3.0
}
