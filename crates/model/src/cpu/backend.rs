//! The CPU, over our own kernels: activations are plain `f32`, `[T, width]`. Bit-identical under any batching.

use std::sync::{Mutex, PoisonError};

use super::buffers::{Buffer, Buffers};
use super::matrix::Matrix;
use crate::files::numbers::Numbers;
use crate::pass::backend::{AttentionShape, Backend, Result};
use crate::pass::rope::Angles;
use crate::types::batch::Step;
use crate::types::cache::KvLayout;
use crate::types::device::DeviceError;
use crate::types::spec::decoder::{Activation, Experts};
use forebay_kernels::attention::{self, Cache, Geometry, Queries, Shape};
use forebay_kernels::floats::Floats;
use forebay_kernels::packed::Packing;
use forebay_kernels::quant::QuantisedRows;
use forebay_kernels::routing::{self, Routes};
use forebay_kernels::{activation, norm, rope};

#[derive(Default)]
pub(crate) struct Cpu {
    buffers: Buffers,
    /// Room for rounded rows. The lock is never waited for: one step runs at a time.
    rounded: Mutex<QuantisedRows>,
    /// Room for who goes to which expert; likewise.
    routes: Mutex<Routes>,
}

pub(crate) struct Plan<'a> {
    step: &'a Step,
    /// Of each rope.
    angles: &'a [Angles],
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

    /// Rows of `table`.
    fn looked_up(&self, table: &Matrix, rows: &[u32]) -> Buffer {
        let width = table.inputs();
        let mut out = self.buffers.take(rows.len() * width);
        for (out, &row) in out.chunks_exact_mut(width).zip(rows) {
            table.copy_row(row as usize, out);
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

    /// There are kernels for every type.
    fn keeps_quantised(&self, _: Packing) -> bool {
        true
    }

    fn kv(&self, layout: &KvLayout) -> Result<Cache> {
        let KvLayout { paging, kv_heads, head_dim, dtype } = *layout;
        let geometry = Geometry { num_blocks: paging.num_blocks, block_size: paging.block_size, kv_heads, head_dim };
        Cache::zeroed(dtype, geometry).map_err(|error| DeviceError::Failed(format!("the KV cache: {error}")))
    }

    fn plan<'a>(&self, step: &'a Step, angles: &'a [Angles]) -> Result<Plan<'a>> {
        Ok(Plan { step, angles })
    }

    fn embed(&self, table: &Matrix, plan: &Plan<'_>) -> Result<Buffer> {
        Ok(self.looked_up(table, &plan.step.tokens))
    }

    fn embed_positions(&self, table: &Matrix, plan: &Plan<'_>) -> Result<Buffer> {
        Ok(self.looked_up(table, &plan.step.positions))
    }

    fn linear(&self, x: &Buffer, weight: &Matrix, bias: Option<&Vec<f32>>) -> Result<Buffer> {
        let [y] = self.linears(x, [(weight, bias)])?;
        Ok(y)
    }

    /// Rows are rounded once for all.
    fn linears<const N: usize>(&self, x: &Buffer, linears: [(&Matrix, Option<&Vec<f32>>); N]) -> Result<[Buffer; N]> {
        let mut rounded = self.rounded.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Matrix::products(linears.map(|(weight, _)| weight), x, &mut rounded, &self.buffers);
        for (y, (_, bias)) in all.iter_mut().zip(linears) {
            self.add_bias(y, bias);
        }
        Ok(all)
    }

    /// Rounding activations to 8 bits costs most where nothing follows that could even it out, and the head runs for few
    /// rows. Where its weights have 8 bits themselves, what rounding leaves is rounded too, and goes along as a second row, so
    /// weights are still read once; coarser weights are what limits the result anyway.
    /// Measured on the embedded model against exact products: 35 % less divergence, top-1 of Q8_0 0.988 → 0.992.
    fn logits(&self, x: &Buffer, head: &Matrix) -> Result<Buffer> {
        let Some(group) = head.fine_rounding_group() else { return self.linear(x, head, None) };
        let mut twice = self.buffers.take(2 * x.len());
        {
            let mut rounded = self.rounded.lock().unwrap_or_else(PoisonError::into_inner);
            rounded.round(x, head.inputs(), group);
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

    fn scale(&self, mut x: Buffer, factor: f32) -> Result<Buffer> {
        activation::scale(&mut x, factor);
        Ok(x)
    }

    fn soft_cap(&self, mut x: Buffer, cap: f32) -> Result<Buffer> {
        activation::soft_cap(&mut x, cap);
        Ok(x)
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

    fn add_norm(&self, mut x: Buffer, y: &Buffer, weight: &Vec<f32>, eps: f32) -> Result<(Buffer, Buffer)> {
        let mut normed = self.buffers.take(x.len());
        norm::add_rms_norm(&mut x, y, weight, eps, &mut normed);
        Ok((x, normed))
    }

    fn layer_norm(&self, x: &Buffer, weight: &Vec<f32>, bias: &Vec<f32>, eps: f32) -> Result<Buffer> {
        let mut y = self.buffers.take(x.len());
        norm::layer_norm(x, weight, bias, eps, &mut y);
        Ok(y)
    }

    fn rope(&self, mut x: Buffer, plan: &Plan<'_>, head_dim: usize, rope: usize) -> Result<Buffer> {
        let Angles { cos, sin, dims } = &plan.angles[rope];
        rope::rotate(&mut x, cos, sin, *dims, head_dim);
        Ok(x)
    }

    fn store(&self, kv: &mut Cache, plan: &Plan<'_>, k: &Buffer, v: &Buffer) -> Result<()> {
        kv.write(&plan.step.slots, k, v);
        Ok(())
    }

    fn store_rotated(
        &self,
        kv: &mut Cache,
        plan: &Plan<'_>,
        mut k: Buffer,
        v: &Buffer,
        (_, rope): (usize, usize),
    ) -> Result<()> {
        let Angles { cos, sin, dims } = &plan.angles[rope];
        kv.write_rotated(&plan.step.slots, &mut k, v, (cos, sin, *dims));
        Ok(())
    }

    fn attention(&self, q: &Buffer, kv: &Cache, plan: &Plan<'_>, shape: &AttentionShape) -> Result<Buffer> {
        let mut out = self.buffers.take(q.len());
        let AttentionShape { heads, scale, cap, window, causal, .. } = *shape;
        let shape = Shape { heads, scale, cap, window, causal };
        let queries = Queries { q, chunks: &plan.step.chunks, tables: &plan.step.tables };
        attention::attention(&queries, kv, &shape, &mut out);
        Ok(out)
    }

    fn activate(&self, mut x: Buffer, activation: Activation) -> Result<Buffer> {
        match activation {
            Activation::Silu => activation::silu(&mut x),
            Activation::Gelu => activation::gelu(&mut x),
            Activation::GeluTanh => activation::gelu_tanh(&mut x),
        }
        Ok(x)
    }

    fn gate(&self, mut gate: Buffer, up: &Buffer, activation: Activation) -> Result<Buffer> {
        match activation {
            Activation::Gelu => activation::gelu_gate(&mut gate, up),
            Activation::Silu => activation::silu_gate(&mut gate, up),
            Activation::GeluTanh => activation::gelu_tanh_gate(&mut gate, up),
        }
        Ok(gate)
    }

    fn mix(
        &self,
        x: &Buffer,
        scores: &Buffer,
        choice: Experts,
        mut expert: impl FnMut(usize, &Buffer) -> Result<Buffer>,
    ) -> Result<Buffer> {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        routes.choose(scores, choice.count, choice.per_token, choice.normalised);
        let width = x.len() / (scores.len() / choice.count);
        let mut out = self.buffers.take(x.len());
        out.fill(0.0);
        for index in 0..choice.count {
            let (rows, weights) = routes.of(index);
            if rows.is_empty() {
                continue;
            }
            let mut input = self.buffers.take(rows.len() * width);
            routing::gather(x, width, rows, &mut input);
            routing::scatter_add(&expert(index, &input)?, width, (rows, weights), &mut out);
        }
        Ok(out)
    }

    fn gather(&self, x: &Buffer, plan: &Plan<'_>, group: usize) -> Result<Buffer> {
        let group = &plan.step.groups[group];
        let width = x.len() / plan.step.tokens.len();
        let mut out = self.buffers.take(group.rows.len() * width);
        routing::gather(x, width, &group.rows, &mut out);
        Ok(out)
    }

    fn add_rows(&self, mut y: Buffer, plan: &Plan<'_>, group: usize, part: &Buffer) -> Result<Buffer> {
        let group = &plan.step.groups[group];
        let width = y.len() / plan.step.tokens.len();
        routing::scatter_add(part, width, (&group.rows, &group.ones), &mut y);
        Ok(y)
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

    fn read(&self, x: Buffer) -> Result<Floats> {
        Ok(x.into_floats())
    }

    fn recycle(&self, data: Floats) {
        self.buffers.give(data);
    }

    fn copy_block(&self, kv: &mut Cache, _layout: &KvLayout, from: u32, to: u32) -> Result<()> {
        kv.copy_block(from, to);
        Ok(())
    }
}
