//! `paged_store_*`: a step's keys and values into the cache.

#include "launches.h"

namespace forebay {

constexpr uint32_t NO_SLOT = 0xffffffffu;
template <typename A, typename C>
__device__ inline void store_row(const A* k, const A* v, C* k_cache, C* v_cache, uint32_t slot, uint32_t width) {
    if (slot == NO_SLOT) return;
    const size_t from = static_cast<size_t>(blockIdx.x) * width, to = static_cast<size_t>(slot) * width;
    for (uint32_t i = threadIdx.x * EIGHT; i < width; i += FOREBAY_STORE_THREADS * EIGHT) {
        float keys[EIGHT], values[EIGHT];
        load_eight(keys, k + from + i);
        load_eight(values, v + from + i);
        store_eight(k_cache + to + i, keys);
        store_eight(v_cache + to + i, values);
    }
}

}  // namespace forebay

#define FOREBAY_DEFINE_STORE(M, a, A, c, C)                                                                            \
    extern "C" __global__ __launch_bounds__(FOREBAY_STORE_THREADS) FOREBAY_STORE(a, A, c, C) {                         \
        forebay::store_row(k, v, k_cache, v_cache, slots[blockIdx.x], width);                                          \
    }

FOREBAY_FOR_A_C(FOREBAY_DEFINE_STORE, FOREBAY_STORE)
