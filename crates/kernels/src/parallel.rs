//! Which thread computes which part of an output. Every chunk's result depends on the chunk alone.
#![allow(unsafe_code)] // parts of one slice, and columns of one output, dealt to several threads

use std::marker::PhantomData;
use std::ops::Range;

use crate::cores::Cores;

/// Below this many multiplications a call stays on its thread: even threads that look out for work need microseconds.
const WORTH_SHARING: usize = 1 << 17;

/// A range is what is left, shared out so many times among the threads: long ranges first, since each has its beginning to
/// pay, short ones last, so that nobody waits long for the last (guided self-scheduling, Polychronopoulos and Kuck, 1987).
const SHARES: usize = 2;

/// As many threads as this thread's engine has.
pub(super) fn threads() -> usize {
    Cores::threads()
}

/// Calls `compute(index, chunk)` for each `chunk`-sized part of `out`, on several threads when `cost` (multiplications
/// in the whole call) is worth it.
pub(super) fn for_each_chunk<T, F>(out: &mut [T], chunk: usize, cost: usize, compute: F)
where
    T: Send,
    F: Fn(usize, &mut [T]) + Sync,
{
    if cost < WORTH_SHARING {
        return out.chunks_mut(chunk).enumerate().for_each(|(index, part)| compute(index, part));
    }
    let (start, len) = (Start(out.as_mut_ptr()), out.len());
    Cores::run(threads(), len.div_ceil(chunk), &|index| {
        let from = index * chunk;
        // SAFETY: `from..from + chunk`, cut at `len`, lies within `out`, and no other index has any of it; the pool calls
        // each index once and is done before `out` is free again.
        let part = unsafe { std::slice::from_raw_parts_mut(start.at(from), chunk.min(len - from)) };
        compute(index, part);
    });
}

/// Calls `compute` with each index below `count`, on several threads when `cost` is worth it.
pub(super) fn for_each_index<F>(count: usize, cost: usize, compute: F)
where
    F: Fn(usize) + Sync,
{
    if cost < WORTH_SHARING {
        return (0..count).for_each(compute);
    }
    Cores::run(threads(), count, &compute);
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
    let threads = threads();
    let ranges = guided(count, step, threads).count();
    Cores::run(threads, ranges, &|index| {
        compute(guided(count, step, threads).nth(index).expect("an index below their number"));
    });
}

/// `0..count` in ranges of falling length, multiples of `step` but for the last.
fn guided(count: usize, step: usize, threads: usize) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let left = count - start;
        let length = left.div_ceil(SHARES * threads).next_multiple_of(step).min(left);
        start += length;
        (length > 0).then_some(start - length..start)
    })
}

/// Calls `compute(index, part)` with what `range` covers of each of `counts`, which lie end to end.
pub(super) fn for_each_part(
    counts: impl Iterator<Item = usize>,
    range: Range<usize>,
    mut compute: impl FnMut(usize, Range<usize>),
) {
    let mut first = 0;
    for (index, count) in counts.enumerate() {
        let within = |at: usize| at.clamp(first, first + count) - first;
        let part = within(range.start)..within(range.end);
        if !part.is_empty() {
            compute(index, part);
        }
        first += count;
    }
}

/// Row counts `1..=most` that cover `rows`, as evenly as possible.
pub(super) fn blocks(rows: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let count = rows.div_ceil(most);
    (0..count).map(move |index| rows * index / count..rows * (index + 1) / count)
}

struct Start<T>(*mut T);

// SAFETY: it is only used to cut disjoint slices, each for one thread, out of one that the caller has for itself.
unsafe impl<T: Send> Sync for Start<T> {}

impl<T> Start<T> {
    fn at(&self, offset: usize) -> *mut T {
        self.0.wrapping_add(offset)
    }
}

/// A slice of which several threads fill parts.
pub(super) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    whole: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for a `&mut [T]`; whoever asks for a part promises that nobody else has it.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub fn new(slice: &'a mut [T]) -> Shared<'a, T> {
        Shared { start: slice.as_mut_ptr(), len: slice.len(), whole: PhantomData }
    }

    /// # Safety
    /// Until the returned slice is dropped nobody else asks for any of it.
    ///
    /// # Panics
    /// When it is not within the whole.
    #[allow(clippy::mut_from_ref)] // that is its purpose, and why it is unsafe
    pub unsafe fn part(&self, part: Range<usize>) -> &mut [T] {
        assert!(part.start <= part.end && part.end <= self.len, "{part:?} of {}", self.len);
        // SAFETY: within the slice that `new` took, by the assertion; nobody else has it, as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(part.start), part.len()) }
    }
}

/// An output `[T, outputs]` of which several threads fill columns.
pub(super) struct Columns<'a> {
    start: *mut f32,
    rows: usize,
    outputs: usize,
    /// Columns before this belong to others.
    first: usize,
    whole: PhantomData<&'a mut [f32]>,
}

// SAFETY: it stands for a `&mut [f32]` that several threads write to, each its own columns: callers deal every column to
// one range of `for_each_range`.
unsafe impl Send for Columns<'_> {}
// SAFETY: as above.
unsafe impl Sync for Columns<'_> {}

impl<'a> Columns<'a> {
    /// # Panics
    /// When `out` is not of whole rows.
    pub fn new(out: &'a mut [f32], outputs: usize) -> Columns<'a> {
        let rows = out.len().checked_div(outputs).unwrap_or(0);
        assert_eq!(out.len(), rows * outputs, "whole rows");
        Columns { start: out.as_mut_ptr(), rows, outputs, first: 0, whole: PhantomData }
    }

    /// The same output with columns counted from `first` on.
    pub fn starting_at(&self, first: usize) -> Columns<'_> {
        let Columns { start, rows, outputs, .. } = *self;
        Columns { start, rows, outputs, first: self.first + first, whole: PhantomData }
    }

    /// Where row `t` goes from `column` on, and how many numbers it has from there.
    pub fn place(&self, t: usize, column: usize) -> (*mut f32, usize) {
        let column = self.first + column;
        assert!(t < self.rows && column < self.outputs, "output {t},{column}");
        // SAFETY: within the slice that `new` took, by the assertion.
        (unsafe { self.start.add(t * self.outputs + column) }, self.outputs - column)
    }

    /// One output.
    pub fn set(&self, t: usize, column: usize, y: f32) {
        // SAFETY: `place` is inside, and nobody else touches it meanwhile.
        unsafe { self.place(t, column).0.write(y) }
    }

    /// Row `t` from `column` on.
    ///
    /// # Panics
    /// When the row ends before the numbers do.
    pub fn write_each(&self, t: usize, column: usize, y: impl ExactSizeIterator<Item = f32>) {
        let (place, count) = self.place(t, column);
        assert!(y.len() <= count, "{} numbers where {count} are left", y.len());
        // SAFETY: `place` gave room for `count` numbers, which nobody else touches meanwhile.
        let out = unsafe { std::slice::from_raw_parts_mut(place, y.len()) };
        out.iter_mut().zip(y).for_each(|(out, y)| *out = y);
    }

    /// Row `t` from `column` on; numbers beyond its end are dropped.
    pub fn write(&self, t: usize, column: usize, y: &[f32]) {
        let (place, count) = self.place(t, column);
        // SAFETY: `place` gave room for `count` numbers, which nobody else touches meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(y.as_ptr(), place, count.min(y.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_several_cover_each_once() {
        let counts = [3, 0, 5, 1];
        let mut seen = Vec::new();
        for range in [0..2, 2..4, 4..4, 4..9] {
            for_each_part(counts.into_iter(), range, |index, part| seen.extend(part.map(|at| (index, at))));
        }
        let all = counts.into_iter().enumerate().flat_map(|(index, count)| (0..count).map(move |at| (index, at)));
        assert_eq!(seen, all.collect::<Vec<_>>());
    }

    #[test]
    fn guided_ranges_cover_all_once_and_grow_no_longer() {
        for (count, step, threads) in [(0, 4, 2), (1, 4, 2), (96, 1, 1), (100, 4, 2), (4748, 2, 7), (5, 8, 64)] {
            let ranges: Vec<Range<usize>> = guided(count, step, threads).collect();
            let joined: Vec<usize> = ranges.iter().cloned().flatten().collect();
            assert_eq!(joined, (0..count).collect::<Vec<_>>());
            assert!(ranges.windows(2).all(|two| two[0].len() >= two[1].len() && two[0].len().is_multiple_of(step)));
        }
    }
}
