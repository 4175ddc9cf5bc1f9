//! Where our kernels do not run (Metal): candle's own ops, sequence after sequence, over gathered blocks. Never run by us.

use candle_core::{D, Tensor};
use candle_nn::{ops, rotary_emb};

use super::fused::capped;
use super::kv::Kv;
use super::sequences::RowAngles;
use crate::pass::backend::{AttentionShape, Result};
use crate::types::batch::Step;
use forebay_kernels::attention::Chunk;

/// Each sequence's rows, and where its past lies.
#[derive(Default)]
pub(super) struct Chunks(Vec<Past>);

struct Past {
    start: usize,
    rows: usize,
    /// `[context]` slots of positions `0..context`.
    slots: Vec<u32>,
}

impl Chunks {
    pub(super) fn new(step: &Step) -> Chunks {
        let past = |chunk: &Chunk| {
            let slots = step.context_slots(chunk, chunk.position + chunk.rows.len());
            Past { start: chunk.rows.start, rows: chunk.rows.len(), slots }
        };
        Chunks(step.chunks.iter().map(past).collect())
    }

    pub(super) fn attention(&self, q: &Tensor, kv: &Kv, shape: &AttentionShape) -> Result<Tensor> {
        let each = |past: &Past| past.attention(&q.narrow(0, past.start, past.rows)?, kv, shape);
        let parts = self.0.iter().map(each).collect::<Result<Vec<_>>>()?;
        Ok(Tensor::cat(&parts, 0)?)
    }
}

impl Past {
    fn attention(&self, q: &Tensor, kv: &Kv, shape: &AttentionShape) -> Result<Tensor> {
        let AttentionShape { heads, kv_heads, head_dim, scale, cap, window, causal } = *shape;
        // What the first row does not see, no row sees.
        let first = self.slots.len() - self.rows;
        let begin = window.map_or(0, |window| (first + 1).saturating_sub(window));
        let slots = Tensor::new(&self.slots[begin..], q.device())?;
        let context = self.slots.len() - begin;
        // [context, kv_heads, head_dim] → [1, kv_heads, context, head_dim]
        let gather = |cache: &Tensor| {
            let rows = cache.index_select(&slots, 0)?.to_dtype(q.dtype())?.reshape((1, context, kv_heads, head_dim))?;
            rows.transpose(1, 2)?.contiguous()
        };
        let (k, v) = (gather(&kv.keys)?, gather(&kv.values)?);
        let q = q.reshape((1, self.rows, heads, head_dim))?.transpose(1, 2)?.contiguous()?;
        let out = if self.rows == 1 {
            // 1 is "no cap" there.
            ops::sdpa(&q, &k, &v, None, false, scale, cap.unwrap_or(1.0))?
        } else {
            let group = heads / kv_heads;
            // Heads of a group side by side: [1, kv_heads, group * rows, head_dim]
            let q = (q.reshape((1, kv_heads, group * self.rows, head_dim))? * f64::from(scale))?;
            let mut scores = q.matmul(&k.t()?)?.reshape((1, heads, self.rows, context))?;
            if let Some(cap) = cap {
                scores = capped(&scores, cap)?;
            }
            if causal {
                scores = scores.broadcast_add(&self.mask(begin, window, &scores)?)?;
            }
            let weights = ops::softmax(&scores, D::Minus1)?.reshape((1, kv_heads, group * self.rows, context))?;
            weights.matmul(&v)?.reshape((1, heads, self.rows, head_dim))?
        };
        Ok(out.transpose(1, 2)?.contiguous()?.reshape((self.rows, heads * head_dim))?)
    }

    /// `[rows, context]`, 0 where a row sees a position and -∞ where not.
    fn mask(&self, begin: usize, window: Option<usize>, like: &Tensor) -> Result<Tensor> {
        let first = self.slots.len() - self.rows;
        let sees = |row: usize, key: usize| key <= row && window.is_none_or(|window| key + window > row);
        let value = |row, key| if sees(row, key) { 0.0 } else { f32::NEG_INFINITY };
        let rows = first..first + self.rows;
        let mask: Vec<f32> = rows.flat_map(|row| (begin..self.slots.len()).map(move |key| value(row, key))).collect();
        Ok(Tensor::from_vec(mask, (self.rows, self.slots.len() - begin), like.device())?.to_dtype(like.dtype())?)
    }
}

pub(super) fn store(kv: &Kv, slots: &Tensor, k: &Tensor, v: &Tensor) -> Result<()> {
    let slots = slots.unsqueeze(1)?.broadcast_as(k.shape())?.contiguous()?;
    for (cache, rows) in [(&kv.keys, k), (&kv.values, v)] {
        cache.scatter_set(&slots, &rows.to_dtype(cache.dtype())?.contiguous()?, 0)?;
    }
    Ok(())
}

pub(super) fn rope(x: &Tensor, angles: &RowAngles, head_dim: usize) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let RowAngles { cos, sin, dims } = angles;
    // Rows as candle's batch axis, so that each has its own angles.
    let turn = |angles: &Tensor| angles.to_dtype(x.dtype())?.reshape((rows, 1, dims / 2));
    let heads = x.reshape((rows, width / head_dim, 1, head_dim))?;
    let turned = rotary_emb::rope(&heads.narrow(3, 0, *dims)?.contiguous()?, &turn(cos)?, &turn(sin)?)?;
    let rest = heads.narrow(3, *dims, head_dim - dims)?;
    let heads = if *dims == head_dim { turned } else { Tensor::cat(&[&turned, &rest], 3)? };
    Ok(heads.reshape((rows, width))?)
}
