//! Memory of the device: pages between pages that nobody may touch, filled with ones (not a number, and no index) before
//! its first use, never handed out twice, and untouchable once freed.

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "driver.h"

namespace emulated {
namespace {

constexpr size_t PAGE = 4096, SPACE = size_t(1) << 43, ALIGNMENT = 256;
constexpr unsigned char FRESH = 0xff, FENCE = 0xa5;

struct Allocation {
    size_t bytes;
    /// False once its owner has freed it, though the stream may not be there yet.
    bool owned;
    bool mapped;
};

struct Memory {
    uintptr_t next = 0, end = 0;
    /// By address.
    std::map<uintptr_t, Allocation> allocations;
    std::map<uintptr_t, size_t> pinned;
    size_t total = 0, used = 0;
    /// What the pool holds, used or not.
    size_t reserved = 0;
    uint64_t threshold = 0;
};

const char* running = nullptr;

/// A fault of a kernel, in words; any other is left to whoever handled them before.
struct sigaction before;

void fault(int signal, siginfo_t* info, void* context) {
    if (!running) {
        if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(signal, info, context);
        ::signal(signal, SIG_DFL);
        return;
    }
    broken("%s touches %s", running, describe(reinterpret_cast<uintptr_t>(info->si_addr)).c_str());
}

Memory& memory() {
    static Memory one = [] {
        Memory fresh;
        void* space = mmap(nullptr, SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (space == MAP_FAILED) broken("no address space");
        fresh.next = reinterpret_cast<uintptr_t>(space);
        fresh.end = fresh.next + SPACE;
        const char* asked = getenv("EMULATED_CUDA_MIB");
        fresh.total = size_t(asked ? atoll(asked) : 1024) << 20;
        struct sigaction action = {};
        action.sa_sigaction = fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigaction(SIGSEGV, &action, &before);
        return fresh;
    }();
    return one;
}

size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

/// The pages of an allocation: it ends where they end, but for its alignment.
uintptr_t first_page(uintptr_t address) { return address / PAGE * PAGE; }
uintptr_t last_page(uintptr_t address, size_t bytes) { return rounded(address + bytes, PAGE); }

void map(uintptr_t address, size_t bytes) {
    void* from = reinterpret_cast<void*>(first_page(address));
    const size_t length = last_page(address, bytes) - first_page(address);
    if (mprotect(from, length, PROT_READ | PROT_WRITE) != 0) broken("the host has no memory for %zu bytes", length);
    memset(from, FENCE, length);
    memset(reinterpret_cast<void*>(address), FRESH, bytes);
}

void check_fences(uintptr_t address, size_t bytes) {
    for (uintptr_t at = first_page(address); at < last_page(address, bytes); at++) {
        if (at == address) at += bytes;
        if (at < last_page(address, bytes) && *reinterpret_cast<unsigned char*>(at) != FENCE) {
            broken("something wrote to %s", describe(at).c_str());
        }
    }
}

void unmap(uintptr_t address, size_t bytes) {
    void* from = reinterpret_cast<void*>(first_page(address));
    const size_t length = last_page(address, bytes) - first_page(address);
    mmap(from, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/// The last allocation that begins at or before `address`.
std::pair<const uintptr_t, Allocation>* at_or_before(uintptr_t address) {
    auto& all = memory().allocations;
    auto next = all.upper_bound(address);
    return next == all.begin() ? nullptr : &*--next;
}

Allocation& named(const char* who, CUdeviceptr address) {
    auto found = memory().allocations.find(address);
    if (found == memory().allocations.end()) broken("%s of %s", who, describe(address).c_str());
    return found->second;
}

}  // namespace

void broken(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("emulated CUDA: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    fflush(stderr);
    _Exit(3);
}

std::recursive_mutex& lock() {
    static std::recursive_mutex one;
    return one;
}

void runs_on_device(const char* what) { running = what; }

CUdeviceptr take(size_t bytes) {
    Memory& all = memory();
    const size_t size = rounded(bytes, ALIGNMENT);
    if (size > all.total - std::min(all.total, all.used)) return 0;
    const uintptr_t pages = rounded(size, PAGE), start = all.next + PAGE + pages - size;
    if (start + size + PAGE > all.end) broken("no address space is left");
    all.next = start + size;
    all.allocations[start] = {bytes, true, true};
    all.used += size;
    all.reserved = std::max(all.reserved, all.used);
    map(start, bytes);
    return start;
}

void let_go(CUdeviceptr address) {
    Allocation& allocation = named("a free", address);
    if (!allocation.owned) broken("a second free of %s", describe(address).c_str());
    allocation.owned = false;
}

void release(CUdeviceptr address) {
    Allocation& allocation = named("a release", address);
    check_fences(address, allocation.bytes);
    unmap(address, allocation.bytes);
    allocation.mapped = false;
    memory().used -= rounded(allocation.bytes, ALIGNMENT);
}

void take_again(CUdeviceptr address) {
    Allocation& allocation = named("an allocation of a recording", address);
    if (allocation.mapped) broken("a recording takes twice what it did not free: %s", describe(address).c_str());
    allocation.mapped = true;
    memory().used += rounded(allocation.bytes, ALIGNMENT);
    map(address, allocation.bytes);
}

bool is_pinned(uintptr_t address, size_t bytes) {
    auto& all = memory().pinned;
    auto next = all.upper_bound(address);
    return next != all.begin() && (--next, address + bytes <= next->first + next->second);
}

bool reachable(uintptr_t address, size_t bytes) {
    const auto* found = at_or_before(address);
    const bool inside = found && found->second.owned && address + bytes <= found->first + found->second.bytes;
    return inside || is_pinned(address, bytes);
}

void check_reachable(const char* who, uintptr_t address, size_t bytes) {
    if (!reachable(address, bytes)) broken("%s: %zu bytes at %s", who, bytes, describe(address).c_str());
}

std::string describe(uintptr_t address) {
    char text[200];
    const auto* found = at_or_before(address);
    const uintptr_t begin = memory().end - SPACE;
    if (address < begin || address >= memory().end || !found) {
        snprintf(text, sizeof(text), "%#zx, which is no memory of the device", address);
        return text;
    }
    const auto& [start, allocation] = *found;
    const char* state = allocation.owned ? "" : " that was freed";
    snprintf(text, sizeof(text), "byte %zu of an allocation of %zu bytes%s", address - start, allocation.bytes, state);
    return text;
}

void keep_freed(uint64_t threshold) { memory().threshold = threshold; }

void give_back_freed() {
    Memory& all = memory();
    all.reserved = std::max<size_t>(all.used, std::min<uint64_t>(all.reserved, all.threshold));
}

}  // namespace emulated

using namespace emulated;

extern "C" {

CUresult cuMemGetInfo(size_t* available, size_t* total) {
    Guard guard(lock());
    *total = memory().total;
    *available = memory().total - std::min(memory().total, memory().reserved);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
    Guard guard(lock());
    if (spoils_any_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    finish_all();
    *address = take(bytes);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFree(CUdeviceptr address) {
    Guard guard(lock());
    if (spoils_any_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    let_go(address);
    finish_all();
    release(address);
    return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
    Guard guard(lock());
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    *address = take(bytes);
    if (!*address && !is_capturing(stream)) {
        // What the stream frees on its way is there by then.
        finish(stream);
        *address = take(bytes);
    }
    if (!*address) return CUDA_ERROR_OUT_OF_MEMORY;
    if (is_capturing(stream)) {
        // Nobody uses it before the recording is played.
        release(*address);
        return enqueue(stream, [taken = *address] { take_again(taken); });
    }
    return CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    Guard guard(lock());
    let_go(address);
    return enqueue(stream, [address] { release(address); });
}

CUresult cuMemHostAlloc(void** memory_of_host, size_t bytes, unsigned) {
    Guard guard(lock());
    *memory_of_host = aligned_alloc(PAGE, rounded(std::max<size_t>(bytes, 1), PAGE));
    memset(*memory_of_host, FRESH, bytes);
    memory().pinned[reinterpret_cast<uintptr_t>(*memory_of_host)] = bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* memory_of_host) {
    Guard guard(lock());
    finish_all();
    if (memory().pinned.erase(reinterpret_cast<uintptr_t>(memory_of_host)) == 0) broken("a free of memory not pinned");
    free(memory_of_host);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice) {
    *pool = reinterpret_cast<CUmemoryPool>(uintptr_t(1));
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute attribute, void* value) {
    Guard guard(lock());
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) keep_freed(*static_cast<uint64_t*>(value));
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool, size_t) {
    Guard guard(lock());
    memory().reserved = memory().used;
    return CUDA_SUCCESS;
}

}  // extern "C"
