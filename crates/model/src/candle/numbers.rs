//! Numbers of a tensor on the CPU, whatever their type, as `f32`: what the definitions of our device ops read and write.

use std::ops::Range;

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, DType, Layout, Result, Storage, Tensor, bail};
use half::{bf16, f16};

/// The numbers of one tensor.
pub(super) enum Numbers<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
    Bf16(&'a [bf16]),
}

impl<'a> Numbers<'a> {
    /// Errs on tensors that are not contiguous, as the kernels would.
    pub(super) fn of(storage: &'a CpuStorage, layout: &Layout) -> Result<Numbers<'a>> {
        let range = range(layout)?;
        Ok(match storage {
            CpuStorage::F32(numbers) => Numbers::F32(&numbers[range]),
            CpuStorage::F16(numbers) => Numbers::F16(&numbers[range]),
            CpuStorage::BF16(numbers) => Numbers::Bf16(&numbers[range]),
            other => bail!("numbers must be f32, f16 or bf16, are {:?}", other.dtype()),
        })
    }

    /// `out` becomes the numbers of `range`.
    pub(super) fn read(&self, range: Range<usize>, out: &mut Vec<f32>) {
        out.clear();
        match self {
            Numbers::F32(numbers) => out.extend_from_slice(&numbers[range]),
            Numbers::F16(numbers) => out.extend(numbers[range].iter().map(|x| x.to_f32())),
            Numbers::Bf16(numbers) => out.extend(numbers[range].iter().map(|x| x.to_f32())),
        }
    }

    pub(super) fn to_vec(&self) -> Vec<f32> {
        let mut out = Vec::new();
        self.read(0..self.len(), &mut out);
        out
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Numbers::F32(numbers) => numbers.len(),
            Numbers::F16(numbers) => numbers.len(),
            Numbers::Bf16(numbers) => numbers.len(),
        }
    }
}

/// Rounds `numbers` to `dtype`.
pub(super) fn rounded(numbers: Vec<f32>, dtype: DType) -> Result<CpuStorage> {
    Ok(match dtype {
        DType::F32 => CpuStorage::F32(numbers),
        DType::F16 => CpuStorage::F16(numbers.into_iter().map(f16::from_f32).collect()),
        DType::BF16 => CpuStorage::BF16(numbers.into_iter().map(bf16::from_f32).collect()),
        other => bail!("numbers must be f32, f16 or bf16, are to be {other:?}"),
    })
}

/// Writes `numbers` to `storage` from `start` on, rounded to its type.
pub(super) fn write(storage: &mut CpuStorage, start: usize, numbers: &[f32]) -> Result<()> {
    let range = start..start + numbers.len();
    match storage {
        CpuStorage::F32(out) => out[range].copy_from_slice(numbers),
        CpuStorage::F16(out) => out[range].iter_mut().zip(numbers).for_each(|(out, &x)| *out = f16::from_f32(x)),
        CpuStorage::BF16(out) => out[range].iter_mut().zip(numbers).for_each(|(out, &x)| *out = bf16::from_f32(x)),
        other => bail!("numbers must be f32, f16 or bf16, are {:?}", other.dtype()),
    }
    Ok(())
}

/// Calls `compute` with the numbers of a tensor that lies on the CPU.
pub(super) fn with<T>(tensor: &Tensor, compute: impl FnOnce(Numbers<'_>) -> Result<T>) -> Result<T> {
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => compute(Numbers::of(storage, layout)?),
        _ => bail!("a tensor of the CPU was expected"),
    }
}

/// Where a contiguous tensor's numbers lie in its storage.
pub(super) fn range(layout: &Layout) -> Result<Range<usize>> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(start..end),
        None => bail!("a contiguous tensor was expected, its layout is {layout:?}"),
    }
}
