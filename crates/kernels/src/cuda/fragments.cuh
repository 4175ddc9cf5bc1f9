//! Sixteen query rows against a tile of keys and values, by one warp: scores, online softmax, weighted sums.
//!
//! Matrices are spread over the warp as the tensor cores' accumulators are: of each 16x8 part, lane `l` has the columns
//! `2 * (l % 4)` and the next, of rows `l / 4` (numbers 0 and 1) and `l / 4 + 8` (numbers 2 and 3). On f32 caches the
//! same lanes compute the same numbers by plain multiply-adds, for there the products must not be rounded.
//!
//! The online softmax is that of Milakov and Gimelshein (2018), the order of loops that of Dao (FlashAttention-2,
//! 2023).
#pragma once

#include "paged.cuh"

namespace forebay {

/// Query rows of a warp.
constexpr uint32_t QUERY_ROWS = 16;
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float MINUS_INFINITY = -__builtin_huge_valf();

/// A lane's share of `[16, 8 * N]`.
template <int N>
using Fragment = float[N][4];

/// Turns products into scores: in units of log2(e), so that a weight is a power of two.
struct Scoring {
    float scale;
    float cap;

    __device__ float operator()(float product) const {
        const float score = product * scale;
        return (cap == 0.0f ? score : cap * tanhf(score / cap)) * LOG2_E;
    }
};

/// A lane's two query rows: `l / 4` and `l / 4 + 8` of the warp's; null where there is none, which reads as zeros.
template <typename A>
struct QueryRows {
    const A* at[2];
};

template <typename A, typename C, int D>
struct Query {
    uint32_t parts[D / 16][4];

    __device__ void load_rows(const QueryRows<A>& rows, uint32_t head_dim, uint32_t lane) {
#pragma unroll
        for (int part = 0; part < D / 16; part++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint32_t column = part * 16 + i / 2 * 8 + lane % 4 * 2;
                parts[part][i] = 0;
                if (rows.at[i % 2] != nullptr && column < head_dim) {
                    const Pack<A, 2> two = load<2>(rows.at[i % 2] + column);
                    parts[part][i] = pair<C>(to_float(two.at[0]), to_float(two.at[1]));
                }
            }
        }
    }

    /// Products of the rows and `8 * N` keys.
    template <int N>
    __device__ void products(Fragment<N>& scores, const C* keys, uint32_t lane) const {
        const C* row = keys + (lane / 16 * 8 + lane % 8) * ROW<C, D> + lane / 8 % 2 * 8;
#pragma unroll
        for (int n = 0; n < N; n += 2) {
#pragma unroll
            for (int i = 0; i < 4; i++) scores[n][i] = scores[n + 1][i] = 0.0f;
#pragma unroll
            for (int part = 0; part < D / 16; part++) {
                uint32_t b[4];
                load_matrices(b, row + n * 8 * ROW<C, D> + part * 16);
                multiply_add<C>(scores[n], parts[part], b[0], b[1]);
                multiply_add<C>(scores[n + 1], parts[part], b[2], b[3]);
            }
        }
    }
};

/// Queries are read again for each tile: registers would not hold them in f32, and the first-level cache does.
template <typename A, int D>
struct Query<A, float, D> {
    QueryRows<A> rows;
    uint32_t head_dim;

    __device__ void load_rows(const QueryRows<A>& all, uint32_t width, uint32_t) {
        rows = all;
        head_dim = width;
    }

    __device__ Pack<float, 4> four(int row, uint32_t column) const {
        Pack<float, 4> numbers = {};
        if (rows.at[row] == nullptr) return numbers;
        const Pack<A, 4> packed = load<4>(rows.at[row] + column);
#pragma unroll
        for (int i = 0; i < 4; i++) numbers.at[i] = to_float(packed.at[i]);
        return numbers;
    }

    template <int N>
    __device__ void products(Fragment<N>& scores, const float* keys, uint32_t lane) const {
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) scores[n][i] = 0.0f;
        }
        for (uint32_t column = 0; column < head_dim; column += 4) {
            const Pack<float, 4> q[2] = {four(0, column), four(1, column)};
#pragma unroll
            for (int n = 0; n < N; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float* key = keys + (n * 8 + lane % 4 * 2 + i % 2) * ROW<float, D> + column;
                    const Pack<float, 4> k = load<4>(key);
#pragma unroll
                    for (int d = 0; d < 4; d++) scores[n][i] = fmaf(q[i / 2].at[d], k.at[d], scores[n][i]);
                }
            }
        }
    }
};

/// `sums += weights * values` in f32: a row's weights come from the four lanes that share the row.
template <int D, int N>
__device__ inline void add_weighted_f32(
    Fragment<D / 8>& sums, const Fragment<N>& weights, const float* values, uint32_t lane) {
    // Of all positions, those whose weights one lane of the four has.
#pragma unroll 1
    for (uint32_t owner = 0; owner < 4; owner++) {
#pragma unroll
        for (int i = 0; i < 2 * N; i++) {
            const float upper = __shfl_sync(ALL_LANES, weights[i / 2][i % 2], lane / 4 * 4 + owner);
            const float lower = __shfl_sync(ALL_LANES, weights[i / 2][i % 2 + 2], lane / 4 * 4 + owner);
            const uint32_t position = i / 2 * 8 + owner * 2 + i % 2;
            const float* row = values + position * ROW<float, D> + lane % 4 * 2;
#pragma unroll
            for (int d = 0; d < D / 8; d++) {
                const Pack<float, 2> two = load<2>(row + d * 8);
                sums[d][0] = fmaf(upper, two.at[0], sums[d][0]);
                sums[d][1] = fmaf(upper, two.at[1], sums[d][1]);
                sums[d][2] = fmaf(lower, two.at[0], sums[d][2]);
                sums[d][3] = fmaf(lower, two.at[1], sums[d][3]);
            }
        }
    }
}

/// `sums += weights * values` for `8 * N` values, on 16-bit ones on tensor cores.
template <int D, int N, typename C>
__device__ inline void add_weighted(Fragment<D / 8>& sums, const Fragment<N>& weights, const C* values, uint32_t lane) {
    if constexpr (sizeof(C) == 4) {
        add_weighted_f32<D, N>(sums, weights, values, lane);
    } else {
        const C* row = values + lane % 16 * ROW<C, D> + lane / 16 * 8;
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            const uint32_t a[4] = {
                pair<C>(weights[n][0], weights[n][1]),
                pair<C>(weights[n][2], weights[n][3]),
                pair<C>(weights[n + 1][0], weights[n + 1][1]),
                pair<C>(weights[n + 1][2], weights[n + 1][3]),
            };
#pragma unroll
            for (int d = 0; d < D / 8; d += 2) {
                uint32_t b[4];
                load_matrices_transposed(b, row + n * 8 * ROW<C, D> + d * 8);
                multiply_add<C>(sums[d], a, b[0], b[1]);
                multiply_add<C>(sums[d + 1], a, b[2], b[3]);
            }
        }
    }
}

/// Over the four lanes that share a row.
__device__ inline float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

__device__ inline float row_sum(float x) {
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

/// What a lane knows of its two rows after some tiles.
template <int D>
struct Softmax {
    Fragment<D / 8> sums;
    /// Of the scores so far.
    float maximum[2];
    /// Of the weights that this lane computed; a row's is `row_sum` of it.
    float weight[2];

    __device__ void clear() {
#pragma unroll
        for (int d = 0; d < D / 8; d++) {
#pragma unroll
            for (int i = 0; i < 4; i++) sums[d][i] = 0.0f;
        }
        maximum[0] = maximum[1] = MINUS_INFINITY;
        weight[0] = weight[1] = 0.0f;
    }

    /// Turns scores into weights beside the new maximum, and what was summed before with them. A tile in which a row
    /// sees nothing (all of it -inf) leaves that row's bits alone.
    template <int N>
    __device__ void take(Fragment<N>& scores) {
#pragma unroll
        for (int row = 0; row < 2; row++) {
            float highest = maximum[row];
#pragma unroll
            for (int n = 0; n < N; n++) highest = fmaxf(highest, fmaxf(scores[n][2 * row], scores[n][2 * row + 1]));
            highest = row_max(highest);
            // Nothing seen yet: -inf - -inf would be NaN.
            const float base = highest == MINUS_INFINITY ? 0.0f : highest;
            const float factor = exp2f(maximum[row] - base);
            maximum[row] = highest;
            weight[row] *= factor;
#pragma unroll
            for (int n = 0; n < N; n++) {
#pragma unroll
                for (int i = 2 * row; i < 2 * row + 2; i++) {
                    scores[n][i] = exp2f(scores[n][i] - base);
                    weight[row] += scores[n][i];
                }
            }
            scale_row(row, factor);
        }
    }

    __device__ void scale_row(int row, float factor) {
#pragma unroll
        for (int d = 0; d < D / 8; d++) {
            sums[d][2 * row] *= factor;
            sums[d][2 * row + 1] *= factor;
        }
    }
};

}  // namespace forebay
