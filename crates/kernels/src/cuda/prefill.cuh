//! Attention of chunks of rows: bound by arithmetic, so tiles of keys and values are shared by a whole block.
//!
//! A block takes `FOREBAY_PREFILL_ROWS` pairs of a row and a head of one group, 16 to a warp, and walks over the
//! positions that its rows see, in tiles at fixed absolute positions. Keys of the next tile arrive while values are
//! summed, and values while scores are computed.
#pragma once

#include "fragments.cuh"
#include "launches.h"

namespace forebay {

template <typename A, typename C>
struct PrefillArguments {
    const A* q;
    const C* k_cache;
    const C* v_cache;
    const uint32_t* block_tables;
    const uint32_t* contexts;
    const uint32_t* starts;
    const uint32_t* tiles;
    A* out;
    uint32_t kv_heads;
    uint32_t group;
    uint32_t head_dim;
    uint32_t block_size;
    uint32_t max_blocks;
    Scoring scoring;
    uint32_t window;
    uint32_t causal;
};

template <typename C, int D>
struct PrefillShared {
    /// Positions of a tile. At 256 dimensions the sums and the queries alone take three quarters of the registers.
    static constexpr uint32_t POSITIONS = sizeof(C) == 4 || D > 128 ? 16 : 64;
    static_assert(2 * POSITIONS * ROW<C, D> * sizeof(C) <= SHARED_BYTES);

    alignas(16) C keys[POSITIONS * ROW<C, D>];
    alignas(16) C values[POSITIONS * ROW<C, D>];
};

/// The rows of a block.
struct PrefillTile {
    uint32_t sequence;
    uint32_t context;
    /// Within the chunk: the first, and one behind the last.
    uint32_t begin;
    uint32_t end;
    /// Rows of the chunk.
    uint32_t rows;

    __device__ uint32_t position(uint32_t row) const { return context - rows + row; }

    /// What any of the rows sees.
    __device__ Range seen(uint32_t window, uint32_t causal) const {
        return {first_seen(position(begin), window), causal ? position(end - 1) + 1 : context};
    }
};

template <typename A, typename C>
__device__ inline PrefillTile prefill_tile(const PrefillArguments<A, C>& given) {
    // Last first: a chunk's last rows see most, and should not be what a launch ends with.
    const uint32_t index = gridDim.x - 1 - blockIdx.x;
    PrefillTile tile;
    tile.sequence = given.tiles[2 * index];
    tile.begin = given.tiles[2 * index + 1];
    tile.context = given.contexts[tile.sequence];
    tile.rows = given.starts[tile.sequence + 1] - given.starts[tile.sequence];
    const uint32_t tall = given.group >= FOREBAY_PREFILL_ROWS ? 1 : FOREBAY_PREFILL_ROWS / given.group;
    tile.end = min(tile.begin + tall, tile.rows);
    return tile;
}

/// Begins to copy the tile at `position` of the keys or the values.
template <typename C, int D>
__device__ inline void copy_tile(C* shared, const C* all, const HeadCache<C>& cache, Range range, uint32_t position) {
#pragma unroll
    for (uint32_t i = 0; i < PrefillShared<C, D>::POSITIONS; i += SLICE) {
        const uint32_t at = position + i;
        // Behind the range there may be no block to look up.
        const uint32_t slot = at < range.to ? cache.slot(at) : 0;
        copy_slice<C, D, FOREBAY_PREFILL_THREADS>(
            shared + i * ROW<C, D>, all, slot, cache, within_slice(range, at), threadIdx.x);
    }
}

/// What one lane's two query rows see.
struct PrefillSeen {
    Range rows[2];

    template <int N>
    __device__ void score(Fragment<N>& scores, Scoring scoring, uint32_t position, uint32_t lane) const {
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint32_t column = position + n * 8 + lane % 4 * 2 + i % 2;
                const bool seen = column >= rows[i / 2].from && column < rows[i / 2].to;
                scores[n][i] = seen ? scoring(scores[n][i]) : MINUS_INFINITY;
            }
        }
    }
};

/// The block's loop over the tiles of `range`.
template <typename A, typename C, int D>
__device__ inline void prefill_tiles(
    Softmax<D>& softmax, const QueryRows<A>& rows, const HeadCache<C>& cache, Range range, const PrefillSeen& seen,
    Scoring scoring, PrefillShared<C, D>& shared, uint32_t lane) {
    constexpr uint32_t STEP = PrefillShared<C, D>::POSITIONS;
    uint32_t position = range.from / STEP * STEP;
    copy_tile<C, D>(shared.keys, cache.keys, cache, range, position);
    copy_commit();
    // While those are under way.
    Query<A, C, D> query;
    query.load_rows(rows, cache.head_dim, lane);
    for (; position < range.to; position += STEP) {
        Fragment<STEP / 8> scores;
        copy_tile<C, D>(shared.values, cache.values, cache, range, position);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        query.template products<STEP / 8>(scores, shared.keys, lane);
        __syncthreads();
        if (position + STEP < range.to) copy_tile<C, D>(shared.keys, cache.keys, cache, range, position + STEP);
        copy_commit();
        seen.score<STEP / 8>(scores, scoring, position, lane);
        softmax.take(scores);
        copy_wait<1>();
        __syncthreads();
        add_weighted<D>(softmax.sums, scores, shared.values, lane);
        __syncthreads();
    }
}

template <typename A, int D>
__device__ inline void write_row(A* out, const Softmax<D>& softmax, int half, uint32_t head_dim, uint32_t lane) {
    const float weight = row_sum(softmax.weight[half]);
    const float factor = weight > 0.0f ? 1.0f / weight : 0.0f;
    if (out == nullptr) return;
#pragma unroll
    for (int d = 0; d < D / 8; d++) {
        const uint32_t column = d * 8 + lane % 4 * 2;
        if (column >= head_dim) continue;
        const float* sums = softmax.sums[d] + 2 * half;
        store(out + column, Pack<A, 2>{{from_float<A>(sums[0] * factor), from_float<A>(sums[1] * factor)}});
    }
}

template <typename A, typename C, int D>
__device__ inline void prefill(const PrefillArguments<A, C>& given) {
    alignas(16) __shared__ unsigned char memory[sizeof(PrefillShared<C, D>)];
    const PrefillTile tile = prefill_tile(given);
    if (tile.begin >= tile.end) return;
    const uint32_t parts = gridDim.y / given.kv_heads;
    const uint32_t kv_head = blockIdx.y / parts, first = blockIdx.y % parts * FOREBAY_PREFILL_ROWS;
    const uint32_t heads = min(FOREBAY_PREFILL_ROWS, given.group - first);
    const uint32_t all_heads = given.kv_heads * given.group;
    const uint32_t lane = threadIdx.x % WARP;

    QueryRows<A> rows;
    PrefillSeen seen;
    A* out[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t mine = threadIdx.x / WARP * QUERY_ROWS + lane / 4 + 8 * half;
        const uint32_t row = tile.begin + mine / heads;
        const uint32_t head = kv_head * given.group + first + mine % heads;
        const bool there = row < tile.end;
        const size_t packed = given.starts[tile.sequence] + row;
        const size_t at = (packed * all_heads + head) * given.head_dim;
        rows.at[half] = there ? given.q + at : nullptr;
        out[half] = there ? given.out + at : nullptr;
        const uint32_t position = tile.position(row);
        seen.rows[half] = there ? Range{first_seen(position, given.window), given.causal ? position + 1 : tile.context}
                                : Range{0, 0};
    }
    const size_t head_offset = static_cast<size_t>(kv_head) * given.head_dim;
    const HeadCache<C> cache = {
        given.k_cache + head_offset,
        given.v_cache + head_offset,
        given.block_tables + static_cast<size_t>(tile.sequence) * given.max_blocks,
        given.block_size,
        given.kv_heads * given.head_dim,
        given.head_dim,
    };
    Softmax<D> softmax;
    softmax.clear();
    PrefillShared<C, D>& shared = *reinterpret_cast<PrefillShared<C, D>*>(memory);
    const Range range = tile.seen(given.window, given.causal);
    prefill_tiles<A, C, D>(softmax, rows, cache, range, seen, given.scoring, shared, lane);
#pragma unroll
    for (int half = 0; half < 2; half++) write_row(out[half], softmax, half, given.head_dim, lane);
}

}  // namespace forebay

#define FOREBAY_DEFINE_PREFILL(a, A, c, C, D)                                                                          \
    extern "C" __global__ __launch_bounds__(FOREBAY_PREFILL_THREADS, 1) FOREBAY_PREFILL(a, A, c, C, D) {               \
        forebay::prefill<A, C, D>({q, k_cache, v_cache, block_tables, contexts, starts, tiles, out, kv_heads, group,   \
                                   head_dim, block_size, max_blocks, {scale, cap}, window, causal});                   \
    }

/// All activations and head dimensions over one type of cache.
#define FOREBAY_DEFINE_PREFILLS(c, C)                                                                                  \
    FOREBAY_DEFINE_PREFILL(f32, float, c, C, 64)                                                                       \
    FOREBAY_DEFINE_PREFILL(f32, float, c, C, 128)                                                                      \
    FOREBAY_DEFINE_PREFILL(f32, float, c, C, 256)                                                                      \
    FOREBAY_DEFINE_PREFILL(f16, __half, c, C, 64)                                                                      \
    FOREBAY_DEFINE_PREFILL(f16, __half, c, C, 128)                                                                     \
    FOREBAY_DEFINE_PREFILL(f16, __half, c, C, 256)                                                                     \
    FOREBAY_DEFINE_PREFILL(bf16, __nv_bfloat16, c, C, 64)                                                              \
    FOREBAY_DEFINE_PREFILL(bf16, __nv_bfloat16, c, C, 128)                                                             \
    FOREBAY_DEFINE_PREFILL(bf16, __nv_bfloat16, c, C, 256)
