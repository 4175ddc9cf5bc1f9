//! Threads, warps and blocks of CUDA on a CPU: what does not depend on whose 16-bit numbers a source uses.
//!
//! The threads of a block are fibers (`fibers.cpp`): one runs until it meets others, at a barrier or an exchange
//! between the lanes of a warp, and who runs next is drawn from a seed. So code that lacks a barrier gives different
//! numbers under different seeds, and a thread that stays away from a barrier is an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#undef __global__
#undef __device__
#undef __launch_bounds__
#undef __shared__
#define __global__
#define __device__
#define __launch_bounds__(...)
// Blocks run one after the other.
#define __shared__ static

struct Index3 {
    uint32_t x, y, z;
};
extern Index3 threadIdx, blockIdx, gridDim, blockDim;

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
