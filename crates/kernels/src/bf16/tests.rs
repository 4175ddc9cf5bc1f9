//! The unit against what it is said to compute, and that against double precision.

use super::split::rounded;
use super::unit::GROUP;
use super::*;

struct Random(u64);

impl Random {
    /// From -1 to 1.
    fn number(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f32 / (1u64 << 30) as f32 - 1.0
    }

    /// Of many sizes.
    fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.number() * (8.0 * self.number()).exp2()).collect()
    }
}

fn wide(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// One output, in the words of the module.
fn definition(unit: Unit, x: &[f32], w: &[f32]) -> f32 {
    let high: Vec<f32> = x.iter().map(|x| wide(rounded(*x))).collect();
    if unit == Unit::Pairs {
        // The odd input of a pair comes first.
        return (0..x.len()).fold(0.0, |sum, k| high[k ^ 1].mul_add(w[k ^ 1], sum));
    }
    let low: Vec<f32> = x.iter().zip(&high).map(|(x, high)| wide(rounded(x - high))).collect();
    let mut y = 0.0;
    for group in (0..x.len()).step_by(GROUP) {
        for half in [&high, &low] {
            let chain = |from: usize| {
                (group + from..group + GROUP).step_by(2).fold(0.0f32, |sum, k| half[k].mul_add(w[k], sum))
            };
            y += chain(0) + chain(1);
        }
    }
    y
}

/// Weights of `outputs` rows, as numbers and as the unit wants them.
fn weights(unit: Unit, random: &mut Random, outputs: usize, inputs: usize) -> (Vec<f32>, Weights) {
    let bits: Vec<u16> = random.numbers(outputs * inputs).into_iter().map(rounded).collect();
    let bytes: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let mut told = 0;
    let tiles = Weights::repack_for(unit, &bytes, inputs, |done| told = done).expect("memory");
    assert_eq!(told, bytes.len());
    (bits.into_iter().map(wide).collect(), tiles)
}

fn product(x: &[f32], weights: &Weights) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.len() / weights.inputs() * weights.outputs()];
    matmul_into(x, weights, &mut y);
    y
}

const UNITS: [Unit; 2] = [Unit::Tiles, Unit::Pairs];

/// Tests each unit that this machine has.
fn each(test: impl Fn(Unit)) {
    for unit in UNITS {
        if unit.is_here() { test(unit) } else { println!("skipped: {unit:?} on a machine without them") }
    }
}

#[test]
fn weights_lie_as_either_unit_wants_them() {
    for unit in UNITS {
        for (outputs, inputs) in [(1, 32), (16, 64), (47, 96)] {
            let (numbers, weights) = weights(unit, &mut Random(5), outputs, inputs);
            let mut row = vec![f32::NAN; inputs];
            for (n, expected) in numbers.chunks(inputs).enumerate() {
                weights.unpack_row(n, &mut row);
                assert!(row == expected, "{unit:?}, row {n}");
            }
        }
    }
}

#[test]
fn the_unit_computes_what_is_written() {
    each(|unit| {
        let mut random = Random(1);
        for (count, inputs, outputs) in [
            (1, 32, 1),
            (1, 64, 100),
            (2, 96, 33),
            (3, 32, 16),
            (16, 704, 64),
            (17, 64, 47),
            (40, 96, 50),
            (64, 32, 130),
        ] {
            let (numbers, weights) = weights(unit, &mut random, outputs, inputs);
            let x = random.numbers(count * inputs);
            let y = product(&x, &weights);
            for (t, x) in x.chunks(inputs).enumerate() {
                for (n, w) in numbers.chunks(inputs).enumerate() {
                    let (y, expected) = (y[t * outputs + n], definition(unit, x, w));
                    assert_eq!(
                        y.to_bits(),
                        expected.to_bits(),
                        "{unit:?}, {count}x{inputs}x{outputs} at {t},{n}: {y} for {expected}"
                    );
                }
            }
        }
    });
}

#[test]
fn so_many_bits_of_the_rows_count() {
    for (unit, bits) in [(Unit::Tiles, 16), (Unit::Pairs, 8)] {
        let mut random = Random(2);
        let (inputs, outputs) = (512, 20);
        let (numbers, _) = weights(unit, &mut random, outputs, inputs);
        let x = random.numbers(inputs);
        for w in numbers.chunks(inputs) {
            let exact: f64 = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            let size: f64 = x.iter().zip(w).map(|(x, w)| f64::from(x * w).abs()).sum();
            let error = (f64::from(definition(unit, &x, w)) - exact).abs();
            assert!(error <= size * 2f64.powi(-bits), "{unit:?}: {error:e} of {size:e}");
        }
    }
}

#[test]
fn batched_equals_solo_for_any_number_of_threads() {
    each(|unit| {
        let mut random = Random(3);
        let (inputs, outputs) = (512, 300);
        let (_, weights) = weights(unit, &mut random, outputs, inputs);
        let x = random.numbers(37 * inputs);
        let solo: Vec<f32> = x.chunks(inputs).flat_map(|row| product(row, &weights)).collect();
        for threads in 1..=4 {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            for rows in [1, 2, 7, 16, 17, 31, 32, 33, 37] {
                let batched = pool.install(|| product(&x[..rows * inputs], &weights));
                assert!(batched == solo[..rows * outputs], "{unit:?}, {threads} threads, {rows} rows");
            }
        }
    });
}

#[test]
fn several_products_at_once_are_those_of_each() {
    each(|unit| {
        let mut random = Random(7);
        let inputs = 512;
        let (a, b) = (weights(unit, &mut random, 100, inputs).1, weights(unit, &mut random, 37, inputs).1);
        let x = random.numbers(11 * inputs);
        let (mut one, mut other) = (vec![f32::NAN; 1100], vec![f32::NAN; 407]);
        matmuls_into(&x, [(&a, &mut one), (&b, &mut other)]);
        assert!(one == product(&x, &a) && other == product(&x, &b), "{unit:?}");
    });
}

#[test]
fn rows_that_fill_a_cache_are_cut() {
    each(|unit| {
        let mut random = Random(6);
        let (inputs, outputs) = (4096, 100);
        let (_, weights) = weights(unit, &mut random, outputs, inputs);
        let x = random.numbers(150 * inputs);
        let batched = product(&x, &weights);
        for (t, row) in x.chunks(inputs).enumerate() {
            assert!(product(row, &weights) == batched[t * outputs..][..outputs], "{unit:?}, row {t}");
        }
    });
}

#[test]
fn what_is_not_finite_spoils_its_row_alone() {
    each(|unit| {
        let mut random = Random(4);
        let (inputs, outputs) = (64, 20);
        let (_, weights) = weights(unit, &mut random, outputs, inputs);
        let clean = random.numbers(20 * inputs);
        let expected = product(&clean, &weights);
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = clean.clone();
            x[5 * inputs + 33] = odd;
            for (t, y) in product(&x, &weights).chunks(outputs).enumerate() {
                if t == 5 {
                    assert!(y.iter().all(|y| !y.is_finite()));
                } else {
                    assert!(y == &expected[t * outputs..][..outputs], "{unit:?}, row {t}");
                }
            }
        }
    });
}
