//! Who computes which part of an output. Never how: every chunk's result depends on the chunk alone.
#![allow(unsafe_code)] // parts of one slice, dealt to several threads

use std::ops::Range;

use super::pool::Pool;

/// Below this many multiplications a call stays on its thread: even threads that look out for work need microseconds.
const WORTH_SHARING: usize = 1 << 17;

/// Ranges a thread gets, so that one which is held up leaves its share to the others.
const RANGES_PER_THREAD: usize = 8;

/// As many threads as rayon would use here: `RAYON_NUM_THREADS`, or the number of the pool that installed the caller.
pub(super) fn threads() -> usize {
    rayon::current_num_threads()
}

/// Calls `compute(index, chunk)` for each `chunk`-sized part of `out`, on several threads when `cost` (multiplications
/// in the whole call) is worth it.
pub(super) fn for_each_chunk<F>(out: &mut [f32], chunk: usize, cost: usize, compute: F)
where
    F: Fn(usize, &mut [f32]) + Sync,
{
    if cost < WORTH_SHARING {
        return out.chunks_mut(chunk).enumerate().for_each(|(index, part)| compute(index, part));
    }
    let (start, len) = (Start(out.as_mut_ptr()), out.len());
    Pool::get().run(threads(), len.div_ceil(chunk), &|index| {
        let from = index * chunk;
        // SAFETY: `from..from + chunk`, cut at `len`, lies within `out`, and no other index has any of it; the pool calls
        // each index once and is done before `out` is free again.
        let part = unsafe { std::slice::from_raw_parts_mut(start.at(from), chunk.min(len - from)) };
        compute(index, part);
    });
}

/// Calls `compute` with ranges that cover `0..count` once, multiples of `step` long but for the last, on several threads
/// when `cost` is worth it.
pub(super) fn for_each_range<F>(count: usize, step: usize, cost: usize, compute: F)
where
    F: Fn(Range<usize>) + Sync,
{
    if cost < WORTH_SHARING {
        return compute(0..count);
    }
    let chunk = count.div_ceil(RANGES_PER_THREAD * threads()).next_multiple_of(step);
    Pool::get().run(threads(), count.div_ceil(chunk), &|index| {
        compute(index * chunk..((index + 1) * chunk).min(count));
    });
}

struct Start(*mut f32);

// SAFETY: it is only used to cut disjoint slices out of one that the caller has for itself.
unsafe impl Sync for Start {}

impl Start {
    fn at(&self, offset: usize) -> *mut f32 {
        self.0.wrapping_add(offset)
    }
}
