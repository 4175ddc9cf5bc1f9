//! The CUDA runtime, as far as kernels need it that candle has compiled into its binary: they are known by the address of
//! a function of the host, launched through it, and declare nothing but their name.

#include <cuda_runtime_api.h>

#include <map>

#include "driver.h"
#include "kernels.h"
#include "mmq.h"

using namespace emulated;

namespace {

/// By the address of their function of the host.
std::map<const void*, Entry>& entries() {
    static std::map<const void*, Entry> all;
    return all;
}

/// Its module is a cubin: sizes are those of its source.
void complete(Entry& entry) {
    Kernel defined;
    if (kernels_named(entry.name).empty()) {
        if (!defined_product(entry.name, defined)) broken("%s is not among the kernels emulated", entry.name.c_str());
        add_kernel(entry.name.c_str(), defined);
    }
    entry.parameters.clear();
    for (const Parameter& parameter : kernels_named(entry.name)[0]->parameters) {
        entry.parameters.push_back(parameter.bytes);
    }
}

struct Configuration {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) {
    static void* handle = nullptr;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
    entries()[host].name = name;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
    configurations.push_back({grid, block, shared_bytes, stream});
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
    const Configuration last = configurations.back();
    configurations.pop_back();
    *grid = last.grid;
    *block = last.block;
    *shared_bytes = last.shared_bytes;
    *static_cast<cudaStream_t*>(stream) = last.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute attribute, int value) {
    Guard guard(lock());
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (size_t(value) > MOST_SHARED) return cudaErrorInvalidValue;
    entries()[host].dynamic_bytes = size_t(value);
    return cudaSuccess;
}

/// Built for streams of each thread, but every launch names its stream.
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                                    cudaStream_t stream) {
    Guard guard(lock());
    Entry& entry = entries()[kernel];
    complete(entry);
    if (!stream) broken("%s: a launch on no stream of ours", entry.name.c_str());
    const Shape shape = {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, unsigned(shared_bytes)};
    launch(entry, shape, reinterpret_cast<CUstream>(stream), arguments);
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

}  // extern "C"
