//! The kernels of crates/kernels/src/cuda.

#include "compiled.h"
#include "every_kernel.h"

// All arrays begin at multiples of 16 bytes: launches.h asks for it.
#define ADD(name) emulated::add_kernel(#name, name, 16);

[[maybe_unused]] static const bool known = [] {
    FOREBAY_EVERY_KERNEL
    return true;
}();
