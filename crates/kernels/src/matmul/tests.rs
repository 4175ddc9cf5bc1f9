//! Every path against the definition, the definition against double precision.

use super::*;
use crate::packed;

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..count).map(|_| next()).collect()
}

/// Rows of `packing` near -0.5 to 0.5 in the dense types, of small integers in the others.
fn packed_weights(packing: Packing, inputs: usize, outputs: usize) -> Vec<u8> {
    let count = inputs * outputs;
    match packing {
        Packing::F32 => numbers(count, 7).iter().flat_map(|x| x.to_le_bytes()).collect(),
        Packing::F16 => numbers(count, 7).iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect(),
        Packing::Bf16 => numbers(count, 7).iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect(),
        // Bytes of small integers: scales stay finite.
        _ => {
            let bytes = packing.row_bytes(inputs).unwrap() * outputs;
            numbers(bytes, 7).iter().map(|x| ((x + 0.5) * 60.0) as u8).collect()
        }
    }
}

fn matmul(x: &[f32], w: &[f32], inputs: usize) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.len() / inputs * (w.len() / inputs)];
    matmul_into(x, w, inputs, &mut y);
    y
}

const SHAPES: [(usize, usize, usize); 8] =
    [(1, 1, 1), (1, 64, 320), (3, 17, 5), (4, 16, 9), (9, 112, 64), (33, 256, 130), (2, 1000, 257), (5, 2816, 7)];

#[test]
fn agrees_with_double_precision() {
    for (rows, inputs, outputs) in SHAPES {
        let (x, w) = (numbers(rows * inputs, 1), numbers(outputs * inputs, 2));
        let y = matmul(&x, &w, inputs);
        for t in 0..rows {
            for n in 0..outputs {
                let exact: f64 = (0..inputs).map(|k| x[t * inputs + k] as f64 * w[n * inputs + k] as f64).sum();
                assert!((y[t * outputs + n] as f64 - exact).abs() < 1e-4, "{rows}x{inputs}x{outputs} at {t},{n}");
            }
        }
    }
}

#[test]
fn every_path_gives_the_bits_of_the_definition() {
    for (packing, numbers_of) in
        [(Packing::F32, Numbers::F32), (Packing::F16, Numbers::F16), (Packing::Bf16, Numbers::Bf16)]
    {
        for (rows, inputs, outputs) in SHAPES {
            let (x, w) = (numbers(rows * inputs, 3), packed_weights(packing, inputs, outputs));
            let row_bytes = packing.row_bytes(inputs).unwrap();
            let expected: Vec<u32> = x
                .chunks(inputs)
                .flat_map(|x| w.chunks(row_bytes).map(move |w| scalar::dot(x, numbers_of, w).to_bits()))
                .collect();
            for isa in Isa::available() {
                let mut y = vec![f32::NAN; rows * outputs];
                matmul_on(isa, &x, packing, &w, inputs, &mut y);
                let y: Vec<u32> = y.iter().map(|y| y.to_bits()).collect();
                assert_eq!(y, expected, "{packing:?} {isa:?} {rows}x{inputs}x{outputs}");
            }
        }
    }
}

#[test]
fn packed_weights_give_the_bits_of_their_numbers() {
    let (inputs, outputs) = (512, 130);
    for packing in Packing::ALL {
        let weight = packed_weights(packing, inputs, outputs);
        let mut plain = vec![0.0; outputs * inputs];
        packed::unpack(packing, &weight, &mut plain);
        assert!(plain.iter().all(|x| x.is_finite()) && plain.iter().any(|&x| x != 0.0), "{packing:?}");
        for isa in Isa::available() {
            let mut unpacked = vec![0.0; outputs * inputs];
            dispatch::unpack_on(isa, packing, &weight, &mut unpacked);
            assert!(unpacked == plain, "{packing:?} on {isa:?}");
        }
        for rows in [1, 2, 5, 32] {
            let x = numbers(rows * inputs, 8);
            let expected = matmul(&x, &plain, inputs);
            let mut got = vec![f32::NAN; rows * outputs];
            matmul_packed_into(&x, packing, &weight, inputs, &mut got);
            let same = got.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same && got.len() == expected.len(), "{packing:?}, {rows} rows");
        }
    }
}

#[test]
fn batched_equals_solo_for_any_number_of_threads() {
    let (inputs, outputs) = (256, 300);
    let (x, w) = (numbers(21 * inputs, 5), numbers(outputs * inputs, 6));
    let solo: Vec<f32> = x.chunks(inputs).flat_map(|row| matmul(row, &w, inputs)).collect();
    for threads in 1..=4 {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let batched = pool.install(|| matmul(&x, &w, inputs));
        assert!(solo.iter().zip(&batched).all(|(a, b)| a.to_bits() == b.to_bits()), "{threads} threads");
    }
}

#[test]
fn no_rows_and_no_outputs_are_empty_products() {
    assert!(matmul(&[], &[1.0; 32], 16).is_empty() && matmul(&[1.0; 32], &[], 16).is_empty());
}
