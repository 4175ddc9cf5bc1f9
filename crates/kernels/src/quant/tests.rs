//! Every path against the definition, the definition against double precision, panels against the file's own numbers.

use super::*;
use crate::packed::{self, Packing};

const PACKINGS: [Packing; 8] = [
    Packing::Q4_0,
    Packing::Q4_1,
    Packing::Q5_0,
    Packing::Q5_1,
    Packing::Q8_0,
    Packing::Q4K,
    Packing::Q5K,
    Packing::Q6K,
];

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    /// From -1 to 1.
    fn number(&mut self) -> f32 {
        self.next() as f32 / (1u64 << 30) as f32 - 1.0
    }

    fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.number()).collect()
    }

    /// Arbitrary codes and sub-scales under sane `f16` scales: a block's first (Q6_K: last) two or four bytes.
    fn weights(&mut self, packing: Packing, outputs: usize, inputs: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..packing.row_bytes(inputs).unwrap() * outputs).map(|_| self.next() as u8).collect();
        for block in bytes.chunks_mut(packing.block().1) {
            let (d, m) = (half::f16::from_f32(0.01 * self.number()), half::f16::from_f32(0.01 * self.number()));
            let affine = matches!(packing, Packing::Q4_1 | Packing::Q5_1 | Packing::Q4K | Packing::Q5K);
            let at = if packing == Packing::Q6K { 208 } else { 0 };
            block[at..at + 2].copy_from_slice(&d.to_le_bytes());
            if affine {
                block[2..4].copy_from_slice(&m.to_le_bytes());
            }
        }
        bytes
    }
}

fn repack(packing: Packing, bytes: &[u8], inputs: usize) -> Panels {
    Panels::repack(packing, bytes, inputs, |_| {}).unwrap()
}

fn product(isa: Isa, x: &[f32], panels: &Panels) -> Vec<f32> {
    let mut rows = QuantisedRows::default();
    rows.round_on(isa, x, panels.inputs(), panels.rounding_group());
    let mut y = vec![f32::NAN; rows.count() * panels.outputs()];
    matmul_on(isa, &rows, panels, &mut y);
    y
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// Widths of whole blocks up to 2816.
fn widths(packing: Packing) -> &'static [usize] {
    if packing.block().0 == 32 { &[32, 64, 96, 704, 2816] } else { &[256, 512, 2816] }
}

#[test]
fn rows_come_back_exactly() {
    let mut random = Random(1);
    for packing in PACKINGS {
        for &inputs in widths(packing) {
            for outputs in [1, 15, 16, 17, 40] {
                let bytes = random.weights(packing, outputs, inputs);
                let mut expected = vec![0.0; outputs * inputs];
                packed::unpack(packing, &bytes, &mut expected);
                let panels = repack(packing, &bytes, inputs);
                let mut row = vec![f32::NAN; inputs];
                for (n, expected) in expected.chunks(inputs).enumerate() {
                    panels.unpack_row(n, &mut row);
                    assert!(row == expected, "{packing:?} {outputs}x{inputs}, row {n}");
                }
            }
        }
    }
}

/// Every path gives the bits of the definition.
fn compare_paths(random: &mut Random, packing: Packing, rows: usize, inputs: usize, outputs: usize) {
    let panels = repack(packing, &random.weights(packing, outputs, inputs), inputs);
    let x = random.numbers(rows * inputs);
    let expected = product(Isa::Scalar, &x, &panels);
    for isa in Isa::available() {
        let y = product(isa, &x, &panels);
        assert!(same_bits(&y, &expected), "{isa:?} {packing:?} {rows}x{inputs}x{outputs}");
    }
}

#[test]
fn every_path_gives_the_bits_of_the_definition() {
    let mut random = Random(2);
    for packing in PACKINGS {
        for &inputs in widths(packing) {
            for (rows, outputs) in [(1, 1), (1, 100), (2, 33), (3, 16), (8, 47), (9, 65), (14, 32), (33, 17), (40, 50)]
            {
                compare_paths(&mut random, packing, rows, inputs, outputs);
            }
        }
    }
}

/// More rows than the caches hold, and panels that are taken together, with some left over.
#[test]
fn many_rows_give_the_bits_of_the_definition() {
    let mut random = Random(7);
    for packing in [Packing::Q8_0, Packing::Q4K, Packing::Q5K, Packing::Q6K] {
        for (rows, inputs, outputs) in [(65, 256, 100), (71, 512, 70), (230, 2816, 90)] {
            compare_paths(&mut random, packing, rows, inputs, outputs);
        }
    }
}

/// The largest codes and sums there are: no path may saturate.
#[test]
fn extremes_are_exact() {
    for packing in PACKINGS {
        for byte in [0x00, 0xff, 0x7f, 0x80] {
            let inputs = 256;
            let mut bytes = vec![byte; packing.row_bytes(inputs).unwrap() * 16];
            for block in bytes.chunks_mut(packing.block().1) {
                let at = if packing == Packing::Q6K { 208 } else { 0 };
                block[at..at + 2].copy_from_slice(&half::f16::ONE.to_le_bytes());
                if matches!(packing, Packing::Q4_1 | Packing::Q5_1 | Packing::Q4K | Packing::Q5K) {
                    block[2..4].copy_from_slice(&half::f16::ONE.to_le_bytes());
                }
            }
            let panels = repack(packing, &bytes, inputs);
            let mut weights = vec![0.0; inputs];
            panels.unpack_row(3, &mut weights);
            for sign in [1.0f32, -1.0] {
                let x = vec![sign; 9 * inputs]; // more rows than a block of AVX-512
                let exact: f64 = weights.iter().map(|&w| f64::from(w) * f64::from(sign)).sum();
                for isa in Isa::available() {
                    let y = product(isa, &x, &panels);
                    let close = |y: f32| (f64::from(y) - exact).abs() <= 1e-4 * exact.abs().max(1.0);
                    assert!(y.iter().all(|&y| close(y)), "{isa:?} {packing:?} {byte:02x}: {} for {exact}", y[0]);
                }
            }
        }
    }
}

/// Rounding to 8 bits costs at most half a step of each group's scale per weight; all else is float rounding.
#[test]
fn errors_stay_below_their_bound() {
    let mut random = Random(3);
    for packing in PACKINGS {
        let (rows, inputs, outputs) = (3, 512, 20);
        let panels = repack(packing, &random.weights(packing, outputs, inputs), inputs);
        let x = random.numbers(rows * inputs);
        let y = product(Isa::current(), &x, &panels);
        let mut w = vec![0.0; inputs];
        for n in 0..outputs {
            panels.unpack_row(n, &mut w);
            for (t, x) in x.chunks(inputs).enumerate() {
                let exact: f64 = x.iter().zip(&w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
                let size: f64 = x.iter().zip(&w).map(|(x, w)| f64::from(x * w).abs()).sum();
                let bound: f64 = x
                    .chunks(32)
                    .zip(w.chunks(32))
                    .map(|(x, w)| {
                        let largest = x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
                        let weights: f64 = w.iter().map(|w| f64::from(w.abs())).sum();
                        f64::from(largest) / 254.0 * weights
                    })
                    .sum();
                let error = (f64::from(y[t * outputs + n]) - exact).abs();
                assert!(error <= bound * 1.01 + size * 1e-5, "{packing:?} {t},{n}: {error:e} above {bound:e}");
            }
        }
    }
}

#[test]
fn batched_equals_solo_for_any_number_of_threads() {
    let mut random = Random(4);
    for packing in PACKINGS {
        let (inputs, outputs) = (512, 300);
        let panels = repack(packing, &random.weights(packing, outputs, inputs), inputs);
        let x = random.numbers(37 * inputs);
        for isa in Isa::available() {
            let solo: Vec<f32> = x.chunks(inputs).flat_map(|row| product(isa, row, &panels)).collect();
            for threads in 1..=4 {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                for rows in [1, 2, 7, 8, 9, 16, 37] {
                    let batched = pool.install(|| product(isa, &x[..rows * inputs], &panels));
                    assert!(same_bits(&batched, &solo[..rows * outputs]), "{packing:?} {isa:?} {threads} {rows}");
                }
            }
        }
    }
}

#[test]
fn what_is_not_finite_spoils_its_row_alone() {
    let mut random = Random(5);
    for packing in PACKINGS {
        let (inputs, outputs) = (256, 20);
        let panels = repack(packing, &random.weights(packing, outputs, inputs), inputs);
        let clean = random.numbers(40 * inputs);
        for isa in Isa::available() {
            let expected = product(isa, &clean, &panels);
            for (rows, odd) in [(1, f32::NAN), (5, f32::INFINITY), (40, f32::NEG_INFINITY)] {
                let mut x = clean[..rows * inputs].to_vec();
                let spoiled = rows / 2;
                x[spoiled * inputs + 77] = odd;
                for (t, y) in product(isa, &x, &panels).chunks(outputs).enumerate() {
                    let right = if t == spoiled {
                        y.iter().all(|y| y.is_nan())
                    } else {
                        same_bits(y, &expected[t * outputs..][..outputs])
                    };
                    assert!(right, "{packing:?} {isa:?} {rows} rows, row {t} of them");
                }
            }
        }
    }
}

#[test]
fn widths_that_are_no_blocks_have_no_panels() {
    assert!(Panels::exist(Packing::Q8_0, 96) && !Panels::exist(Packing::Q8_0, 48) && !Panels::exist(Packing::Q8_0, 0));
    assert!(Panels::exist(Packing::Q4K, 256) && !Panels::exist(Packing::Q4K, 32));
    assert!(!Panels::exist(Packing::F32, 256) && !Panels::exist(Packing::Q2K, 256));
}

#[test]
fn repacking_says_what_it_is_done_with() {
    let mut random = Random(6);
    // Two slabs and a bit of 32 MiB.
    let (inputs, outputs) = (4096, 32_000);
    let bytes = random.weights(Packing::Q4_0, 1, inputs).repeat(outputs);
    let mut marks = Vec::new();
    let panels = Panels::repack(Packing::Q4_0, &bytes, inputs, |mark| marks.push(mark)).unwrap();
    assert!(marks.len() == 3 && marks.is_sorted() && marks[2] == bytes.len(), "{marks:?}");
    assert_eq!(panels.bytes(), bytes.len());
    let (mut first, mut last) = (vec![0.0; inputs], vec![0.0; inputs]);
    panels.unpack_row(0, &mut first);
    panels.unpack_row(outputs - 1, &mut last);
    assert!(first == last && first.iter().any(|&w| w != 0.0));
}

#[test]
fn no_rows_and_no_outputs_are_empty_products() {
    let panels = repack(Packing::Q8_0, &[], 64);
    assert!(matmul(&quantise_rows(&[1.0; 128], 64, panels.rounding_group()), &panels).is_empty());
    let panels = repack(Packing::Q8_0, &[1; 68], 64);
    assert!(matmul(&quantise_rows(&[], 64, panels.rounding_group()), &panels).is_empty());
}
