//! Which positions a row sees, and how they come from the paged cache into shared memory.
#pragma once

#include "types.cuh"

namespace forebay {

/// Positions that are fetched together. Block sizes are multiples of it, so one look into the block table does.
constexpr uint32_t SLICE = 16;

/// Static shared memory that every device grants a block.
constexpr uint32_t SHARED_BYTES = 48 * 1024;

/// From one row to the next in shared memory: 16 bytes more than the numbers take, so that eight rows at one column,
/// which is what `load_matrices` reads, lie in different banks.
template <typename C, int D>
constexpr uint32_t ROW = D + WIDE<C>;

/// The end of a range of positions is exclusive.
struct Range {
    uint32_t from;
    uint32_t to;
};

/// The first position that one at `position` sees.
__device__ inline uint32_t first_seen(uint32_t position, uint32_t window) {
    return window != 0 && position >= window ? position - window + 1 : 0;
}

/// One sequence's cache of one KV head.
template <typename C>
struct HeadCache {
    /// That head in slot 0.
    const C* keys;
    const C* values;
    /// The sequence's row of the block tables.
    const uint32_t* table;
    uint32_t block_size;
    /// From one slot to the next.
    uint32_t stride;
    uint32_t head_dim;

    /// The slot of `position`.
    __device__ uint32_t slot(uint32_t position) const {
        const uint32_t block = position / block_size;
        return table[block] * block_size + (position - block * block_size);
    }
};

/// Begins to copy a slice of the keys or the values, `[SLICE, ROW]` from slot `slot` on, as thread `thread` of
/// `THREADS`. What lies outside `live` (counted from the slice's begin) becomes zero, as do the lanes behind
/// `head_dim`: stale memory may hold NaN, and 0 * NaN is NaN.
template <typename C, int D, uint32_t THREADS>
__device__ inline void copy_slice(
    C* shared, const C* all, uint32_t slot, const HeadCache<C>& cache, Range live, uint32_t thread) {
    constexpr uint32_t PACKS = D / WIDE<C>;
    static_assert(SLICE * PACKS % THREADS == 0);
#pragma unroll 8
    for (uint32_t i = 0; i < SLICE * PACKS / THREADS; i++) {
        const uint32_t index = i * THREADS + thread;
        const uint32_t row = index / PACKS, column = index % PACKS * WIDE<C>;
        const bool seen = row >= live.from && row < live.to && column < cache.head_dim;
        const size_t from = seen ? static_cast<size_t>(slot + row) * cache.stride + column : 0;
        copy_async(shared + row * ROW<C, D> + column, all + from, seen);
    }
}

/// The part of `range` that lies in the slice at `position`, counted from there; empty where there is none.
__device__ inline Range within_slice(Range range, uint32_t position) {
    const uint32_t from = range.from > position ? range.from - position : 0;
    return {from, range.to > position ? range.to - position : 0};
}

}  // namespace forebay
