//! Kernels by name.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace emulated {

struct Parameter {
    size_t bytes;
    bool pointer;
    /// Of what the pointer points to.
    size_t alignment;
};

struct Kernel {
    std::vector<Parameter> parameters;
    /// One thread's life; `arguments` point to each.
    std::function<void(unsigned char* const* arguments)> thread;
    /// Not the kernel's own source: how many threads there are, and their shared memory, are all one.
    bool by_definition = false;
};

void add_kernel(const char* name, Kernel kernel);
/// All of this name: candle has kernels that are called like ours.
std::vector<const Kernel*> kernels_named(const std::string& name);

}  // namespace emulated
