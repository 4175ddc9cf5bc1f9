//! FlashAttention-2 (Dao, 2023) as candle ships it, over the same plan as ours: f16 and bf16 alone. Never run by us.

use candle_core::{DType, Tensor};
use candle_flash_attn::flash_attn_varlen_paged_windowed;

use super::kv::Kv;
use super::sequences::{Flash, Sequences};
use crate::pass::backend::{AttentionShape, Result};

/// What its blocks are multiples of.
const BLOCK: usize = 32;

/// `None` where it has no kernel, or is no match for ours: other types, other blocks, and a non-causal window.
pub(super) fn attention(q: &Tensor, kv: &Kv, sequences: &Sequences, shape: &AttentionShape) -> Result<Option<Tensor>> {
    let AttentionShape { heads, kv_heads, head_dim, scale, cap, window, causal } = *shape;
    let size = sequences.block_size;
    let halves = matches!(q.dtype(), DType::F16 | DType::BF16) && kv.keys.dtype() == q.dtype();
    if !q.device().is_cuda() || !halves || !size.is_multiple_of(BLOCK) || !head_dim.is_multiple_of(8) {
        return Ok(None);
    }
    let Some(Flash { ends, most_rows, most_context }) = &sequences.flash else { return Ok(None) };
    if !causal && window.is_some() {
        return Ok(None);
    }
    let blocks = |cache: &Tensor| cache.reshape(((), size, kv_heads, head_dim));
    let rows = q.reshape(((), heads, head_dim))?;
    let out = flash_attn_varlen_paged_windowed(
        &rows,
        &blocks(&kv.keys)?,
        &blocks(&kv.values)?,
        &sequences.starts,
        ends,
        &sequences.tables,
        None,
        *most_rows,
        *most_context,
        scale,
        window.map(|window| window - 1),
        causal.then_some(0),
        size,
        cap,
    )?;
    Ok(Some(out.reshape(q.shape())?))
}
