//! A block's threads as fibers of one thread.
#pragma once

#include <cstdint>
#include <functional>

namespace emulated {

struct Launch {
    uint32_t grid[3];
    uint32_t block[3];
    uint64_t seed;
};

/// Runs `kernel` once per thread of each block, in an order drawn from the seed.
void run(const Launch& launch, const std::function<void()>& kernel);

}  // namespace emulated
