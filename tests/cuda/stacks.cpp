//! How a stack is left and entered.

#include "stacks.h"

#include <sanitizer/asan_interface.h>

#include <cstdint>

namespace emulated {

void Stack::allocate() {
    if (!memory) memory = std::make_unique_for_overwrite<unsigned char[]>(BYTES);
    // The run before left in the middle of its functions, with their guards in place.
    ASAN_UNPOISON_MEMORY_REGION(memory.get(), BYTES);
}

#if defined(__x86_64__)

// Saves what the System V ABI lets a function keep, and takes what another saved.
extern "C" void emulated_switch(void** saved, void* to);
asm(R"(
.text
.globl emulated_switch
emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

void Stack::begin(void (*function)()) {
    allocate();
    const uintptr_t end = (reinterpret_cast<uintptr_t>(memory.get()) + BYTES) / 16 * 16;
    // Six registers, then where to return to; a function begins 8 bytes off a multiple of 16.
    uintptr_t* top = reinterpret_cast<uintptr_t*>(end) - 8;
    for (int i = 0; i < 6; i++) top[i] = 0;
    top[6] = reinterpret_cast<uintptr_t>(function);
    top[7] = 0;
    inside = top;
}

void Stack::enter() { emulated_switch(&outside, inside); }
void Stack::leave() { emulated_switch(&inside, outside); }

#else

void Stack::begin(void (*function)()) {
    allocate();
    getcontext(&inside);
    inside.uc_stack.ss_sp = memory.get();
    inside.uc_stack.ss_size = BYTES;
    inside.uc_link = nullptr;
    makecontext(&inside, function, 0);
}

void Stack::enter() { swapcontext(&outside, &inside); }
void Stack::leave() { swapcontext(&inside, &outside); }

#endif

}  // namespace emulated
