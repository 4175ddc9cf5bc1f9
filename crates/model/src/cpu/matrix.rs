//! Weights `[outputs, inputs]`, in memory once: where they come from a mapped file, its pages are let go as they are read.

use super::buffers::{Buffer, Buffers};
use crate::files::numbers::{Numbers, Packed};
use crate::pass::backend::Result;
use crate::types::device::DeviceError;
use forebay_kernels::bf16;
use forebay_kernels::matmul;
use forebay_kernels::memory::{Memory, OutOfMemory};
use forebay_kernels::packed::{self, Packing};
use forebay_kernels::quant::{self, Panels, QuantisedRows, RoundingGroup};

pub(crate) struct Matrix {
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

    /// `x · weightᵀ` for each of `weights`, whose inputs are as many. Where they want rounded rows, `rounded` become those
    /// of `x`.
    pub fn products<const N: usize>(
        weights: [&Matrix; N],
        x: &[f32],
        rounded: &mut QuantisedRows,
        buffers: &Buffers,
    ) -> [Buffer; N] {
        let mut all = weights.map(|weight| buffers.take(x.len() / weight.inputs * weight.outputs));
        let mut outputs = all.iter_mut().map(|y| &mut **y);
        if let Some((panels, group)) = Matrix::of_one_rounding_group(weights) {
            rounded.round(x, weights[0].inputs, group);
            quant::matmuls_into(rounded, panels.map(|panels| (panels, outputs.next().expect("one for each"))));
            return all;
        }
        if let Some(tiles) = all_of(weights, |weight| match weight {
            Weights::Tiles(weights) => Some(weights),
            _ => None,
        }) {
            bf16::matmuls_into(x, tiles.map(|weights| (weights, outputs.next().expect("one for each"))));
            return all;
        }
        let mut group = None;
        for (weight, y) in weights.into_iter().zip(outputs) {
            match &weight.weights {
                Weights::Panels(panels) => {
                    if group != Some(panels.rounding_group()) {
                        rounded.round(x, weight.inputs, panels.rounding_group());
                        group = Some(panels.rounding_group());
                    }
                    quant::matmul_into(rounded, panels, y);
                }
                Weights::Tiles(weights) => bf16::matmul_into(x, weights, y),
                Weights::Rows(packing, bytes) => {
                    matmul::matmul_packed_into(x, *packing, bytes, weight.inputs, y);
                }
                Weights::Plain(numbers) => matmul::matmul_into(x, numbers, weight.inputs, y),
            }
        }
        all
    }

    /// Where all are panels that want their rows rounded alike.
    fn of_one_rounding_group<const N: usize>(weights: [&Matrix; N]) -> Option<([&Panels; N], RoundingGroup)> {
        let Weights::Panels(first) = &weights.first()?.weights else { return None };
        let group = first.rounding_group();
        let panels = all_of(weights, |weight| match weight {
            Weights::Panels(panels) if panels.rounding_group() == group => Some(panels),
            _ => None,
        })?;
        Some((panels, group))
    }

    /// How rows are rounded for weights of 8 bits; `None` for others.
    pub fn fine_rounding_group(&self) -> Option<RoundingGroup> {
        match &self.weights {
            Weights::Panels(panels) => panels.are_eight_bits().then(|| panels.rounding_group()),
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

/// What `kind` finds in each, if it does so in all.
fn all_of<'a, T, const N: usize>(
    weights: [&'a Matrix; N],
    kind: impl Fn(&'a Weights) -> Option<&'a T>,
) -> Option<[&'a T; N]> {
    let mut found = [kind(&weights.first()?.weights)?; N];
    for (place, weight) in found.iter_mut().zip(weights) {
        *place = kind(&weight.weights)?;
    }
    Some(found)
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
