//! Paged attention over a packed step, and the writing of its keys and values: here the plain definition, in `f32` over
//! the same arrays that the kernels read; on CUDA the kernels (`kernels/cuda`).

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp1, InplaceOp2, Layout, Result, Shape, Tensor};

use super::kv::Kv;
use super::numbers::{self, Numbers};
#[cfg(feature = "cuda")]
use super::sequences::SPLIT;
use super::sequences::Sequences;
use crate::pass::backend::AttentionShape;
#[cfg(feature = "cuda")]
use forebay_kernels::cuda;

/// Writes rows of keys, in place of what was in their slots. With `values`, the kernel writes those in the same launch.
pub(super) struct Store<'a> {
    pub slots: &'a Tensor,
    /// Values `[T, width]`, and their cache.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub values: Option<(&'a Tensor, &'a Tensor)>,
}

/// Both halves of a step's rows to both halves of the cache.
pub(super) fn store(kv: &Kv, slots: &Tensor, k: &Tensor, v: &Tensor) -> Result<()> {
    let (k, v) = (k.contiguous()?, v.contiguous()?);
    if k.device().is_cuda() {
        return kv.keys.inplace_op2(&k, &Store { slots, values: Some((&v, &kv.values)) });
    }
    kv.keys.inplace_op2(&k, &Store { slots, values: None })?;
    kv.values.inplace_op2(&v, &Store { slots, values: None })
}

impl InplaceOp2 for Store<'_> {
    fn name(&self) -> &'static str {
        "paged-store"
    }

    fn cpu_fwd(&self, cache: &mut CpuStorage, cache_layout: &Layout, rows: &CpuStorage, layout: &Layout) -> Result<()> {
        let rows = Numbers::of(rows, layout)?;
        let start = numbers::range(cache_layout)?.start;
        let slots = self.slots.to_vec1::<u32>()?;
        let width = rows.len() / slots.len();
        let mut row = Vec::new();
        for (index, slot) in slots.into_iter().enumerate() {
            rows.read(index * width..(index + 1) * width, &mut row);
            numbers::write(cache, start + slot as usize * width, &row)?;
        }
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, keys: &mut CudaStorage, keys_layout: &Layout, k: &CudaStorage, layout: &Layout) -> Result<()> {
        let Some((v, values)) = self.values else { candle_core::bail!("keys and values are written together on CUDA") };
        cuda::store((k, layout), v, (&*keys, keys_layout), values, self.slots)
    }
}

/// Each row of the queries `[T, heads * head_dim]` against the cached positions that it sees.
pub(super) struct Attention<'a> {
    pub kv: &'a Kv,
    pub sequences: &'a Sequences,
    pub shape: &'a AttentionShape,
}

impl CustomOp1 for Attention<'_> {
    fn name(&self) -> &'static str {
        "paged-attention"
    }

    fn cpu_fwd(&self, q: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let dtype = q.dtype();
        let q = Numbers::of(q, layout)?;
        let out = numbers::with(&self.kv.keys, |keys| {
            numbers::with(&self.kv.values, |values| Definition::new(self, &q, &keys, &values)?.attend())
        })?;
        Ok((numbers::rounded(out, dtype)?, layout.shape().clone()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, q: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let Sequences { tables, contexts, starts, decodes, tiles, block_size, longest, .. } = self.sequences;
        let AttentionShape { heads, kv_heads, head_dim, scale, cap, window, causal } = *self.shape;
        let sequences = cuda::Sequences { tables, contexts, starts, block_size: *block_size };
        let shape = cuda::Shape { heads, kv_heads, head_dim, scale, cap: cap.unwrap_or(0.0), window, causal };
        let out = cuda::attention(
            (q, layout),
            (&self.kv.keys, &self.kv.values),
            &sequences,
            decodes.as_ref().map(|items| cuda::Decodes { items, split: SPLIT, splits: longest.div_ceil(SPLIT) }),
            tiles.as_ref(),
            &shape,
        )?;
        Ok((out, layout.shape().clone()))
    }
}

/// One call on the CPU.
struct Definition<'a> {
    q: &'a Numbers<'a>,
    keys: &'a Numbers<'a>,
    values: &'a Numbers<'a>,
    shape: &'a AttentionShape,
    sequences: &'a Sequences,
    /// `[S][max_blocks]`
    tables: Vec<Vec<u32>>,
    contexts: Vec<u32>,
    starts: Vec<u32>,
    out: Vec<f32>,
}

impl<'a> Definition<'a> {
    fn new(op: &'a Attention, q: &'a Numbers, keys: &'a Numbers, values: &'a Numbers) -> Result<Definition<'a>> {
        Ok(Definition {
            q,
            keys,
            values,
            shape: op.shape,
            sequences: op.sequences,
            tables: op.sequences.tables.to_vec2()?,
            contexts: op.sequences.contexts.to_vec1()?,
            starts: op.sequences.starts.to_vec1()?,
            // A row that neither list names stays NaN, and shows.
            out: vec![f32::NAN; q.len()],
        })
    }

    fn attend(mut self) -> Result<Vec<f32>> {
        let decodes = self.sequences.decodes.as_ref().map_or(Ok(Vec::new()), Tensor::to_vec1::<u32>)?;
        for sequence in decodes {
            self.row(sequence as usize, 0);
        }
        let tiles = self.sequences.tiles.as_ref().map_or(Ok(Vec::new()), Tensor::to_vec2::<u32>)?;
        for tile in tiles {
            let (sequence, first) = (tile[0] as usize, tile[1] as usize);
            let rows = (self.starts[sequence + 1] - self.starts[sequence]) as usize;
            for row in first..rows.min(first + self.sequences.tile_rows) {
                self.row(sequence, row);
            }
        }
        Ok(self.out)
    }

    /// The `row`-th of a sequence's chunk, all heads.
    fn row(&mut self, sequence: usize, row: usize) {
        let AttentionShape { heads, kv_heads, head_dim, window, causal, .. } = *self.shape;
        let rows = (self.starts[sequence + 1] - self.starts[sequence]) as usize;
        let context = self.contexts[sequence] as usize;
        let position = context - rows + row;
        let end = if causal { position + 1 } else { context };
        let begin = window.map_or(0, |window| (position + 1).saturating_sub(window));
        let at = (self.starts[sequence] as usize + row) * heads * head_dim;
        let mut q = Vec::new();
        for head in 0..heads {
            let range = at + head * head_dim..at + (head + 1) * head_dim;
            self.q.read(range.clone(), &mut q);
            let kv_head = head / (heads / kv_heads);
            let mixed = self.head(&q, sequence, kv_head, begin..end);
            self.out[range].copy_from_slice(&mixed);
        }
    }

    /// A softmax over the scores of `positions`, and the values weighted by it.
    fn head(&self, q: &[f32], sequence: usize, kv_head: usize, positions: std::ops::Range<usize>) -> Vec<f32> {
        let AttentionShape { kv_heads, head_dim, scale, cap, .. } = *self.shape;
        let size = self.sequences.block_size;
        let range = |position: usize| {
            let slot = self.tables[sequence][position / size] as usize * size + position % size;
            let start = (slot * kv_heads + kv_head) * head_dim;
            start..start + head_dim
        };
        let mut cached = Vec::new();
        let score = |position: usize| {
            self.keys.read(range(position), &mut cached);
            let score = q.iter().zip(&cached).map(|(q, k)| q * k).sum::<f32>() * scale;
            cap.map_or(score, |cap| cap * (score / cap).tanh())
        };
        let mut weights: Vec<f32> = positions.clone().map(score).collect();
        let highest = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        weights.iter_mut().for_each(|weight| *weight = (*weight - highest).exp());
        let total: f32 = weights.iter().sum();
        let mut mixed = vec![0.0; head_dim];
        for (position, weight) in positions.zip(weights) {
            self.values.read(range(position), &mut cached);
            mixed.iter_mut().zip(&cached).for_each(|(sum, v)| *sum += weight / total * v);
        }
        mixed
    }
}
