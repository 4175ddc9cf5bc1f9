//! The tokens that may be drawn, their weights, and sums over them that no order of threads can change.
//!
//! Weights are fixed-point, so that sums are exact: that is what makes atomics deterministic. Where this may differ
//! from src/sampling, which computes in f64: a weight below 2^-39 of the highest is none; tokens whose logits differ by
//! less than 2^-26, or are both more than 64 below the highest, are ordered by their ids; and a number drawn, or a
//! limit set, within about 1e-6 of the boundary between two tokens may fall to the other.
#pragma once

#include "launches.h"

namespace forebay {

constexpr uint32_t SAMPLE_WARPS = FOREBAY_SAMPLE_THREADS / WARP;
constexpr uint64_t EVERYTHING = ~0ull;
/// Bits of a weight behind the point.
constexpr float WEIGHT_ONE = 274877906944.0f;  // 2^38
/// A difference of logits of one, as part of a rank.
constexpr float RANK_ONE = 67108864.0f;  // 2^26

struct Candidate {
    /// 0: never drawn.
    uint64_t weight;
    /// The higher the later: 32 bits of distance to the highest logit, then 32 bits of id.
    uint64_t rank;
    bool allowed;
};

/// A row of logits with what decides which of its tokens are candidates.
template <typename A>
struct Candidates {
    const A* logits;
    uint32_t vocab;
    float highest;
    float temperature;
    float min_p;
    /// Only ranks up to this one.
    uint64_t bound;

    __device__ Candidate at(uint32_t id) const {
        const float below = to_float(logits[id]) - highest;
        const float weight = expf(below / temperature);
        const float distance = fminf(-below * RANK_ONE, 4294967040.0f);
        Candidate found;
        found.weight = static_cast<uint64_t>(weight * WEIGHT_ONE + 0.5f);
        found.rank = static_cast<uint64_t>(static_cast<uint32_t>(distance)) << 32 | id;
        found.allowed = below > -__builtin_huge_valf() && weight >= min_p && found.rank <= bound;
        return found;
    }
};

struct Largest {
    __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a > b ? a : b; }
};

struct Sum {
    __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a + b; }
};

/// Over the warp; every lane gets it.
template <typename Merge>
__device__ inline uint64_t warp_reduce(uint64_t x, Merge merge) {
    for (uint32_t distance = WARP / 2; distance > 0; distance /= 2) {
        x = merge(x, __shfl_xor_sync(ALL_LANES, x, distance));
    }
    return x;
}

/// Over the block; every thread gets it.
template <typename Merge>
__device__ inline uint64_t block_reduce(uint64_t x, Merge merge) {
    __shared__ uint64_t warps[SAMPLE_WARPS];
    x = warp_reduce(x, merge);
    __syncthreads();
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_reduce(warps[threadIdx.x % SAMPLE_WARPS], merge);
}
static_assert(SAMPLE_WARPS == WARP);

struct Totals {
    uint64_t weight;
    uint64_t count;
};

template <typename A>
__device__ inline Totals totals(const Candidates<A>& candidates) {
    Totals mine = {0, 0};
    for (uint32_t id = threadIdx.x; id < candidates.vocab; id += FOREBAY_SAMPLE_THREADS) {
        const Candidate candidate = candidates.at(id);
        if (!candidate.allowed) continue;
        mine.weight += candidate.weight;
        mine.count++;
    }
    return {block_reduce(mine.weight, Sum()), block_reduce(mine.count, Sum())};
}

}  // namespace forebay
