//! Threads of a block as fibers: who runs when, and how they meet.
//!
//! A lane runs until it waits. When all lanes of a warp wait for their warp, it may go on; when all warps wait for the
//! block, the block may. Which warp goes on, and in which order its lanes do, is drawn.

#include "fibers.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "emulated_cuda.h"
#include "stacks.h"

Index3 threadIdx, blockIdx, gridDim, blockDim;

namespace emulated {
namespace {

enum class Waits { NOTHING, WARP, BLOCK, DONE };

/// One `copy_async` that has not taken place, or the end of a group of them.
struct Copy {
    void* to;
    const void* from;
    bool live;
    bool commit;
};

struct Fiber {
    Stack stack;
    Waits waits = Waits::NOTHING;
    std::deque<Copy> copies;
};

struct Warp {
    /// Of one exchange and of the next: whoever is late still reads the first.
    Parcel parcels[2][32];
    float products[2][128];
    bool multiplied[2];
    /// Of each lane: which of the two is its next.
    uint8_t turn[32];
};

struct Block {
    std::vector<std::unique_ptr<Fiber>> fibers;
    std::vector<Warp> warps;
    std::mt19937_64 random;
    uint32_t current = 0;
    const std::function<void()>* kernel = nullptr;
};
Block block;

Fiber& fiber() { return *block.fibers[block.current]; }
Warp& warp() { return block.warps[block.current / 32]; }

void wait_for(Waits what) {
    fiber().waits = what;
    fiber().stack.leave();
}

void live() {
    (*block.kernel)();
    for (const Copy& copy : fiber().copies) {
        if (!copy.commit) fail("a thread ended before its copies were waited for");
    }
    fiber().waits = Waits::DONE;
    fiber().stack.leave();
    fail("a fiber ran on after its end");
}

void run_lane(uint32_t thread) {
    block.current = thread;
    threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y};
    fiber().waits = Waits::NOTHING;
    fiber().stack.enter();
}

/// Runs each lane up to where it waits next; all must wait for the same.
Waits run_warp(uint32_t first, uint32_t lanes) {
    // Odd multiples permute a power of two.
    const uint32_t step = block.random() % 16 * 2 + 1, offset = block.random() % 32;
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t lane = (i * step + offset) % 32;
        if (lane < lanes) run_lane(first + lane);
    }
    const Waits waits = block.fibers[first]->waits;
    for (uint32_t lane = 1; lane < lanes; lane++) {
        if (block.fibers[first + lane]->waits != waits) fail("lanes of a warp wait at different barriers, or left");
    }
    return waits;
}

/// One block, from its start to its end.
void run_block(uint32_t threads) {
    const uint32_t count = (threads + 31) / 32;
    for (uint32_t thread = 0; thread < threads; thread++) {
        block.fibers[thread]->copies.clear();
        block.fibers[thread]->stack.begin(live);
    }
    for (Warp& each : block.warps) each = {};
    // Warps that need not wait for the block.
    std::vector<uint32_t> ready(count);
    std::iota(ready.begin(), ready.end(), 0);
    uint32_t done = 0;
    while (done < count) {
        const uint32_t at = block.random() % ready.size(), chosen = ready[at];
        const Waits waits = run_warp(chosen * 32, std::min(32u, threads - chosen * 32));
        if (waits == Waits::WARP) continue;
        ready[at] = ready.back();
        ready.pop_back();
        if (waits == Waits::DONE) done++;
        if (!ready.empty() || done == count) continue;
        if (done > 0) fail("a warp left while others wait for the block");
        ready.resize(count);
        std::iota(ready.begin(), ready.end(), 0);
    }
}

void perform(const Copy& copy) {
    if (copy.live) {
        memcpy(copy.to, copy.from, 16);
    } else {
        memset(copy.to, 0, 16);
    }
}

}  // namespace

void run(const Launch& launch, const std::function<void()>& kernel) {
    block.random.seed(launch.seed);
    block.kernel = &kernel;
    const uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
    while (block.fibers.size() < threads) block.fibers.push_back(std::make_unique<Fiber>());
    block.warps.resize((threads + 31) / 32);
    gridDim = {launch.grid[0], launch.grid[1], launch.grid[2]};
    blockDim = {launch.block[0], launch.block[1], launch.block[2]};
    std::vector<uint32_t> order(size_t(launch.grid[0]) * launch.grid[1] * launch.grid[2]);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), block.random);
    for (uint32_t index : order) {
        blockIdx = {index % gridDim.x, index / gridDim.x % gridDim.y, index / gridDim.x / gridDim.y};
        run_block(threads);
    }
}

uint32_t lane() { return block.current % 32; }

void meet_block() { wait_for(Waits::BLOCK); }
void meet_warp() { wait_for(Waits::WARP); }

const Parcel* exchange(const Parcel& mine) {
    Warp& with = warp();
    const uint32_t self = lane(), turn = with.turn[self]++ % 2;
    with.parcels[turn][self] = mine;
    with.multiplied[turn] = false;
    meet_warp();
    return with.parcels[turn];
}

/// As PTX describes mma.m16n8k16: lane `4 * g + t` has, of `a`, rows `g` and `g + 8` (words 0 and 1, then 2 and 3) at
/// columns `2t`, `2t + 1` (then 8 more), and of `b` rows `2t`, `2t + 1` (word 4, then 8 more in word 5) of column `g`.
const float* product(const Parcel* all, float (*number)(uint16_t)) {
    Warp& with = warp();
    const uint32_t turn = all == with.parcels[1];
    float* result = with.products[turn];
    if (with.multiplied[turn]) return result;
    with.multiplied[turn] = true;
    float a[16][16], b[8][16];
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t group = i / 4, column = i % 4 * 2;
        for (uint32_t word = 0; word < 6; word++) {
            const uint32_t bits = all[i].words[word];
            const uint32_t k = column + (word < 4 ? word / 2 : word - 4) * 8;
            float* to = word < 4 ? &a[group + word % 2 * 8][k] : &b[group][k];
            to[0] = number(bits & 0xffff);
            to[1] = number(bits >> 16);
        }
    }
    for (uint32_t row = 0; row < 16; row++) {
        for (uint32_t column = 0; column < 8; column++) {
            float sum = 0;
            for (uint32_t k = 0; k < 16; k++) sum += a[row][k] * b[column][k];
            result[row * 8 + column] = sum;
        }
    }
    return result;
}

void fail(const char* what) {
    fprintf(stderr, "emulated CUDA: %s (block %u %u %u, thread %u %u %u)\n", what, blockIdx.x, blockIdx.y,
            blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    fflush(stderr);
    _Exit(3);
}

}  // namespace emulated

namespace forebay {

using emulated::block;
using emulated::fail;

void copy_async(void* shared, const void* global, bool live) {
    if (reinterpret_cast<uintptr_t>(shared) % 16 != 0) fail("copy_async to an odd address");
    if (live && reinterpret_cast<uintptr_t>(global) % 16 != 0) fail("copy_async from an odd address");
    const emulated::Copy copy = {shared, global, live, false};
    // At any time between now and the wait: at once shows who still reads the place, late who does not wait.
    if (block.random() % 2 == 0) {
        emulated::perform(copy);
    } else {
        emulated::fiber().copies.push_back(copy);
    }
}

void copy_commit() { emulated::fiber().copies.push_back({nullptr, nullptr, false, true}); }

void copy_wait_but(int groups) {
    std::deque<emulated::Copy>& copies = emulated::fiber().copies;
    long open = std::count_if(copies.begin(), copies.end(), [](const emulated::Copy& copy) { return copy.commit; });
    for (; open > groups; copies.pop_front()) {
        if (copies.front().commit) {
            open--;
        } else {
            emulated::perform(copies.front());
        }
    }
}

/// The address of row `row` of matrix `matrix`, as its lane gave it.
static const uint16_t* matrix_row(const emulated::Parcel* all, uint32_t matrix, uint32_t row) {
    const uint16_t* at;
    memcpy(&at, &all[matrix * 8 + row], sizeof(at));
    return at;
}

static const emulated::Parcel* give_row(const void* row) {
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0) fail("load_matrices from an odd address");
    emulated::Parcel mine = {};
    memcpy(&mine, &row, sizeof(row));
    return emulated::exchange(mine);
}

void load_matrices(uint32_t (&to)[4], const void* row) {
    const emulated::Parcel* all = give_row(row);
    const uint32_t lane = emulated::lane();
    for (uint32_t i = 0; i < 4; i++) {
        const uint16_t* from = matrix_row(all, i, lane / 4) + lane % 4 * 2;
        to[i] = from[0] | uint32_t(from[1]) << 16;
    }
}

void load_matrices_transposed(uint32_t (&to)[4], const void* row) {
    const emulated::Parcel* all = give_row(row);
    const uint32_t lane = emulated::lane();
    for (uint32_t i = 0; i < 4; i++) {
        const uint16_t low = matrix_row(all, i, lane % 4 * 2)[lane / 4];
        const uint16_t high = matrix_row(all, i, lane % 4 * 2 + 1)[lane / 4];
        to[i] = low | uint32_t(high) << 16;
    }
}

}  // namespace forebay
