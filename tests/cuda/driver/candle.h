//! What candle's kernels need beside the threads of `emulated_threads.h`, where g++ compiles them: NVIDIA's own headers
//! have 16-bit numbers for the host, but neither their functions nor what is the device's alone.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <math_constants.h>
#include <vector_types.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cuda/std/limits>
#include <type_traits>

#include "emulated_threads.h"

#define __CUDA_ARCH__ 900
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#undef __forceinline__
#define __forceinline__ inline
#undef __host__
#define __host__

// CUDA's take what are different types to C++.
template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b) {
    using C = std::common_type_t<A, B>;
    return C(b) < C(a) ? C(b) : C(a);
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b) {
    using C = std::common_type_t<A, B>;
    return C(a) < C(b) ? C(b) : C(a);
}

using std::isnan;
using std::signbit;

inline float normcdff(float x) { return 0.5f * std::erfc(-x * 0.70710678f); }
inline double normcdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __int_as_float(int x) { return reinterpret_cast<float&>(x); }
inline float __uint_as_float(unsigned x) { return reinterpret_cast<float&>(x); }
inline int __float_as_int(float x) { return reinterpret_cast<int&>(x); }
inline unsigned __float_as_uint(float x) { return reinterpret_cast<unsigned&>(x); }
inline double __longlong_as_double(long long x) { return reinterpret_cast<double&>(x); }
inline long long __double_as_longlong(double x) { return reinterpret_cast<long long&>(x); }

#define OF_16_BITS(name, function)                                                          \
    inline __half name(__half x) { return __float2half_rn(function(__half2float(x))); }     \
    inline __nv_bfloat16 name(__nv_bfloat16 x) { return __float2bfloat16_rn(function(__bfloat162float(x))); }
OF_16_BITS(hexp, std::exp)
OF_16_BITS(hlog, std::log)
OF_16_BITS(hsqrt, std::sqrt)
OF_16_BITS(hsin, std::sin)
OF_16_BITS(hcos, std::cos)
OF_16_BITS(hrsqrt, 1.0f / std::sqrt)

/// Four products of signed bytes.
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 32; i += 8) c += int8_t(a >> i) * int8_t(b >> i);
    return c;
}

inline unsigned __vsubss4(unsigned a, unsigned b) {
    unsigned all = 0;
    for (int i = 0; i < 32; i += 8) {
        all |= unsigned(uint8_t(std::clamp(int8_t(a >> i) - int8_t(b >> i), -128, 127))) << i;
    }
    return all;
}

inline unsigned __vsub4(unsigned a, unsigned b) {
    unsigned all = 0;
    for (int i = 0; i < 32; i += 8) all |= unsigned(uint8_t((a >> i) - (b >> i))) << i;
    return all;
}

template <typename T>
T __shfl_xor_sync(uint32_t mask, T x, uint32_t distance, int width) {
    if (width != 32) emulated::fail("a shuffle of part of a warp");
    return __shfl_xor_sync(mask, x, distance);
}

template <typename T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> wanted) {
    const T before = *at;
    if (before == expected) *at = wanted;
    return before;
}
template <typename T>
T atomicMin(T* at, std::type_identity_t<T> x) {
    const T before = *at;
    *at = std::min(before, x);
    return before;
}
template <typename T>
T atomicMax(T* at, std::type_identity_t<T> x) {
    const T before = *at;
    *at = std::max(before, x);
    return before;
}

template <typename T>
T __ldg(const T* at) {
    return *at;
}
