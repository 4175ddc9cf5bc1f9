//! `gate_*`: the middle of an MLP, an activation times the other projection.

#include "launches.h"

namespace forebay {

enum Activation : uint32_t { SILU = 0, GELU_ERF = 1, GELU_TANH = 2 };

__device__ inline float activated(float x, uint32_t activation) {
    switch (activation) {
        case SILU:
            return x / (1.0f + expf(-x));
        case GELU_ERF:
            return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
        default:
            // sqrt(2 / pi)
            return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    }
}

template <typename A>
__device__ inline void gate_eight(const A* gate, const A* up, A* out, uint32_t activation) {
    float numbers[EIGHT], factors[EIGHT];
    load_eight(numbers, gate);
    if (up != nullptr) load_eight(factors, up);
#pragma unroll
    for (int i = 0; i < EIGHT; i++) {
        numbers[i] = activated(numbers[i], activation) * (up != nullptr ? factors[i] : 1.0f);
    }
    store_eight(out, numbers);
}

template <typename A>
__device__ inline void gated(const A* gate, const A* up, A* out, uint64_t count, uint32_t activation) {
    const uint64_t thread = static_cast<uint64_t>(blockIdx.x) * FOREBAY_ELEMENT_THREADS + threadIdx.x;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * FOREBAY_ELEMENT_THREADS * EIGHT;
    for (uint64_t at = thread * EIGHT; at < count; at += step) {
        if (at + EIGHT <= count) {
            gate_eight(gate + at, up == nullptr ? nullptr : up + at, out + at, activation);
            continue;
        }
        for (uint64_t i = at; i < count; i++) {
            const float factor = up == nullptr ? 1.0f : to_float(up[i]);
            out[i] = from_float<A>(activated(to_float(gate[i]), activation) * factor);
        }
    }
}

}  // namespace forebay

#define FOREBAY_DEFINE_GATE(M, a, A)                                                                                   \
    extern "C" __global__ __launch_bounds__(FOREBAY_ELEMENT_THREADS) FOREBAY_GATE(a, A) {                              \
        forebay::gated(gate, up, out, count, activation);                                                              \
    }

FOREBAY_FOR_A(FOREBAY_DEFINE_GATE, FOREBAY_GATE)
