//! A tensor's numbers on their way to a device.

use std::ops::Range;
use std::sync::Arc;

use super::map::Bytes;
use crate::types::error::TensorRule;
use forebay_kernels::packed::{self, Packing, Quantised};

/// A tensor, row after row.
pub(crate) enum Numbers {
    Plain(Vec<f32>),
    Packed(Packed),
}

/// Rows of whole blocks, left where they lie: in a mapped file, mostly.
#[derive(Clone)]
pub(crate) struct Packed {
    packing: Packing,
    file: Arc<Bytes>,
    /// Where in the file; whole blocks.
    range: Range<usize>,
}

impl Numbers {
    /// In `f32`, unpacked where need be.
    pub(crate) fn plain(self) -> Result<Vec<f32>, TensorRule> {
        match self {
            Numbers::Plain(numbers) => Ok(numbers),
            Numbers::Packed(packed) => packed.unpack(),
        }
    }

    /// Quantised, where they are in F32, F16 or BF16 and `inputs` are whole blocks of `to`, or else of Q8_0; others stay.
    pub(crate) fn quantised(self, to: Quantised, inputs: usize) -> Result<Numbers, TensorRule> {
        let fits = |to: &Quantised| to.packing().row_bytes(inputs).is_some();
        let Some(to) = [to, Quantised::Q8_0].into_iter().find(fits) else { return Ok(self) };
        let packed = match self {
            Numbers::Packed(packed) => packed,
            Numbers::Plain(numbers) => Packed::plain(&numbers),
        };
        if !matches!(packed.packing, Packing::F32 | Packing::F16 | Packing::Bf16) {
            return Ok(Numbers::Packed(packed));
        }
        let rows = packed.bytes().len() / packed.packing.row_bytes(inputs).unwrap_or(1);
        let bytes = rows * to.packing().row_bytes(inputs).unwrap_or(0);
        let mut out = Vec::new();
        out.try_reserve_exact(bytes).map_err(|_| TensorRule::Allocation { bytes })?;
        out.resize(bytes, 0);
        packed::repack(packed.packing, packed.bytes(), inputs, to, &mut out);
        packed.release(0..packed.bytes().len());
        Ok(Numbers::Packed(Packed::new(to.packing(), Arc::new(Bytes::Owned(out)), 0..bytes)))
    }

    /// Rows `rows` of `inputs` numbers each. A packed row is whole blocks.
    pub(crate) fn rows(&self, rows: Range<usize>, inputs: usize) -> Numbers {
        match self {
            Numbers::Plain(numbers) => Numbers::Plain(numbers[rows.start * inputs..rows.end * inputs].to_vec()),
            Numbers::Packed(packed) => {
                let (numbers, block_bytes) = packed.packing.block();
                let row = inputs / numbers * block_bytes;
                let start = packed.range.start;
                let range = start + rows.start * row..start + rows.end * row;
                Numbers::Packed(Packed { range, ..packed.clone() })
            }
        }
    }
}

impl Packed {
    /// `range` holds whole blocks of `packing`.
    pub(crate) fn new(packing: Packing, file: Arc<Bytes>, range: Range<usize>) -> Packed {
        Packed { packing, file, range }
    }

    pub(crate) fn plain(numbers: &[f32]) -> Packed {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let whole = 0..bytes.len();
        Packed::new(Packing::F32, Arc::new(Bytes::Owned(bytes)), whole)
    }

    pub(crate) fn packing(&self) -> Packing {
        self.packing
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.file[self.range.clone()]
    }

    /// Lets go of the memory of part of [`Packed::bytes`]; reading it again reads the file again.
    pub(crate) fn release(&self, part: Range<usize>) {
        self.file.release(self.range.start + part.start..self.range.start + part.end);
    }

    fn unpack(&self) -> Result<Vec<f32>, TensorRule> {
        let (numbers, block_bytes) = self.packing.block();
        let count = self.range.len() / block_bytes * numbers;
        let mut out = Vec::new();
        out.try_reserve_exact(count).map_err(|_| TensorRule::Allocation { bytes: count.saturating_mul(4) })?;
        out.resize(count, 0.0);
        packed::unpack(self.packing, self.bytes(), &mut out);
        Ok(out)
    }
}
