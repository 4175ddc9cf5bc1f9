//! Who computes which part of an output. Never how: every chunk's result depends on the chunk alone.

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

/// Below this many multiplications a call stays on its thread: waking the others costs several microseconds.
const WORTH_SHARING: usize = 1 << 17;

/// Calls `compute(index, chunk)` for each `chunk`-sized part of `out`, on several threads when `cost` (multiplications
/// in the whole call) is worth it.
pub(super) fn for_each_chunk<F>(out: &mut [f32], chunk: usize, cost: usize, compute: F)
where
    F: Fn(usize, &mut [f32]) + Sync + Send,
{
    if cost < WORTH_SHARING {
        out.chunks_mut(chunk).enumerate().for_each(|(index, part)| compute(index, part));
    } else {
        out.par_chunks_mut(chunk).enumerate().for_each(|(index, part)| compute(index, part));
    }
}
