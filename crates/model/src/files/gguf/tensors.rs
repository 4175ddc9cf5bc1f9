//! A file's tensors under the names and in the row order that a decoder expects.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::file::Gguf;
use crate::files::map::Bytes;
use crate::files::names::{self, InGguf};
use crate::files::numbers::{Numbers, Packed};
use crate::types::error::{LoadError, TensorRule};
use crate::types::spec::decoder::{DecoderSpec, NormPlacement};
use forebay_kernels::packed::Packing;

/// The tensors of one file.
pub(crate) struct GgufWeights {
    file: Gguf,
    norms: NormPlacement,
    /// How many matrices lie behind each other where experts do.
    experts: Option<usize>,
    /// Query and key heads whose rows llama.cpp has reordered; `None` where it leaves them alone.
    reordered: Option<HeadCounts>,
}

#[derive(Clone, Copy)]
struct HeadCounts {
    queries: usize,
    keys: usize,
}

/// Architectures whose RoPE llama.cpp lets rotate neighbours: its converter interleaves the halves of each query and key
/// head for them. Ours rotates halves, as checkpoints have it.
pub(crate) const INTERLEAVED: [&str; 3] = ["llama", "granite", "smollm3"];

impl GgufWeights {
    pub(crate) fn new(file: Gguf, spec: &DecoderSpec) -> Result<GgufWeights, LoadError> {
        let interleaved = INTERLEAVED.contains(&file.architecture()?);
        let reordered = interleaved.then_some(HeadCounts { queries: spec.heads, keys: spec.kv_heads });
        let experts = spec.experts.map(|experts| experts.count);
        Ok(GgufWeights { file, norms: spec.norms, experts, reordered })
    }

    /// The tensor that checkpoints call `name`, once its shape and type are found to be right. Only reordered query and key
    /// weights are copied; all others stay in the file.
    pub(crate) fn numbers(&self, name: &str, shape: &[usize]) -> Result<Numbers, LoadError> {
        let InGguf { name, expert } = names::in_gguf(name, self.norms);
        let fault = |rule| self.file.fault(&name, rule);
        let tensor = self.file.tensor(&name).ok_or_else(|| fault(TensorRule::Missing))?;
        let stacked = expert.and(self.experts);
        let expected: Vec<usize> = stacked.into_iter().chain(shape.iter().copied()).collect();
        if tensor.shape != expected {
            return Err(fault(TensorRule::Shape { expected, found: tensor.shape.clone() }));
        }
        let packing = tensor.kind.packing.ok_or_else(|| fault(TensorRule::Packing { found: tensor.kind.name }))?;
        let (file, mut range) = (&self.file.bytes, tensor.bytes.clone());
        if let (Some(count), Some(expert)) = (stacked, expert) {
            let each = range.len() / count;
            range = range.start + expert * each..range.start + (expert + 1) * each;
        }
        Ok(Numbers::Packed(match self.reordered_heads(&name) {
            None => Packed::new(packing, file.clone(), range),
            Some(heads) => {
                let rows = in_halves(&file[range], heads, shape[0] / heads).map_err(fault)?;
                let whole = 0..rows.len();
                Packed::new(packing, Arc::new(Bytes::Owned(rows)), whole)
            }
        }))
    }

    /// Bytes on a device where matrices of types for which it has kernels `stay` as they are, and other numbers take `width`.
    pub(crate) fn bytes(&self, stay: impl Fn(Packing) -> bool, width: usize) -> u64 {
        let each = self.file.header.tensors.values().map(|tensor| match tensor.kind.packing {
            Some(packing) if tensor.shape.len() > 1 && stay(packing) => tensor.bytes.len() as u64,
            _ => tensor.shape.iter().product::<usize>() as u64 * width as u64,
        });
        each.sum()
    }

    /// The types of blocks that do not `stay`, in the order of their names.
    pub(crate) fn unpacked(&self, stay: impl Fn(Packing) -> bool) -> Vec<&'static str> {
        let packings = self.file.header.tensors.values().filter_map(|tensor| tensor.kind.packing);
        let unpacked = packings.filter(|packing| packing.block().0 > 1 && !stay(*packing));
        unpacked.map(Packing::name).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn reordered_heads(&self, name: &str) -> Option<usize> {
        let counts = self.reordered?;
        let is =
            |module: &str| name.ends_with(&format!(".{module}.weight")) || name.ends_with(&format!(".{module}.bias"));
        if is("attn_q") {
            Some(counts.queries)
        } else if is("attn_k") {
            Some(counts.keys)
        } else {
            None
        }
    }
}

/// Rows `0, 2, 4, …` of each head, then `1, 3, 5, …`. Rows are whole blocks, so they move as bytes.
fn in_halves(bytes: &[u8], heads: usize, head_dim: usize) -> Result<Vec<u8>, TensorRule> {
    let row = bytes.len() / (heads * head_dim);
    let mut out = Vec::new();
    out.try_reserve_exact(bytes.len()).map_err(|_| TensorRule::Allocation { bytes: bytes.len() })?;
    for head in bytes.chunks_exact(row * head_dim) {
        for first in [0, 1] {
            head.chunks_exact(row).skip(first).step_by(2).for_each(|row| out.extend_from_slice(row));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_put_back_head_by_head() {
        // Two heads of four rows of two bytes.
        let rows = |order: [u8; 8]| order.iter().flat_map(|&row| [row, row + 100]).collect::<Vec<u8>>();
        assert_eq!(in_halves(&rows([0, 2, 1, 3, 4, 6, 5, 7]), 2, 4).unwrap(), rows([0, 1, 2, 3, 4, 5, 6, 7]));
    }
}
