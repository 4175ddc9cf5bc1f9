//! Weights `[outputs, inputs]` on a candle device: dense in the type that activations have, or quantised as in the file.

use std::borrow::Cow;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{DType, Device, Tensor};
use half::{bf16, f16};

use crate::files::numbers::{Numbers, Packed};
use crate::pass::backend::Result;
use forebay_kernels::packed::Packing;

pub(crate) enum Matrix {
    Dense(Tensor),
    Quantised(Arc<QTensor>),
}

impl Matrix {
    /// Quantised weights stay so where candle has kernels for their type; the others are unpacked. On the CPU all are:
    /// there candle rounds activations to eight bits beside them, and that path is for being right.
    pub(super) fn new(numbers: Numbers, shape: (usize, usize), device: &Device, dtype: DType) -> Result<Matrix> {
        match &numbers {
            Numbers::Packed(packed) => match ggml_type(packed.packing()).filter(|_| !device.is_cpu()) {
                Some(kind) => Matrix::quantised(packed, kind, shape, device),
                None => Ok(Matrix::Dense(dense(numbers, shape, device, dtype)?)),
            },
            Numbers::Plain(_) => Ok(Matrix::Dense(dense(numbers, shape, device, dtype)?)),
        }
    }

    fn quantised(packed: &Packed, kind: GgmlDType, shape: (usize, usize), device: &Device) -> Result<Matrix> {
        let bytes = packed.bytes();
        // candle reads blocks in place, whose scales are two bytes wide; all blocks have an even number of bytes.
        let words: Vec<u16>;
        let bytes = match bytemuck::try_cast_slice::<u8, u16>(bytes) {
            Ok(words) => words,
            Err(_) => {
                words = bytes.as_chunks().0.iter().map(|&two| u16::from_ne_bytes(two)).collect();
                &words
            }
        };
        let storage = QStorage::from_data(Cow::Borrowed(bytemuck::cast_slice(bytes)), device, kind)?;
        packed.release(0..packed.bytes().len());
        Ok(Matrix::Quantised(Arc::new(QTensor::new(storage, shape)?)))
    }

    /// `x · selfᵀ` for `x` of `[T, inputs]`.
    pub(super) fn product(&self, x: &Tensor) -> Result<Tensor> {
        Ok(match self {
            Matrix::Dense(weights) => x.matmul(&weights.t()?)?,
            // candle's product may give f32 whatever the activations are.
            Matrix::Quantised(weights) => x.contiguous()?.apply_op1_no_bwd(weights.as_ref())?.to_dtype(x.dtype())?,
        })
    }

    /// These rows, in `dtype`.
    pub(super) fn rows(&self, rows: &Tensor, dtype: DType) -> Result<Tensor> {
        Ok(match self {
            Matrix::Dense(weights) => weights.index_select(rows, 0)?,
            Matrix::Quantised(weights) => weights.embedding(rows)?.to_dtype(dtype)?,
        })
    }
}

/// Whether devices have kernels for weights of this type.
pub(crate) fn stays_quantised(packing: Packing) -> bool {
    ggml_type(packing).is_some()
}

/// What candle calls a block format, if it has kernels for it.
fn ggml_type(packing: Packing) -> Option<GgmlDType> {
    Some(match packing {
        Packing::Q4_0 => GgmlDType::Q4_0,
        Packing::Q4_1 => GgmlDType::Q4_1,
        Packing::Q5_0 => GgmlDType::Q5_0,
        Packing::Q5_1 => GgmlDType::Q5_1,
        Packing::Q8_0 => GgmlDType::Q8_0,
        Packing::Q2K => GgmlDType::Q2K,
        Packing::Q3K => GgmlDType::Q3K,
        Packing::Q4K => GgmlDType::Q4K,
        Packing::Q5K => GgmlDType::Q5K,
        Packing::Q6K => GgmlDType::Q6K,
        Packing::F32 | Packing::F16 | Packing::Bf16 | Packing::Iq4Nl | Packing::Mxfp4 => return None,
    })
}

/// In `dtype`; rounded before they travel, so the device never holds them wider than that.
pub(super) fn dense(
    numbers: Numbers,
    shape: impl Into<candle_core::Shape>,
    device: &Device,
    dtype: DType,
) -> Result<Tensor> {
    if let Numbers::Packed(packed) = &numbers
        && dense_type(packed.packing()) == Some(dtype)
    {
        let shape = shape.into();
        let tensor = Tensor::from_raw_buffer(packed.bytes(), dtype, shape.dims(), device)?;
        packed.release(0..packed.bytes().len());
        return Ok(tensor);
    }
    let numbers = numbers.plain()?;
    Ok(match dtype {
        DType::F16 => {
            Tensor::from_vec(numbers.into_iter().map(f16::from_f32).collect::<Vec<_>>(), shape.into(), device)?
        }
        DType::BF16 => {
            Tensor::from_vec(numbers.into_iter().map(bf16::from_f32).collect::<Vec<_>>(), shape.into(), device)?
        }
        _ => Tensor::from_vec(numbers, shape.into(), device)?,
    })
}

fn dense_type(packing: Packing) -> Option<DType> {
    match packing {
        Packing::F32 => Some(DType::F32),
        Packing::F16 => Some(DType::F16),
        Packing::Bf16 => Some(DType::BF16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_kernels::packed::Quantised;

    const SHAPE: (usize, usize) = (24, 256);

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 37 + seed * 101) % 113) as f32 / 56.0 - 1.0).collect()
    }

    /// What CUDA does with a quantised file, on the CPU.
    #[test]
    fn quantised_products_and_rows_are_those_of_the_unpacked_weights() {
        let device = Device::Cpu;
        let x = Tensor::from_vec(numbers(3 * SHAPE.1, 5), (3, SHAPE.1), &device).unwrap();
        for to in [Quantised::Q8_0, Quantised::Q4K] {
            let Numbers::Packed(packed) = Numbers::Plain(numbers(SHAPE.0 * SHAPE.1, 1)).quantised(to, SHAPE.1).unwrap()
            else {
                panic!("{to:?} is packed")
            };
            let kind = ggml_type(packed.packing()).unwrap();
            let quantised = Matrix::quantised(&packed, kind, SHAPE, &device).unwrap();
            let unpacked = Matrix::new(Numbers::Packed(packed), SHAPE, &device, DType::F32).unwrap();
            assert!(matches!(unpacked, Matrix::Dense(_)));
            let ids = Tensor::new(&[23u32, 0, 7], &device).unwrap();
            let (ours, plain) = (quantised.rows(&ids, DType::F32).unwrap(), unpacked.rows(&ids, DType::F32).unwrap());
            let flat = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert_eq!(flat(&ours), flat(&plain), "{to:?}");
            let (ours, plain) = (flat(&quantised.product(&x).unwrap()), flat(&unpacked.product(&x).unwrap()));
            let far = ours.iter().zip(&plain).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            let size = plain.iter().map(|x| x.abs()).fold(0.0, f32::max);
            // Activations beside them have eight bits.
            assert!(far < 0.02 * size && size > 1.0, "{to:?}: {far} of {size}");
        }
    }
}
