//! Finding where a running sum over the candidates reaches a number, without sorting them.
#pragma once

#include "candidates.cuh"

namespace forebay {

/// What is summed.
enum class Unit { COUNT, WEIGHT };

constexpr uint32_t BINS = 256;
/// A weight is three parts of so many bits, as only 32-bit atomics are fast in shared memory. 2^19 of them fit.
constexpr uint32_t PART_BITS = 13;
constexpr uint32_t PART = (1u << PART_BITS) - 1;

struct Histogram {
    uint32_t count[BINS];
    uint32_t parts[3][BINS];

    __device__ void clear() {
        for (uint32_t i = threadIdx.x; i < BINS; i += FOREBAY_SAMPLE_THREADS) {
            count[i] = parts[0][i] = parts[1][i] = parts[2][i] = 0;
        }
    }

    __device__ void add(uint32_t bin, uint64_t weight) {
        atomicAdd(&count[bin], 1u);
#pragma unroll
        for (int i = 0; i < 3; i++) {
            const uint32_t part = static_cast<uint32_t>(weight >> (PART_BITS * i)) & PART;
            if (part != 0) atomicAdd(&parts[i][bin], part);
        }
    }

    __device__ uint64_t units(uint32_t bin, Unit unit) const {
        if (unit == Unit::COUNT) return count[bin];
        const uint64_t high = parts[2][bin], middle = parts[1][bin], low = parts[0][bin];
        return (high << (2 * PART_BITS)) + (middle << PART_BITS) + low;
    }
};

/// The bin in which the sum reaches what is wanted, the sum of those before it, and its own.
struct Crossing {
    uint32_t bin;
    uint32_t count;
    uint64_t before;
    uint64_t units;
};

/// By one warp; `wanted` is at least 1 and at most the sum of all bins.
__device__ inline void find_crossing(Crossing& found, const Histogram& histogram, Unit unit, uint64_t wanted) {
    constexpr uint32_t EACH = BINS / WARP;
    const uint32_t lane = threadIdx.x % WARP;
    uint64_t mine = 0;
    for (uint32_t i = 0; i < EACH; i++) mine += histogram.units(lane * EACH + i, unit);
    uint64_t up_to = mine;
    for (uint32_t distance = 1; distance < WARP; distance *= 2) {
        const uint64_t below = __shfl_up_sync(ALL_LANES, up_to, distance);
        if (lane >= distance) up_to += below;
    }
    uint64_t before = up_to - mine;
    if (before >= wanted || up_to < wanted) return;
    for (uint32_t bin = lane * EACH;; bin++) {
        const uint64_t units = histogram.units(bin, unit);
        if (before + units >= wanted) {
            found = {bin, histogram.count[bin], before, units};
            return;
        }
        before += units;
    }
}

/// The lowest rank (or one between it and the next candidate's) such that the candidates up to it hold `wanted` units.
/// `wanted` is at least 1 and at most what all hold.
///
/// A radix search from the ranks' highest digit down: as many passes as it takes until one bin is one candidate, or is
/// taken whole.
template <typename A>
__device__ inline uint64_t lowest_rank(const Candidates<A>& candidates, Unit unit, uint64_t wanted) {
    __shared__ Histogram histogram;
    __shared__ Crossing crossing;
    uint64_t prefix = 0, decided = 0;
    // Ids are below 2^19, so the digit at 24 is zero.
    for (int shift = 56; shift >= 0; shift -= shift == 32 ? 16 : 8) {
        histogram.clear();
        __syncthreads();
        for (uint32_t id = threadIdx.x; id < candidates.vocab; id += FOREBAY_SAMPLE_THREADS) {
            const Candidate candidate = candidates.at(id);
            if (!candidate.allowed || (candidate.rank & decided) != prefix) continue;
            // What is never drawn must not be what the sum ends with.
            if (unit == Unit::WEIGHT && candidate.weight == 0) continue;
            histogram.add(candidate.rank >> shift & (BINS - 1), unit == Unit::WEIGHT ? candidate.weight : 0);
        }
        __syncthreads();
        if (threadIdx.x < WARP) find_crossing(crossing, histogram, unit, wanted);
        __syncthreads();
        prefix |= static_cast<uint64_t>(crossing.bin) << shift;
        decided |= static_cast<uint64_t>(BINS - 1) << shift;
        wanted -= crossing.before;
        if (crossing.count == 1 || crossing.units == wanted) return prefix | (EVERYTHING >> (64 - shift - 1) >> 1);
    }
    return prefix;
}

/// A warp's share of the candidates' weights with ids in `[from, to)`.
template <typename A>
__device__ inline uint64_t weight_between(const Candidates<A>& candidates, uint32_t from, uint32_t to) {
    uint64_t sum = 0;
    for (uint32_t id = from + threadIdx.x % WARP; id < to; id += WARP) {
        const Candidate candidate = candidates.at(id);
        if (candidate.allowed) sum += candidate.weight;
    }
    return warp_reduce(sum, Sum());
}

/// The id at which the sum of weights, by ascending id, reaches `wanted` (at least 1, at most the sum of all).
///
/// Each round cuts what is left into a part per warp.
template <typename A>
__device__ inline uint32_t id_reaching(const Candidates<A>& candidates, uint64_t wanted) {
    __shared__ uint64_t sums[SAMPLE_WARPS];
    uint32_t from = 0, to = candidates.vocab;
    while (to - from > 1) {
        const uint32_t part = (to - from + SAMPLE_WARPS - 1) / SAMPLE_WARPS;
        const uint32_t begin = min(from + threadIdx.x / WARP * part, to);
        const uint64_t sum = weight_between(candidates, begin, min(begin + part, to));
        // The sums of the round before have been read.
        __syncthreads();
        if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = sum;
        __syncthreads();
        uint32_t chosen = 0;
        while (sums[chosen] < wanted) wanted -= sums[chosen++];
        from += chosen * part;
        to = min(from + part, to);
    }
    return from;
}

}  // namespace forebay
