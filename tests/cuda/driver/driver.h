//! A CUDA driver over the memory of the host: what its files know of each other.
//!
//! Work that is given to a stream waits in the stream until somebody asks for its end, as late as a device may do it. So
//! who reads too early, or overwrites what a copy has yet to read, gets wrong numbers here, too. One lock is held during
//! every call; what cannot be right ends the process with a message, rather than in an error code that might be handled.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace emulated {

/// Ends the process with a message and status 3.
[[noreturn]] void broken(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// Held by every call of the driver and of the libraries above it.
std::recursive_mutex& lock();
using Guard = std::lock_guard<std::recursive_mutex>;

// memory.cpp

/// Null if the device has not so much left.
CUdeviceptr take(size_t bytes);
/// The owner's call: from here on nobody may ask for work on it. `release` follows when the stream is that far.
void let_go(CUdeviceptr address);
void release(CUdeviceptr address);
/// Of a recording: the same memory again.
void take_again(CUdeviceptr address);
/// Whether the device may read and write there: memory that was taken and not let go, or pinned.
bool reachable(uintptr_t address, size_t bytes);
bool is_pinned(uintptr_t address, size_t bytes);
/// Ends the process unless it is so. One byte where nobody knows how many are meant.
void check_reachable(const char* who, uintptr_t address, size_t bytes);
/// Where an address lies, in words.
std::string describe(uintptr_t address);
/// The pool keeps what was freed up to `threshold` bytes.
void keep_freed(uint64_t threshold);
void give_back_freed();
/// Names what runs for the message of a fault; null when it is over.
void runs_on_device(const char* what);

// streams.cpp

using Work = std::function<void()>;

/// Puts work at the end of a stream, or into its recording.
CUresult enqueue(CUstream stream, Work work);
bool is_capturing(CUstream stream);
/// For calls that a recording does not survive; true if one is under way, which is spoilt then.
bool spoils_capture(CUstream stream);
bool spoils_any_capture();
void finish(CUstream stream);
void finish_all();

// launches.cpp

/// A kernel as its module declares it.
struct Entry {
    std::string name;
    std::vector<size_t> parameters;
    /// Threads of a block, 0 where nothing is said.
    unsigned most_threads = 0;
    size_t shared_bytes = 0;
    /// What `cuFuncSetAttribute` allowed.
    size_t dynamic_bytes = 48 * 1024;
};

struct Shape {
    unsigned grid[3], block[3];
    unsigned shared_bytes;
};

CUresult launch(const Entry& entry, const Shape& shape, CUstream stream, void** arguments);

/// What the emulated device says of itself.
constexpr unsigned MOST_THREADS = 1024;
constexpr size_t MOST_SHARED = 227 * 1024;
constexpr size_t PLAIN_SHARED = 48 * 1024;

}  // namespace emulated
