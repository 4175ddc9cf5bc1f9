//! The number types of activations and caches, and how they meet f32.
//!
//! A compiler other than nvcc finds `emulated_cuda.h` on its include path: CUDA's words for a CPU, with which
//! tests/it/models/cuda_kernels.rs runs these sources.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ptx.cuh"
#else
#include "emulated_cuda.h"
#endif

namespace forebay {

constexpr uint32_t WARP = 32;
constexpr uint32_t ALL_LANES = 0xffffffffu;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

/// Rounds to nearest, ties to even.
template <typename T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) { return x; }
template <>
__device__ inline __half from_float<__half>(float x) { return __float2half_rn(x); }
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }

/// `N` numbers that are moved by one instruction, up to 16 bytes.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
    T at[N];
};

/// How many numbers of `T` one thread moves at once.
template <typename T>
constexpr int WIDE = 16 / sizeof(T);

template <int N, typename T>
__device__ inline Pack<T, N> load(const T* from) {
    return *reinterpret_cast<const Pack<T, N>*>(from);
}

template <typename T, int N>
__device__ inline void store(T* to, const Pack<T, N>& pack) {
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// Numbers that a thread converts at once where nothing else decides.
constexpr int EIGHT = 8;

template <typename T>
__device__ inline void load_eight(float (&to)[EIGHT], const T* from) {
    constexpr int N = WIDE<T>;
#pragma unroll
    for (int i = 0; i < EIGHT; i += N) {
        const Pack<T, N> pack = load<N>(from + i);
#pragma unroll
        for (int j = 0; j < N; j++) to[i + j] = to_float(pack.at[j]);
    }
}

template <typename T>
__device__ inline void store_eight(T* to, const float (&from)[EIGHT]) {
    constexpr int N = WIDE<T>;
#pragma unroll
    for (int i = 0; i < EIGHT; i += N) {
        Pack<T, N> pack;
#pragma unroll
        for (int j = 0; j < N; j++) pack.at[j] = from_float<T>(from[i + j]);
        store(to + i, pack);
    }
}

/// Two numbers as an operand of the tensor cores has them: the first in the low half.
template <typename T>
__device__ inline uint32_t pair(float low, float high) {
    Pack<T, 2> both = {{from_float<T>(low), from_float<T>(high)}};
    uint32_t bits;
    static_assert(sizeof(both) == sizeof(bits));
    memcpy(&bits, &both, sizeof(bits));
    return bits;
}

}  // namespace forebay
