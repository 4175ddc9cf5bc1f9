//! The device, its context, and the names of errors.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "driver.h"

using namespace emulated;

namespace {

thread_local CUcontext current = nullptr;
const auto primary = reinterpret_cast<CUcontext>(uintptr_t(0x1000));

/// `EMULATED_CUDA_DEVICES`, one without it.
int count() {
    const char* asked = getenv("EMULATED_CUDA_DEVICES");
    return asked ? atoi(asked) : 1;
}

struct Named {
    const char *name, *text;
};

const std::map<CUresult, Named>& errors() {
#define NAMED(name, text) {name, {#name, text}}
    static const std::map<CUresult, Named> all = {
        NAMED(CUDA_SUCCESS, "no error"),
        NAMED(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
        NAMED(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
        NAMED(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
        NAMED(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
        NAMED(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
        NAMED(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
        NAMED(CUDA_ERROR_NOT_READY, "device not ready"),
        NAMED(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
        NAMED(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
        NAMED(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
        NAMED(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
    };
#undef NAMED
    return all;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return count() > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }

CUresult cuDriverGetVersion(int* version) {
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* number) {
    *number = count();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    if (ordinal < 0 || ordinal >= count()) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice) {
    snprintf(name, size_t(length), "emulated device");
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
    size_t available;
    return cuMemGetInfo(&available, bytes);
}

/// An H200, as far as anybody asks.
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
    static const std::map<CUdevice_attribute, int> all = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, int(MOST_THREADS)},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, int(PLAIN_SHARED)},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, int(MOST_SHARED)},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 * 1024},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    };
    const auto found = all.find(attribute);
    if (found == all.end()) broken("nobody has said what device attribute %d is", int(attribute));
    *value = found->second;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
    *context = primary;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }

CUresult cuCtxGetCurrent(CUcontext* context) {
    *context = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
    const auto found = errors().find(error);
    *name = found == errors().end() ? nullptr : found->second.name;
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
    const auto found = errors().find(error);
    *text = found == errors().end() ? nullptr : found->second.text;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
