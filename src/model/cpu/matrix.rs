//! Weights `[outputs, inputs]`, in memory once: where they come from a mapped file, its pages are let go as they are read.

use super::super::backend::{DeviceError, Result};
use super::super::weights::{Numbers, Packed};
use super::buffers::{Buffer, Buffers};
use crate::kernels::bf16;
use crate::kernels::matmul;
use crate::kernels::memory::{Memory, OutOfMemory};
use crate::kernels::packed::{self, Packing};
use crate::kernels::quant::{self, Panels, Rows, Span};

pub(in crate::model) struct Matrix {
    weights: Weights,
    outputs: usize,
    inputs: usize,
}

enum Weights {
    /// Block formats, laid out for integer products.
    Panels(Panels),
    /// BF16, laid out for the unit that multiplies them.
    Tiles(bf16::Weights),
    /// F32, F16 and BF16 as in the file, and formats that have no panels.
    Rows(Packing, Memory),
    /// Numbers that were made, not read.
    Plain(Vec<f32>),
}

impl Matrix {
    pub fn new(numbers: Numbers, outputs: usize, inputs: usize) -> Result<Matrix> {
        let weights = match numbers {
            Numbers::Plain(numbers) => Weights::Plain(numbers),
            Numbers::Packed(packed) => {
                stored(&packed, inputs).map_err(|error| DeviceError::Failed(error.to_string()))?
            }
        };
        Ok(Matrix { weights, outputs, inputs })
    }

    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// `x · selfᵀ`. Where weights want rounded rows, `rounded` are those of `x` if their span fits, or become them.
    pub fn product(&self, x: &[f32], rounded: &mut Rows, fresh: &mut bool, buffers: &Buffers) -> Buffer {
        let mut y = buffers.take(x.len() / self.inputs * self.outputs);
        match &self.weights {
            Weights::Panels(panels) => {
                if !*fresh || rounded.span() != panels.span() {
                    rounded.round(x, self.inputs, panels.span());
                    *fresh = true;
                }
                quant::matmul_into(rounded, panels, &mut y);
            }
            Weights::Tiles(weights) => bf16::matmul_into(x, weights, &mut y),
            Weights::Rows(packing, bytes) => matmul::matmul_packed_into(x, *packing, bytes, self.inputs, &mut y),
            Weights::Plain(numbers) => matmul::matmul_into(x, numbers, self.inputs, &mut y),
        }
        y
    }

    /// How rows are rounded for weights of 8 bits; `None` for others.
    pub fn fine_span(&self) -> Option<Span> {
        match &self.weights {
            Weights::Panels(panels) => panels.are_eight_bits().then(|| panels.span()),
            Weights::Tiles(_) | Weights::Rows(..) | Weights::Plain(_) => None,
        }
    }

    pub fn copy_row(&self, row: usize, out: &mut [f32]) {
        match &self.weights {
            Weights::Panels(panels) => panels.unpack_row(row, out),
            Weights::Tiles(weights) => weights.unpack_row(row, out),
            Weights::Rows(packing, bytes) => {
                // A packed row is whole blocks, so it is the same share of the bytes as of the numbers.
                let (numbers, block_bytes) = packing.block();
                let row_bytes = self.inputs / numbers * block_bytes;
                packed::unpack(*packing, &bytes[row * row_bytes..][..row_bytes], out);
            }
            Weights::Plain(numbers) => out.copy_from_slice(&numbers[row * self.inputs..][..self.inputs]),
        }
    }
}

/// Takes weights out of the file.
fn stored(packed: &Packed, inputs: usize) -> std::result::Result<Weights, OutOfMemory> {
    let (packing, mut released) = (packed.packing(), 0);
    let release = |done| {
        packed.release(released..done);
        released = done;
    };
    if Panels::exist(packing, inputs) {
        Ok(Weights::Panels(Panels::repack(packing, packed.bytes(), inputs, release)?))
    } else if bf16::Weights::exist(packing, inputs) {
        Ok(Weights::Tiles(bf16::Weights::repack(packed.bytes(), inputs, release)?))
    } else {
        Ok(Weights::Rows(packing, Memory::copy_of(packed.bytes(), release)?))
    }
}
