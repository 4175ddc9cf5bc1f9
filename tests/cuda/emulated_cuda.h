//! CUDA's words on a CPU, as far as src/kernels/cuda uses them: what `types.cuh` includes where nvcc does not compile.
//!
//! The threads of a block are fibers (`fibers.cpp`): one runs until it meets others, at a barrier or an exchange
//! between the lanes of a warp, and who runs next is drawn from a seed. So code that lacks a barrier gives different
//! numbers under different seeds, and a thread that stays away from a barrier is an error.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __launch_bounds__(...)
// Blocks run one after the other.
#define __shared__ static

struct Index3 {
    uint32_t x, y, z;
};
extern Index3 threadIdx, blockIdx, gridDim, blockDim;

struct __half {
    uint16_t bits;
};
struct __nv_bfloat16 {
    uint16_t bits;
};

float __half2float(__half x);
__half __float2half_rn(float x);
inline float __bfloat162float(__nv_bfloat16 x) {
    const uint32_t bits = uint32_t(x.bits) << 16;
    float y;
    memcpy(&y, &bits, 4);
    return y;
}
__nv_bfloat16 __float2bfloat16_rn(float x);

inline uint32_t __float_as_uint(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

inline uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }
inline uint32_t max(uint32_t a, uint32_t b) { return a > b ? a : b; }
using std::ceil;

/// What meets in this file runs in `fibers.cpp`.
namespace emulated {

/// What a lane brings to an exchange.
struct Parcel {
    uint32_t words[6];
};

/// All lanes of the warp bring theirs; gives the address of all 32, which is good until the lane's next exchange.
const Parcel* exchange(const Parcel& mine);
void meet_block();
void meet_warp();
/// Ends the process with a message.
[[noreturn]] void fail(const char* what);
/// Of the calling thread.
uint32_t lane();
/// The result of a product that the whole warp takes part in, `[16, 8]`: computed by whoever comes first.
const float* product(const Parcel* all, float (*number)(uint16_t));

template <typename T>
T shuffle(T x, uint32_t from) {
    static_assert(sizeof(T) <= sizeof(Parcel));
    Parcel mine = {};
    memcpy(&mine, &x, sizeof(T));
    const Parcel* all = exchange(mine);
    memcpy(&x, &all[from % 32], sizeof(T));
    return x;
}

}  // namespace emulated

inline void __syncthreads() { emulated::meet_block(); }
inline void __syncwarp() { emulated::meet_warp(); }

inline void all_lanes(uint32_t mask) {
    if (mask != 0xffffffffu) emulated::fail("a shuffle of part of a warp");
}
template <typename T>
T __shfl_sync(uint32_t mask, T x, uint32_t from) {
    all_lanes(mask);
    return emulated::shuffle(x, from);
}
template <typename T>
T __shfl_xor_sync(uint32_t mask, T x, uint32_t distance) {
    all_lanes(mask);
    return emulated::shuffle(x, emulated::lane() ^ distance);
}
template <typename T>
T __shfl_up_sync(uint32_t mask, T x, uint32_t distance) {
    all_lanes(mask);
    return emulated::shuffle(x, emulated::lane() < distance ? emulated::lane() : emulated::lane() - distance);
}

template <typename T>
T atomicAdd(T* to, T x) {
    const T before = *to;
    *to = before + x;
    return before;
}

/// Stands for `ptx.cuh`, whose comments say what each does.
namespace forebay {

void copy_async(void* shared, const void* global, bool live);
void copy_commit();
void copy_wait_but(int groups);
template <int N>
void copy_wait() {
    copy_wait_but(N);
}
void load_matrices(uint32_t (&to)[4], const void* row);
void load_matrices_transposed(uint32_t (&to)[4], const void* row);

template <typename T>
void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const emulated::Parcel* all = emulated::exchange({{a[0], a[1], a[2], a[3], b0, b1}});
    const float* result = emulated::product(all, [](uint16_t bits) {
        if constexpr (sizeof(T) == sizeof(__half) && __is_same(T, __half)) return __half2float({bits});
        return __bfloat162float({bits});
    });
    const uint32_t row = emulated::lane() / 4, column = emulated::lane() % 4 * 2;
    for (uint32_t i = 0; i < 4; i++) d[i] += result[(row + i / 2 * 8) * 8 + column + i % 2];
}

}  // namespace forebay
