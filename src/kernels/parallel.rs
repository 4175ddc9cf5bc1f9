//! Who computes which part of an output. Never how: every chunk's result depends on the chunk alone.

use std::ops::Range;

use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};
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

/// Calls `compute` with ranges that cover `0..count` once, multiples of `step` long but for the last, on several threads
/// when `cost` is worth it.
pub(super) fn for_each_range<F>(count: usize, step: usize, cost: usize, compute: F)
where
    F: Fn(Range<usize>) + Sync + Send,
{
    if cost < WORTH_SHARING {
        return compute(0..count);
    }
    // Several ranges a thread, so that one which is held up leaves its share to the others.
    let chunk = count.div_ceil(RANGES_PER_THREAD * rayon::current_num_threads()).next_multiple_of(step);
    (0..count.div_ceil(chunk)).into_par_iter().for_each(|index| {
        compute(index * chunk..((index + 1) * chunk).min(count));
    });
}

const RANGES_PER_THREAD: usize = 8;
