//! Causal attention that reads keys and values where they lie: through block tables, in the paged cache.
//!
//! Each (token, head) is computed on its own, over its positions in ascending order: scores, their maximum, exponentials
//! and their sum, then the weighted values. So the result depends on the token's own past only; which blocks hold it,
//! who else is in the step and how the prompt was cut leave no trace. Slots that no position maps to are never read.

use super::dot::dot;
use super::parallel::for_each_chunk;

/// Head counts and the layout `[num_blocks, block_size, kv_heads, head_dim]` of the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// A multiple of `kv_heads`; head `h` reads the keys and values of head `h / (heads / kv_heads)`.
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub block_size: usize,
    /// What scores are multiplied by before the softmax.
    pub scale: f32,
    /// A token sees itself and the `window - 1` positions before it; `None` sees all.
    pub window: Option<usize>,
}

/// Where one token stands: its position, and the blocks of its sequence.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    pub position: usize,
    /// Physical block of each logical one; covers `position`.
    pub table: &'a [u32],
}

/// `q` is `[T, heads, head_dim]`, `keys` and `values` one layer's cache, `queries` has `T` entries; returns
/// `[T, heads, head_dim]`.
///
/// # Panics
/// When a table does not cover its position or names a block outside the cache.
pub fn attention(q: &[f32], keys: &[f32], values: &[f32], queries: &[Query], shape: &Shape) -> Vec<f32> {
    let group = shape.heads / shape.kv_heads;
    assert_eq!(q.len(), queries.len() * shape.heads * shape.head_dim, "queries");
    assert_eq!(keys.len(), values.len(), "keys and values");
    let mut out = vec![0.0; q.len()];
    let seen: usize = queries.iter().map(|query| shape.span(query.position).len()).sum();
    let cost = seen * shape.heads * shape.head_dim * 2;
    // One unit of work: the heads of one token that share a key/value head.
    let unit = group * shape.head_dim;
    for_each_chunk(&mut out, unit, cost, |index, out| {
        let query = queries[index / shape.kv_heads];
        let cache = Cache { keys, values, table: query.table, shape, kv_head: index % shape.kv_heads };
        let q = &q[index * unit..][..unit];
        for (q, out) in q.chunks_exact(shape.head_dim).zip(out.chunks_exact_mut(shape.head_dim)) {
            one_head(q, &cache, shape.span(query.position), out);
        }
    });
    out
}

impl Shape {
    /// The positions that a token at `position` sees.
    fn span(&self, position: usize) -> std::ops::Range<usize> {
        let start = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
        start..position + 1
    }
}

/// One sequence's keys and values of one head.
struct Cache<'a> {
    keys: &'a [f32],
    values: &'a [f32],
    table: &'a [u32],
    shape: &'a Shape,
    kv_head: usize,
}

impl Cache<'_> {
    #[inline]
    fn offset(&self, position: usize) -> usize {
        let Shape { kv_heads, head_dim, block_size, .. } = *self.shape;
        let slot = self.table[position / block_size] as usize * block_size + position % block_size;
        (slot * kv_heads + self.kv_head) * head_dim
    }

    fn key(&self, position: usize) -> &[f32] {
        &self.keys[self.offset(position)..][..self.shape.head_dim]
    }

    fn value(&self, position: usize) -> &[f32] {
        &self.values[self.offset(position)..][..self.shape.head_dim]
    }
}

/// `out` is zero on entry.
fn one_head(q: &[f32], cache: &Cache, span: std::ops::Range<usize>, out: &mut [f32]) {
    let scale = cache.shape.scale;
    let mut scores: Vec<f32> = span.clone().map(|position| dot(q, cache.key(position)) * scale).collect();
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for score in &mut scores {
        *score = (*score - max).exp();
        sum += *score;
    }
    for (position, weight) in span.zip(&scores) {
        for (out, value) in out.iter_mut().zip(cache.value(position)) {
            *out += weight * value;
        }
    }
    let scale = 1.0 / sum;
    out.iter_mut().for_each(|out| *out *= scale);
}

#[cfg(test)]
mod tests;
