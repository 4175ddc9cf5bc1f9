//! CUDA's words on a CPU, as far as crates/kernels/src/cuda uses them: what `types.cuh` includes where nvcc does not compile.
#pragma once

#include <cmath>

#include "emulated_threads.h"

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
