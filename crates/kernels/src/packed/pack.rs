//! Numbers into blocks, for the two formats that weights are quantised to while they are loaded.
//!
//! The layouts are ggml's, and so is the choice of scales (`quantize_row_q8_0_ref`, `quantize_row_q4_K_ref`): of several
//! grids per 32 numbers the one with the least weighted square error, its scale and offset by least squares.

use super::packing::Packing;
use super::unpack::unpack;
use crate::parallel::for_each_chunk;

/// Blocks of a `Q4_K` block of 256: scale and offset of each have six bits.
const PARTS: usize = 8;
const PART: usize = 32;
/// Grids that are tried for 32 numbers.
const GRIDS: usize = 21;
/// What a number costs to pack, in multiplications.
const COST: usize = 64;

/// What weights can be quantised to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantised {
    Q8_0,
    Q4K,
}

impl Quantised {
    pub fn packing(self) -> Packing {
        match self {
            Quantised::Q8_0 => Packing::Q8_0,
            Quantised::Q4K => Packing::Q4K,
        }
    }
}

/// Packs rows of `width` numbers, stored as `from`, into `out`.
///
/// # Panics
/// When rows are not whole blocks of both, or `out` has not as many.
pub fn repack(from: Packing, bytes: &[u8], width: usize, to: Quantised, out: &mut [u8]) {
    let (Some(source), Some(target)) = (from.row_bytes(width), to.packing().row_bytes(width)) else {
        panic!("rows of {width} are not whole blocks of {} and {}", from.name(), to.packing().name())
    };
    assert!(bytes.len() * target == out.len() * source, "rows that do not fit");
    let cost = bytes.len() / source * width * COST;
    for_each_chunk(out, target, cost, |row, out| {
        let mut numbers = vec![0.0; width];
        unpack(from, &bytes[row * source..][..source], &mut numbers);
        match to {
            Quantised::Q8_0 => each(&numbers, out, q8_0),
            Quantised::Q4K => each(&numbers, out, q4_k),
        }
    });
}

fn each<const NUMBERS: usize, const BYTES: usize>(
    numbers: &[f32],
    out: &mut [u8],
    pack: impl Fn(&[f32; NUMBERS], &mut [u8; BYTES]),
) {
    let blocks = numbers.as_chunks::<NUMBERS>().0.iter().zip(out.as_chunks_mut::<BYTES>().0);
    blocks.for_each(|(numbers, out)| pack(numbers, out));
}

fn q8_0(numbers: &[f32; 32], out: &mut [u8; 34]) {
    let largest = numbers.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    let d = largest / 127.0;
    let inverse = if d > 0.0 { 1.0 / d } else { 0.0 };
    out[..2].copy_from_slice(&half::f16::from_f32(d).to_le_bytes());
    for (code, x) in out[2..].iter_mut().zip(numbers) {
        *code = (x * inverse).round() as i8 as u8;
    }
}

fn q4_k(numbers: &[f32; 256], out: &mut [u8; 144]) {
    let parts: &[[f32; PART]] = numbers.as_chunks().0;
    let fits: [Fit; PARTS] = std::array::from_fn(|part| Fit::best(&parts[part]));
    let largest = |of: fn(&Fit) -> f32| fits.iter().map(of).fold(0.0f32, f32::max);
    let (scale, offset) = (largest(|fit| fit.scale), largest(|fit| fit.offset));
    let (d, least) = (half::f16::from_f32(scale / 63.0), half::f16::from_f32(offset / 63.0));
    out[..2].copy_from_slice(&d.to_le_bytes());
    out[2..4].copy_from_slice(&least.to_le_bytes());
    let six_bits =
        |x: f32, largest: f32| if largest > 0.0 { (63.0 / largest * x).round_ties_even().min(63.0) as u8 } else { 0 };
    let scales = fits.each_ref().map(|fit| six_bits(fit.scale, scale));
    let offsets = fits.each_ref().map(|fit| six_bits(fit.offset, offset));
    write_six_bits(&scales, &offsets, &mut out[4..16]);
    let codes: [[u8; PART]; PARTS] = std::array::from_fn(|part| {
        let (d, least) = (d.to_f32() * f32::from(scales[part]), least.to_f32() * f32::from(offsets[part]));
        parts[part].map(|x| if d > 0.0 { code((x + least) / d) } else { 0 })
    });
    for (pair, out) in codes.chunks_exact(2).zip(out[16..].chunks_exact_mut(PART)) {
        for ((out, low), high) in out.iter_mut().zip(pair[0]).zip(pair[1]) {
            *out = low | high << 4;
        }
    }
}

/// The first four of both in six bits of their bytes, the last four in four bits of the bytes behind and the two bits that
/// were left.
fn write_six_bits(scales: &[u8; PARTS], offsets: &[u8; PARTS], out: &mut [u8]) {
    for part in 0..4 {
        let (scale, offset) = (scales[part + 4], offsets[part + 4]);
        out[part] = scales[part] | scale >> 4 << 6;
        out[part + 4] = offsets[part] | offset >> 4 << 6;
        out[part + 8] = scale & 15 | (offset & 15) << 4;
    }
}

/// 32 numbers as `scale * code - offset`, codes from 0 to 15; neither is negative.
#[derive(Clone, Copy)]
struct Fit {
    scale: f32,
    offset: f32,
}

impl Fit {
    fn best(x: &[f32; PART]) -> Fit {
        let mean_square = x.iter().map(|x| x * x).sum::<f32>() / PART as f32;
        // Large numbers matter more.
        let weights = x.map(|x| mean_square.sqrt() + x.abs());
        let least = x.iter().copied().fold(f32::INFINITY, f32::min).min(0.0);
        let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let span = most - least;
        // NaN too: there is nothing to fit.
        if !(span > 0.0 && span.is_finite()) {
            return Fit { scale: 0.0, offset: if least.is_finite() { -least } else { 0.0 } };
        }
        let mut best = Fit { scale: span / 15.0, offset: -least };
        let mut error = best.error(x, &weights, &x.map(|x| code((x - least) * 15.0 / span)));
        for grid in 0..GRIDS {
            let steps = 14.0 + 0.1 * grid as f32;
            let codes = x.map(|x| code((x - least) * steps / span));
            let Some(fit) = Fit::of(x, &weights, &codes) else { continue };
            let other = fit.error(x, &weights, &codes);
            if other < error {
                (best, error) = (fit, other);
            }
        }
        best
    }

    /// Least squares for given codes; `None` where they are all the same.
    fn of(x: &[f32; PART], weights: &[f32; PART], codes: &[u8; PART]) -> Option<Fit> {
        let [mut sum, mut sum_x, mut sum_c, mut sum_cc, mut sum_cx] = [0.0f32; 5];
        for ((&x, &w), &code) in x.iter().zip(weights).zip(codes) {
            let c = f32::from(code);
            sum += w;
            sum_x += w * x;
            sum_c += w * c;
            sum_cc += w * c * c;
            sum_cx += w * c * x;
        }
        let determinant = sum * sum_cc - sum_c * sum_c;
        if determinant <= 0.0 {
            return None;
        }
        let constant = (sum_cc * sum_x - sum_c * sum_cx) / determinant;
        Some(match constant > 0.0 {
            true => Fit { scale: sum_cx / sum_cc, offset: 0.0 },
            false => Fit { scale: (sum * sum_cx - sum_x * sum_c) / determinant, offset: -constant },
        })
    }

    fn error(&self, x: &[f32; PART], weights: &[f32; PART], codes: &[u8; PART]) -> f32 {
        let square = |((x, w), &code): ((&f32, &f32), &u8)| {
            let difference = self.scale * f32::from(code) - self.offset - x;
            w * difference * difference
        };
        x.iter().zip(weights).zip(codes).map(square).sum()
    }
}

/// The nearest code.
fn code(x: f32) -> u8 {
    x.round_ties_even().clamp(0.0, 15.0) as u8
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::{GgmlDType, QTensor};
    use candle_core::{Device, Tensor};

    use super::*;

    fn numbers(count: usize) -> Vec<f32> {
        let mut state = 5u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        // Nearly normal, as weights are.
        (0..count).map(|_| next() + next() + next() + 0.02).collect()
    }

    fn bytes(numbers: &[f32]) -> Vec<u8> {
        numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    /// Packed and unpacked again.
    fn there_and_back(numbers: &[f32], width: usize, to: Quantised) -> (Vec<u8>, Vec<f32>) {
        let mut out = vec![0; numbers.len() / width * to.packing().row_bytes(width).unwrap()];
        repack(Packing::F32, &bytes(numbers), width, to, &mut out);
        let mut back = vec![0.0; numbers.len()];
        unpack(to.packing(), &out, &mut back);
        (out, back)
    }

    fn square_error(a: &[f32], b: &[f32]) -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>() / a.len() as f64
    }

    #[test]
    fn eight_bits_are_those_of_the_reference() {
        let numbers = numbers(64 * 512);
        let tensor = Tensor::from_slice(&numbers, (64, 512), &Device::Cpu).unwrap();
        let theirs = QTensor::quantize(&tensor, GgmlDType::Q8_0).unwrap();
        let (ours, back) = there_and_back(&numbers, 512, Quantised::Q8_0);
        assert!(ours == *theirs.data().unwrap());
        assert!(numbers.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1.5 / 127.0));
    }

    #[test]
    fn four_bits_are_no_worse_than_candles() {
        let numbers = numbers(64 * 512);
        let tensor = Tensor::from_slice(&numbers, (64, 512), &Device::Cpu).unwrap();
        let theirs = QTensor::quantize(&tensor, GgmlDType::Q4K).unwrap().dequantize(&Device::Cpu).unwrap();
        let theirs = theirs.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let (_, ours) = there_and_back(&numbers, 512, Quantised::Q4K);
        let (ours, theirs) = (square_error(&ours, &numbers), square_error(&theirs, &numbers));
        assert!(ours <= theirs * 1.02, "{ours:e} against {theirs:e}");
    }

    #[test]
    fn blocks_of_one_number_zeros_and_no_numbers() {
        for to in [Quantised::Q8_0, Quantised::Q4K] {
            assert_eq!(there_and_back(&[0.0; 512], 256, to).1, [0.0; 512]);
            let same = there_and_back(&[-1.5; 256], 256, to).1;
            assert!(same.iter().all(|x| (x + 1.5).abs() < 0.01), "{to:?}: {}", same[0]);
            let above = there_and_back(&[0.75; 256], 256, to).1;
            assert!(above.iter().all(|x| (x - 0.75).abs() < 0.01), "{to:?}: {}", above[0]);
            // Whatever comes out, it comes out.
            there_and_back(&[f32::NAN; 256], 256, to);
            there_and_back(&[f32::INFINITY; 256], 256, to);
        }
    }

    #[test]
    fn rows_are_packed_alike_by_any_number_of_threads() {
        let numbers = numbers(300 * 256);
        let whole = there_and_back(&numbers, 256, Quantised::Q4K).0;
        let alone: Vec<u8> = numbers.chunks(256).flat_map(|row| there_and_back(row, 256, Quantised::Q4K).0).collect();
        assert!(whole == alone);
    }
}
