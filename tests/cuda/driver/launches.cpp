//! What a launch is checked for, and how it runs.

#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>

#include "driver.h"
#include "fibers.h"
#include "kernels.h"

namespace emulated {
namespace {

std::multimap<std::string, Kernel>& kernels() {
    static std::multimap<std::string, Kernel> all;
    return all;
}

/// Copies what may not be there at all.
bool peek(void* to, const void* from, size_t bytes) {
    iovec local = {to, bytes}, remote = {const_cast<void*>(from), bytes};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == ssize_t(bytes);
}

void check_shape(const char* name, const Entry& entry, const Shape& shape) {
    const unsigned* grid = shape.grid;
    const unsigned* block = shape.block;
    const size_t threads = size_t(block[0]) * block[1] * block[2];
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || threads == 0) broken("%s: an empty grid or block", name);
    if (grid[0] > 0x7fffffffu || grid[1] > 65535 || grid[2] > 65535) {
        broken("%s: a grid of %u, %u, %u", name, grid[0], grid[1], grid[2]);
    }
    const size_t most = entry.most_threads ? entry.most_threads : MOST_THREADS;
    if (threads > most || block[2] > 64) broken("%s: %zu threads, at most %zu fit", name, threads, most);
    if (entry.shared_bytes > PLAIN_SHARED) broken("%s: %zu bytes of static shared memory", name, entry.shared_bytes);
    if (shape.shared_bytes > entry.dynamic_bytes || shape.shared_bytes + entry.shared_bytes > MOST_SHARED) {
        broken("%s: %u bytes of dynamic shared memory, %zu are allowed", name, shape.shared_bytes, entry.dynamic_bytes);
    }
}

/// Copies of the arguments, one behind the other, each as the kernel declares it.
using Arguments = std::vector<std::vector<unsigned char>>;

/// The kernel whose source has the parameters that the module declares.
const Kernel* compiled_for(const Entry& entry) {
    for (const Kernel* kernel : kernels_named(entry.name)) {
        std::vector<size_t> sizes;
        for (const Parameter& parameter : kernel->parameters) sizes.push_back(parameter.bytes);
        if (sizes == entry.parameters) return kernel;
    }
    broken("no kernel %s with %zu such parameters is emulated", entry.name.c_str(), entry.parameters.size());
}

Arguments read_arguments(const char* name, const Entry& entry, const Kernel& kernel, void** given) {
    Arguments arguments;
    for (size_t i = 0; i < entry.parameters.size(); i++) {
        const Parameter& parameter = kernel.parameters[i];
        const size_t bytes = entry.parameters[i];
        void* at = nullptr;
        std::vector<unsigned char> copy(bytes);
        if (!peek(&at, given + i, sizeof(at)) || !peek(copy.data(), at, bytes)) {
            broken("%s: no argument %zu of %zu", name, i, entry.parameters.size());
        }
        if (parameter.pointer) {
            uintptr_t address;
            memcpy(&address, copy.data(), sizeof(address));
            const std::string who = std::string(name) + ", argument " + std::to_string(i);
            if (address != 0) check_reachable(who.c_str(), address, 1);
            if (address % parameter.alignment != 0) {
                broken("%s is not aligned to %zu bytes", who.c_str(), parameter.alignment);
            }
        }
        arguments.push_back(std::move(copy));
    }
    return arguments;
}

}  // namespace

void add_kernel(const char* name, Kernel kernel) { kernels().emplace(name, std::move(kernel)); }

std::vector<const Kernel*> kernels_named(const std::string& name) {
    std::vector<const Kernel*> all;
    for (auto [at, end] = kernels().equal_range(name); at != end; ++at) all.push_back(&at->second);
    return all;
}

CUresult launch(const Entry& entry, const Shape& shape, CUstream stream, void** given) {
    const char* name = entry.name.c_str();
    const Kernel* kernel = compiled_for(entry);
    check_shape(name, entry, shape);
    if (shape.shared_bytes > 0 && !kernel->by_definition) broken("%s: dynamic shared memory is not emulated", name);
    auto arguments = std::make_shared<Arguments>(read_arguments(name, entry, *kernel, given));
    return enqueue(stream, [kernel, shape, arguments, name = entry.name] {
        static uint64_t seed = 0;
        Launch how = {{shape.grid[0], shape.grid[1], shape.grid[2]}, {shape.block[0], shape.block[1], shape.block[2]},
                      seed++};
        std::vector<unsigned char*> pointers;
        for (std::vector<unsigned char>& argument : *arguments) pointers.push_back(argument.data());
        runs_on_device(name.c_str());
        run(how, [&] { kernel->thread(pointers.data()); });
        runs_on_device(nullptr);
    });
}

}  // namespace emulated
