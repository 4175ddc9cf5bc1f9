//! `paged_combine_*`: one result from the ranges of a decode, in ascending order of ranges.

#include "decode.cuh"

namespace forebay {

constexpr uint32_t COMBINE_WARPS = FOREBAY_COMBINE_THREADS / WARP;

/// The ranges that a row sees.
__device__ inline Range seen_splits(uint32_t context, uint32_t split_len, uint32_t window) {
    return {first_seen(context - 1, window) / split_len, (context + split_len - 1) / split_len};
}

/// Over the block; every thread gets it.
__device__ inline float block_max(float x) {
    __shared__ float warps[COMBINE_WARPS];
    for (uint32_t distance = WARP / 2; distance > 0; distance /= 2) {
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, distance));
    }
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = x;
    __syncthreads();
    for (uint32_t warp = 0; warp < COMBINE_WARPS; warp++) x = fmaxf(x, warps[warp]);
    return x;
}

/// One head: `partial` `[splits, head_dim]`, `stats` `[splits, 2]`. A thread has up to two columns.
template <typename A>
__device__ inline void combine(const float* partial, const float* stats, A* out, uint32_t head_dim, Range splits) {
    constexpr uint32_t THREADS = FOREBAY_COMBINE_THREADS;
    __shared__ float factors[THREADS], weights[THREADS];
    float highest = MINUS_INFINITY;
    for (uint32_t split = splits.from + threadIdx.x; split < splits.to; split += THREADS) {
        highest = fmaxf(highest, stats[2 * split]);
    }
    highest = block_max(highest);
    float sums[2] = {0.0f, 0.0f}, weight = 0.0f;
    for (uint32_t begin = splits.from; begin < splits.to; begin += THREADS) {
        const uint32_t here = min(THREADS, splits.to - begin);
        if (threadIdx.x < here) {
            const Pack<float, 2> two = load<2>(stats + 2 * (begin + threadIdx.x));
            factors[threadIdx.x] = exp2f(two.at[0] - highest);
            weights[threadIdx.x] = two.at[1] * factors[threadIdx.x];
        }
        __syncthreads();
#pragma unroll 4
        for (uint32_t i = 0; i < here; i++) {
            const float* row = partial + static_cast<size_t>(begin + i) * head_dim;
            weight += weights[i];
#pragma unroll
            for (uint32_t j = 0; j < 2; j++) {
                const uint32_t column = threadIdx.x + j * THREADS;
                if (column < head_dim) sums[j] = fmaf(row[column], factors[i], sums[j]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (uint32_t j = 0; j < 2; j++) {
        const uint32_t column = threadIdx.x + j * THREADS;
        if (column < head_dim) out[column] = from_float<A>(sums[j] / weight);
    }
}

}  // namespace forebay

#define FOREBAY_DEFINE_COMBINE(M, a, A)                                                                                \
    extern "C" __global__ __launch_bounds__(FOREBAY_COMBINE_THREADS) FOREBAY_COMBINE(a, A) {                           \
        const uint32_t sequence = items[blockIdx.y], heads = gridDim.x, context = contexts[sequence];                  \
        if (context == 0) return;                                                                                      \
        const size_t from = (static_cast<size_t>(blockIdx.y) * heads + blockIdx.x) * splits;                           \
        A* row = out + (static_cast<size_t>(starts[sequence]) * heads + blockIdx.x) * head_dim;                        \
        forebay::combine(partial + from * head_dim, stats + from * 2, row, head_dim,                                   \
                         forebay::seen_splits(context, split_len, window));                                            \
    }

FOREBAY_FOR_A(FOREBAY_DEFINE_COMBINE, FOREBAY_COMBINE)
