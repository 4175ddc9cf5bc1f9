//! Switching between stacks. swapcontext(3) does it anywhere, but asks the kernel for the signal mask at each switch,
//! and a test makes hundreds of millions of them.
#pragma once

#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulated {

class Stack {
public:
    /// Prepares a run of `function`, which must not return.
    void begin(void (*function)());
    /// Runs it up to its next `leave`.
    void enter();
    void leave();

private:
    void allocate();

    static constexpr size_t BYTES = 128 * 1024;
    std::unique_ptr<unsigned char[]> memory;
#if defined(__x86_64__)
    void* inside = nullptr;
    void* outside = nullptr;
#else
    ucontext_t inside, outside;
#endif
};

}  // namespace emulated
