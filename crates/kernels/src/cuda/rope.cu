//! `rope_*`: rotary position embedding in the half-split form of the Hugging Face checkpoints.

#include "launches.h"

namespace forebay {

template <typename A>
__device__ inline void rope(
    A* x, const float* cos, const float* sin, uint32_t heads, uint32_t head_dim, uint32_t dims) {
    const uint32_t half = dims / 2;
    const uint32_t index = blockIdx.y * FOREBAY_ELEMENT_THREADS + threadIdx.x;
    if (index >= heads * half) return;
    const uint32_t head = index / half, i = index % half;
    A* first = x + (static_cast<size_t>(blockIdx.x) * heads + head) * head_dim + i;
    const size_t angle = static_cast<size_t>(blockIdx.x) * half + i;
    const float a = to_float(first[0]), b = to_float(first[half]);
    first[0] = from_float<A>(a * cos[angle] - b * sin[angle]);
    first[half] = from_float<A>(b * cos[angle] + a * sin[angle]);
}

}  // namespace forebay

#define FOREBAY_DEFINE_ROPE(M, a, A)                                                                                   \
    extern "C" __global__ __launch_bounds__(FOREBAY_ELEMENT_THREADS) FOREBAY_ROPE(a, A) {                              \
        forebay::rope(x, cos, sin, heads, head_dim, dims);                                                             \
    }

FOREBAY_FOR_A(FOREBAY_DEFINE_ROPE, FOREBAY_ROPE)
