//! The CPU, over our own kernels: activations are plain `f32`, `[T, width]`. Bit-identical under any batching.

mod buffers;
mod matrix;

use std::sync::{Mutex, PoisonError};

use super::backend::{AttentionShape, Backend, DeviceError, Result};
use super::batch::Step;
use super::kv_memory::KvLayout;
use super::rope::Angles;
use super::spec::{Activation, DecoderSpec};
use super::weights::Numbers;
use crate::kernels::attention::{self, Cache, Geometry, Queries, Shape};
use crate::kernels::quant::Rows;
use crate::kernels::{activation, norm, rope};
use buffers::{Buffer, Buffers};
use matrix::Matrix;

#[derive(Default)]
pub(super) struct Cpu {
    buffers: Buffers,
    /// Room for rounded rows. The lock is never waited for: one step runs at a time.
    rounded: Mutex<Rows>,
}

pub(super) struct Plan<'a> {
    step: &'a Step,
    angles: &'a Angles,
}

impl Cpu {
    /// These rows of `x`, each of `width`.
    fn rows(&self, x: &Buffer, rows: &[usize], width: usize) -> Buffer {
        let mut out = self.buffers.take(rows.len() * width);
        for (out, row) in out.chunks_exact_mut(width).zip(rows) {
            out.copy_from_slice(&x[row * width..][..width]);
        }
        out
    }

    fn add_bias(&self, y: &mut Buffer, bias: Option<&Vec<f32>>) {
        if let Some(bias) = bias {
            for row in y.chunks_exact_mut(bias.len()) {
                row.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
            }
        }
    }
}

impl Backend for Cpu {
    type Tensor = Buffer;
    type Matrix = Matrix;
    type Vector = Vec<f32>;
    type Kv = Cache;
    type Plan<'a> = Plan<'a>;

    fn another(&self) -> Cpu {
        Cpu::default()
    }

    fn matrix(&self, numbers: Numbers, outputs: usize, inputs: usize) -> Result<Matrix> {
        Matrix::new(numbers, outputs, inputs)
    }

    fn vector(&self, numbers: Numbers) -> Result<Vec<f32>> {
        Ok(numbers.plain()?)
    }

    fn kv(&self, layout: &KvLayout) -> Result<Cache> {
        let KvLayout { paging, kv_heads, head_dim, dtype } = *layout;
        let geometry = Geometry { num_blocks: paging.num_blocks, block_size: paging.block_size, kv_heads, head_dim };
        Cache::zeroed(dtype, geometry).map_err(|error| DeviceError(format!("the KV cache: {error}")))
    }

    fn plan<'a>(&self, step: &'a Step, angles: &'a Angles, _spec: &DecoderSpec) -> Result<Plan<'a>> {
        Ok(Plan { step, angles })
    }

    fn embed(&self, table: &Matrix, plan: &Plan<'_>) -> Result<Buffer> {
        let width = table.inputs();
        let mut out = self.buffers.take(plan.step.tokens.len() * width);
        for (row, &token) in out.chunks_exact_mut(width).zip(&plan.step.tokens) {
            table.copy_row(token as usize, row);
        }
        Ok(out)
    }

    fn linear(&self, x: &Buffer, weight: &Matrix, bias: Option<&Vec<f32>>) -> Result<Buffer> {
        let [y] = self.linears(x, [(weight, bias)])?;
        Ok(y)
    }

    /// Rows are rounded once for all.
    fn linears<const N: usize>(&self, x: &Buffer, linears: [(&Matrix, Option<&Vec<f32>>); N]) -> Result<[Buffer; N]> {
        let mut rounded = self.rounded.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fresh = false;
        Ok(linears.map(|(weight, bias)| {
            let mut y = weight.product(x, &mut rounded, &mut fresh, &self.buffers);
            self.add_bias(&mut y, bias);
            y
        }))
    }

    /// Rounding activations to 8 bits costs most where nothing follows that could even it out, and the head runs for few
    /// rows. Where its weights have 8 bits themselves, what rounding leaves is rounded too, and goes along as a second row, so
    /// weights are still read once; coarser weights are what limits the result anyway.
    /// Measured on the embedded model against exact products: 35 % less divergence, top-1 of Q8_0 0.988 → 0.992.
    fn logits(&self, x: &Buffer, head: &Matrix) -> Result<Buffer> {
        let Some(span) = head.fine_span() else { return self.linear(x, head, None) };
        let mut twice = self.buffers.take(2 * x.len());
        {
            let mut rounded = self.rounded.lock().unwrap_or_else(PoisonError::into_inner);
            rounded.round(x, head.inputs(), span);
            let (copy, rest) = twice.split_at_mut(x.len());
            copy.copy_from_slice(x);
            rounded.remainder(x, rest);
        }
        let mut y = self.linear(&twice, head, None)?;
        let half = y.len() / 2;
        let (first, rest) = y.split_at_mut(half);
        activation::add(first, rest);
        y.shorten(half);
        Ok(y)
    }

    fn add(&self, mut x: Buffer, y: &Buffer) -> Result<Buffer> {
        activation::add(&mut x, y);
        Ok(x)
    }

    fn rms_norm(&self, x: &Buffer, weight: &Vec<f32>, eps: f32) -> Result<Buffer> {
        let mut y = self.buffers.take(x.len());
        norm::rms_norm(x, weight, eps, &mut y);
        Ok(y)
    }

    fn rope(&self, mut x: Buffer, plan: &Plan<'_>, head_dim: usize) -> Result<Buffer> {
        rope::rotate(&mut x, &plan.angles.cos, &plan.angles.sin, head_dim);
        Ok(x)
    }

    fn store(&self, kv: &mut Cache, plan: &Plan<'_>, k: &Buffer, v: &Buffer) -> Result<()> {
        kv.write(&plan.step.slots, k, v);
        Ok(())
    }

    fn attention(&self, q: &Buffer, kv: &Cache, plan: &Plan<'_>, shape: &AttentionShape) -> Result<Buffer> {
        let mut out = self.buffers.take(q.len());
        let shape = Shape { heads: shape.heads, scale: shape.scale, window: shape.window };
        let queries = Queries { q, chunks: &plan.step.chunks, tables: &plan.step.tables };
        attention::attention(&queries, kv, &shape, &mut out);
        Ok(out)
    }

    fn gate(&self, mut gate: Buffer, up: &Buffer, activation: Activation) -> Result<Buffer> {
        match activation {
            Activation::Silu => activation::silu_gate(&mut gate, up),
        }
        Ok(gate)
    }

    fn select(&self, x: Buffer, plan: &Plan<'_>) -> Result<Buffer> {
        if plan.step.selected.len() == plan.step.tokens.len() {
            return Ok(x);
        }
        Ok(self.rows(&x, &plan.step.selected, x.len() / plan.step.tokens.len()))
    }

    fn pick(&self, x: &Buffer, rows: &[usize], width: usize) -> Result<Buffer> {
        Ok(self.rows(x, rows, width))
    }

    fn read(&self, x: Buffer) -> Result<Vec<f32>> {
        Ok(x.into_vec())
    }

    fn recycle(&self, data: Vec<f32>) {
        self.buffers.give(data);
    }

    fn copy_block(&self, kv: &mut Cache, _layout: &KvLayout, from: u32, to: u32) -> Result<()> {
        kv.copy_block(from, to);
        Ok(())
    }
}
