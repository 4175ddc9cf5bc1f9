//! `rms_norm_*`: root-mean-square normalisation (Zhang and Sennrich, 2019), with the residual sum before it.
//!
//! A thread meets the same numbers in both passes, so the second finds them in the first-level cache, and `out` and
//! `sum` may be the inputs.

#include "launches.h"

namespace forebay {

/// The threads that work on a group, and which of them this is.
struct Team {
    uint32_t thread;
    uint32_t threads;
};

/// Adds the residual, if there is one, and this thread's squares.
template <int N, typename A>
__device__ inline float squares(const A* x, const A* residual, A* sum, uint32_t width, Team team) {
    float total = 0.0f;
    for (uint32_t i = team.thread * N; i < width; i += team.threads * N) {
        Pack<A, N> pack = load<N>(x + i);
        if (residual != nullptr) {
            const Pack<A, N> more = load<N>(residual + i);
#pragma unroll
            for (int j = 0; j < N; j++) pack.at[j] = from_float<A>(to_float(pack.at[j]) + to_float(more.at[j]));
            store(sum + i, pack);
        }
#pragma unroll
        for (int j = 0; j < N; j++) total = fmaf(to_float(pack.at[j]), to_float(pack.at[j]), total);
    }
    return total;
}

template <int N, typename A>
__device__ inline void scaled(const A* x, const A* weight, A* out, float factor, uint32_t width, Team team) {
    for (uint32_t i = team.thread * N; i < width; i += team.threads * N) {
        Pack<A, N> pack = load<N>(x + i);
        const Pack<A, N> weights = load<N>(weight + i);
#pragma unroll
        for (int j = 0; j < N; j++) pack.at[j] = from_float<A>(to_float(pack.at[j]) * factor * to_float(weights.at[j]));
        store(out + i, pack);
    }
}

/// Over the warp, then, if the team is the block, over its warps in their order.
__device__ inline float team_sum(float x, Team team) {
    __shared__ float warps[FOREBAY_NORM_THREADS / WARP];
    for (uint32_t distance = WARP / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(ALL_LANES, x, distance);
    if (team.threads == WARP) return x;
    if (team.thread % WARP == 0) warps[team.thread / WARP] = x;
    __syncthreads();
    x = 0.0f;
    for (uint32_t warp = 0; warp < team.threads / WARP; warp++) x += warps[warp];
    return x;
}

template <int N, typename A>
__device__ inline void norm_group(
    const A* x, const A* residual, const A* weight, A* out, A* sum, uint32_t width, float eps, Team team) {
    const float total = team_sum(squares<N>(x, residual, sum, width, team), team);
    const float factor = 1.0f / sqrtf(total / static_cast<float>(width) + eps);
    scaled<N>(residual == nullptr ? x : sum, weight, out, factor, width, team);
}

template <typename A>
__device__ inline void rms_norm(
    const A* x, const A* residual, const A* weight, A* out, A* sum, uint32_t groups, uint32_t width, float eps) {
    const bool warps = width <= FOREBAY_NORM_WARP_WIDTH;
    const Team team = warps ? Team{threadIdx.x % WARP, WARP} : Team{threadIdx.x, FOREBAY_NORM_THREADS};
    const uint32_t group = warps ? blockIdx.x * (FOREBAY_NORM_THREADS / WARP) + threadIdx.x / WARP : blockIdx.x;
    if (group >= groups) return;
    const size_t at = static_cast<size_t>(group) * width;
    const A* before = residual == nullptr ? nullptr : residual + at;
    A* total = residual == nullptr ? nullptr : sum + at;
    // Only groups of whole packs begin at their boundaries.
    if (width % WIDE<A> == 0) {
        norm_group<WIDE<A>>(x + at, before, weight, out + at, total, width, eps, team);
    } else {
        norm_group<1>(x + at, before, weight, out + at, total, width, eps, team);
    }
}

}  // namespace forebay

#define FOREBAY_DEFINE_RMS_NORM(M, a, A)                                                                               \
    extern "C" __global__ __launch_bounds__(FOREBAY_NORM_THREADS) FOREBAY_RMS_NORM(a, A) {                             \
        forebay::rms_norm(x, residual, weight, out, sum, groups, width, eps);                                          \
    }

FOREBAY_FOR_A(FOREBAY_DEFINE_RMS_NORM, FOREBAY_RMS_NORM)
