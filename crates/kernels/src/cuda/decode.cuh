//! Attention of one query row per sequence: bound by how fast keys and values arrive.
//!
//! A block takes one range of positions of one KV head, and the heads of the group as the rows of a tensor-core tile,
//! so that each key is read once. Its warps work on slices of their own (slice `i` belongs to warp `i % warps`, by
//! absolute position) with buffers of their own, and meet only at the end: while one computes, the others' copies are
//! under way.
#pragma once

#include "fragments.cuh"
#include "launches.h"

namespace forebay {

template <typename A, typename C>
struct DecodeArguments {
    const A* q;
    const C* k_cache;
    const C* v_cache;
    const uint32_t* block_tables;
    const uint32_t* contexts;
    const uint32_t* starts;
    const uint32_t* items;
    float* partial;
    float* stats;
    uint32_t kv_heads;
    uint32_t group;
    uint32_t head_dim;
    uint32_t block_size;
    uint32_t max_blocks;
    uint32_t split_len;
    Scoring scoring;
    uint32_t window;
};

/// How much of a row is one block's: the part of its range that is seen.
__device__ inline Range split_range(uint32_t split, uint32_t split_len, uint32_t context, uint32_t window) {
    const uint32_t from = max(split * split_len, context == 0 ? 0 : first_seen(context - 1, window));
    return {from, min((split + 1) * split_len, context)};
}

template <typename C, int D>
struct DecodeShared {
    static constexpr uint32_t SLICE_NUMBERS = SLICE * ROW<C, D>;
    static constexpr uint32_t FIT = SHARED_BYTES / (2 * SLICE_NUMBERS * sizeof(C));
    /// Warps with buffers. The others of the block only help to write.
    static constexpr uint32_t WARPS = FIT >= 4 ? 4 : FIT >= 2 ? 2 : 1;

    alignas(16) C keys[WARPS][SLICE_NUMBERS];
    alignas(16) C values[WARPS][SLICE_NUMBERS];
};

/// What is left of the warps' buffers once they are done.
template <int D>
struct DecodeMerge {
    float sums[QUERY_ROWS][D];
    float maximum[4][QUERY_ROWS];
    float weight[4][QUERY_ROWS];
};

/// One warp over its slices of `range`.
template <typename A, typename C, int D>
__device__ inline void decode_slices(
    Softmax<D>& softmax, const QueryRows<A>& rows, const HeadCache<C>& cache, Range range, Scoring scoring,
    DecodeShared<C, D>& shared, uint32_t warp, uint32_t lane) {
    constexpr uint32_t STEP = DecodeShared<C, D>::WARPS * SLICE;
    C* keys = shared.keys[warp];
    C* values = shared.values[warp];
    // Of the warp's slices, the first that does not end before the range.
    uint32_t position = range.from / STEP * STEP + warp * SLICE;
    if (position + SLICE <= range.from) position += STEP;
    if (position >= range.to) return;
    // Looked up one slice ahead, so that the answer is there when the copies want it.
    uint32_t slot = cache.slot(position);
    copy_slice<C, D, WARP>(keys, cache.keys, slot, cache, within_slice(range, position), lane);
    copy_commit();
    copy_slice<C, D, WARP>(values, cache.values, slot, cache, within_slice(range, position), lane);
    copy_commit();
    // While those are under way.
    Query<A, C, D> query;
    query.load_rows(rows, cache.head_dim, lane);
    for (; position < range.to; position += STEP) {
        const uint32_t next = position + STEP;
        const bool more = next < range.to;
        if (more) slot = cache.slot(next);
        Fragment<2> scores;
        copy_wait<1>();
        __syncwarp();
        query.template products<2>(scores, keys, lane);
        __syncwarp();
        if (more) copy_slice<C, D, WARP>(keys, cache.keys, slot, cache, within_slice(range, next), lane);
        copy_commit();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint32_t column = position + i / 4 * 8 + lane % 4 * 2 + i % 2;
            const bool seen = column >= range.from && column < range.to;
            float& score = scores[i / 4][i % 4];
            score = seen ? scoring(score) : MINUS_INFINITY;
        }
        softmax.take(scores);
        copy_wait<1>();
        __syncwarp();
        add_weighted<D>(softmax.sums, scores, values, lane);
        __syncwarp();
        if (more) copy_slice<C, D, WARP>(values, cache.values, slot, cache, within_slice(range, next), lane);
        copy_commit();
    }
}

/// Adds the warps' sums up in `merge`, in their order, beside the highest of their maxima.
template <int D>
__device__ inline void merge_warps(
    DecodeMerge<D>& merge, Softmax<D>& softmax, uint32_t warps, uint32_t warp, uint32_t lane) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float weight = row_sum(softmax.weight[half]);
        if (warp < warps && lane % 4 == 0) {
            merge.maximum[warp][lane / 4 + 8 * half] = softmax.maximum[half];
            merge.weight[warp][lane / 4 + 8 * half] = weight;
        }
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t row = lane / 4 + 8 * half;
        float highest = MINUS_INFINITY;
        for (uint32_t other = 0; other < warps; other++) highest = fmaxf(highest, merge.maximum[other][row]);
        // A warp that saw nothing has sums of zero, whatever they are multiplied by.
        const float own = softmax.maximum[half];
        softmax.scale_row(half, own == MINUS_INFINITY ? 0.0f : exp2f(own - highest));
    }
    for (uint32_t turn = 0; turn < warps; turn++) {
        if (warp == turn) {
#pragma unroll
            for (int i = 0; i < D / 2; i++) {
                const uint32_t row = lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
                const float before = turn == 0 ? 0.0f : merge.sums[row][column];
                merge.sums[row][column] = before + softmax.sums[i / 4][i % 4];
            }
        }
        __syncthreads();
    }
}

/// Writes the block's heads: sums by all threads, maximum and weight by one each.
template <int D>
__device__ inline void write_split(
    const DecodeMerge<D>& merge, float* partial, float* stats, uint32_t heads, uint32_t head_dim, uint32_t warps) {
    const uint32_t splits = gridDim.x;
    for (uint32_t i = threadIdx.x; i < heads * (D / 4); i += FOREBAY_DECODE_THREADS) {
        const uint32_t head = i / (D / 4), column = i % (D / 4) * 4;
        if (column >= head_dim) continue;
        const Pack<float, 4> four = load<4>(&merge.sums[head][column]);
        store(partial + static_cast<size_t>(head) * splits * head_dim + column, four);
    }
    if (threadIdx.x < heads) {
        const uint32_t head = threadIdx.x;
        float highest = MINUS_INFINITY, weight = 0.0f;
        for (uint32_t warp = 0; warp < warps; warp++) highest = fmaxf(highest, merge.maximum[warp][head]);
        for (uint32_t warp = 0; warp < warps; warp++) {
            const float maximum = merge.maximum[warp][head];
            if (maximum != MINUS_INFINITY) weight += merge.weight[warp][head] * exp2f(maximum - highest);
        }
        store(stats + static_cast<size_t>(head) * splits * 2, Pack<float, 2>{{highest, weight}});
    }
}

template <typename A, typename C, int D>
__device__ inline void decode(const DecodeArguments<A, C>& given) {
    using Shared = DecodeShared<C, D>;
    union Memory {
        Shared slices;
        DecodeMerge<D> merge;
    };
    alignas(16) __shared__ unsigned char memory[sizeof(Memory)];
    const uint32_t sequence = given.items[blockIdx.z];
    const Range range = split_range(blockIdx.x, given.split_len, given.contexts[sequence], given.window);
    if (range.from >= range.to) return;

    const uint32_t parts = gridDim.y / given.kv_heads;
    const uint32_t kv_head = blockIdx.y / parts, first = blockIdx.y % parts * FOREBAY_DECODE_HEADS;
    const uint32_t heads = min(FOREBAY_DECODE_HEADS, given.group - first);
    const uint32_t head = kv_head * given.group + first, all_heads = given.kv_heads * given.group;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;

    Softmax<D> softmax;
    softmax.clear();
    if (warp < Shared::WARPS) {
        const A* row = given.q + (static_cast<size_t>(given.starts[sequence]) * all_heads + head) * given.head_dim;
        QueryRows<A> rows;
        for (int half = 0; half < 2; half++) {
            const uint32_t mine = lane / 4 + 8 * half;
            rows.at[half] = mine < heads ? row + mine * given.head_dim : nullptr;
        }
        const size_t head_offset = static_cast<size_t>(kv_head) * given.head_dim;
        const HeadCache<C> cache = {
            given.k_cache + head_offset,
            given.v_cache + head_offset,
            given.block_tables + static_cast<size_t>(sequence) * given.max_blocks,
            given.block_size,
            given.kv_heads * given.head_dim,
            given.head_dim,
        };
        Shared& slices = *reinterpret_cast<Shared*>(memory);
        decode_slices<A, C, D>(softmax, rows, cache, range, given.scoring, slices, warp, lane);
        copy_wait<0>();
    }
    // The merge takes the place of the slices.
    __syncthreads();
    DecodeMerge<D>& merge = *reinterpret_cast<DecodeMerge<D>*>(memory);
    merge_warps(merge, softmax, Shared::WARPS, warp, lane);
    const size_t split = (static_cast<size_t>(blockIdx.z) * all_heads + head) * gridDim.x + blockIdx.x;
    float* partial = given.partial + split * given.head_dim;
    write_split(merge, partial, given.stats + split * 2, heads, given.head_dim, Shared::WARPS);
}

}  // namespace forebay

#define FOREBAY_DEFINE_DECODE(a, A, c, C, D)                                                                           \
    extern "C" __global__ __launch_bounds__(FOREBAY_DECODE_THREADS, 1) FOREBAY_DECODE(a, A, c, C, D) {                 \
        forebay::decode<A, C, D>({q, k_cache, v_cache, block_tables, contexts, starts, items, partial, stats,          \
                                  kv_heads, group, head_dim, block_size, max_blocks, split_len, {scale, cap},          \
                                  window});                                                                            \
    }

/// All activations and head dimensions over one type of cache.
#define FOREBAY_DEFINE_DECODES(c, C)                                                                                   \
    FOREBAY_DEFINE_DECODE(f32, float, c, C, 64)                                                                        \
    FOREBAY_DEFINE_DECODE(f32, float, c, C, 128)                                                                       \
    FOREBAY_DEFINE_DECODE(f32, float, c, C, 256)                                                                       \
    FOREBAY_DEFINE_DECODE(f16, __half, c, C, 64)                                                                       \
    FOREBAY_DEFINE_DECODE(f16, __half, c, C, 128)                                                                      \
    FOREBAY_DEFINE_DECODE(f16, __half, c, C, 256)                                                                      \
    FOREBAY_DEFINE_DECODE(bf16, __nv_bfloat16, c, C, 64)                                                               \
    FOREBAY_DEFINE_DECODE(bf16, __nv_bfloat16, c, C, 128)                                                              \
    FOREBAY_DEFINE_DECODE(bf16, __nv_bfloat16, c, C, 256)
